"""Federated algorithms: state in, state out. One file a method."""

from fedcomp.algorithm.contract import Algorithm, Clients, Context, Metrics, Models

__all__ = ["Algorithm", "Clients", "Context", "Metrics", "Models"]
