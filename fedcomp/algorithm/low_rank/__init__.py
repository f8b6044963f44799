"""Methods that send factors of low-rank matrices: PowerSGD; FedMUD, which trains them."""
