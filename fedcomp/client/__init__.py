"""Local training of a chunk of clients at once: solvers over rows, and the gradient hook."""

from fedcomp.client.contract import Batching, GradFn, LocalData, LocalResult
from fedcomp.client.hook import Hook, Reads
from fedcomp.client.solver import LocalSolver
from fedcomp.model.contract import Batch, Gradient

__all__ = ["Batch", "Batching", "GradFn", "Gradient", "Hook", "LocalData", "LocalResult", "LocalSolver", "Reads"]
