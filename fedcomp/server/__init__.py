"""Server optimizers: how the server steps along the clients' aggregated update. One file each."""

from fedcomp.server.contract import ServerOptimizer, Slots

__all__ = ["ServerOptimizer", "Slots"]
