"""Methods that compress both ways with error memories: the baselines of BiCompFL."""
