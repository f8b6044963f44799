"""Training and test data: one file a data set, each with `load`."""
