"""fedcomp: communication-efficient federated learning, accuracy against true bits."""

__version__ = "0.1.0"
