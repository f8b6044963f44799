"""Methods that send differences of losses along random directions, scalars in both directions: DeComFL and FedKSeed."""
