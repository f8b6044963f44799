"""The k largest entries of every row, the same ones on every device. Shape legend: M rows, D entries, k chosen."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def stable_topk(size: Tensor, k: int) -> Tensor:
    """Places [M, k], ascending, of the k largest of size [M, D]; of equal ones the first by place.

    Which of equal entries `torch.topk` takes is up to its kernel. So k + 1 are asked for: the least of them lie at the
    threshold, and are replaced by the first that lie there, but for one too many. On a CPU this is looked up only in
    rows that have several there; on a GPU all rows are, since finding them would synchronise.
    """
    num_rows, dim = size.shape
    if k == dim:
        return torch.arange(dim, device=size.device).expand(num_rows, -1).contiguous()
    values, places = size.topk(k + 1, dim=1, sorted=False)
    threshold = values.amin(1, keepdim=True)
    least = values == threshold
    nth = least.cumsum(1, dtype=torch.int32)
    rows = np.flatnonzero(nth[:, -1].numpy() > 1) if size.device.type == "cpu" else slice(None)
    first = torch.searchsorted((size[rows] == threshold[rows]).cumsum(1, dtype=torch.int32), nth[rows])
    places[rows] = torch.where(least[rows], first, places[rows])
    return places.masked_fill_(least & (nth == nth[:, -1:]), dim).sort(dim=1).values[:, :k].contiguous()
