"""Server optimisers: how the server steps along the clients' aggregated update. One file each."""

from fedcomp.server.contract import ServerOptimizer

__all__ = ["ServerOptimizer"]
