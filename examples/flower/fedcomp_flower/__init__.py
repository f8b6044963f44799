"""A run of fedcomp between Flower's SuperLink and SuperNodes: the same methods, and the simulation's model."""
