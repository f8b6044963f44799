"""Repeats work on static tensors: as a CUDA graph, or by running it again."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fedcomp.core.accelerated import check_usable
from fedcomp.core.first_line import first_line

log = logging.getLogger("fedcomp")

Work = Callable[[], None]
WARM_UP = 2
"""Times that work runs before it is captured: libraries set themselves up, and kernels are compiled."""
_FAILED: list[Any] = []
"""Graphs whose capture failed. They must not be freed: torch's allocator may still ask them which memory is theirs."""


class Capture:
    """Repeats work by running it again: the reference, and the fallback where no graph can be captured."""

    def capture(self, work: Work, changed: Sequence[Tensor]) -> Work:
        """A function that does the same as `work` whenever it is called.

        Args:
            work: reads and writes tensors that outlive it, and reads no values back to the host.
            changed: the tensors that it changes; capturing restores them.
        """
        return work


class CudaGraphs(Capture):
    """Captures the work as a CUDA graph, replayed by one launch.

    All graphs share one pool of memory; tensors that must keep their values between replays are outside of it. All are
    warmed up and captured on one stream: libraries make a handle for each stream, which must not happen within a
    capture, and only captures of one stream can share a pool. cuBLAS's workspaces are dropped before and after a
    capture, so that its own is made within it, in the pool; one that was made before would be freed by torch with the
    first graph that ends, under all others (pytorch/pytorch#193402). After the first failure everything runs step by
    step, with one line in the log.
    """

    def __init__(self, device: torch.device, what: str = "local training") -> None:
        """`what`: name of the captured work, for the log."""
        self._device = device
        self._what = what
        self._pool: Any = None
        self._stream: Any = None
        self._refused = False

    def capture(self, work: Work, changed: Sequence[Tensor]) -> Work:
        """The replay of a graph, or `work` itself where none can be captured."""
        if self._refused:
            return work
        before = [tensor.clone() for tensor in changed]
        try:
            return self._captured(work)
        except RuntimeError as error:  # also torch's own errors of CUDA and of memory
            check_usable(error)
            self._refused = True
            reason = first_line(error)
            text = "%s runs step by step: it cannot be captured as a CUDA graph (%s)"
            log.warning(text, self._what, reason, extra={"note": True})
            return work
        finally:
            for tensor, old in zip(changed, before, strict=True):
                tensor.copy_(old)

    def _captured(self, work: Work) -> Work:
        with torch.cuda.device(self._device):
            if self._pool is None:
                self._pool, self._stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
            main = torch.cuda.current_stream()
            self._stream.wait_stream(main)
            graph = torch.cuda.CUDAGraph()
            try:
                # This block also leads back to the main stream where `torch.cuda.graph` fails to end its capture.
                with torch.cuda.stream(self._stream):
                    for _ in range(WARM_UP):
                        work()
                    torch._C._cuda_clearCublasWorkspaces()
                    with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                        work()
            except BaseException:
                _FAILED.append(graph)
                raise
            finally:
                torch._C._cuda_clearCublasWorkspaces()
                main.wait_stream(self._stream)
        return graph.replay


def can_capture(device: torch.device) -> bool:
    """Whether CUDA graphs exist there."""
    return device.type == "cuda" and hasattr(torch.cuda, "CUDAGraph") and torch.version.cuda is not None
