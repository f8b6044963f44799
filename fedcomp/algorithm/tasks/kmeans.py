"""Distributed k-means by Lloyd's algorithm: cluster centres of data that stays with the clients.

S. Lloyd, "Least squares quantization in PCM", 1982; distributed as in D. Jhunjhunwala et al., "Leveraging spatial and
temporal correlations in sparsified mean estimation", NeurIPS 2021, appendix C. A round:

    down  the centres
    up    c_i [K], how many of its points client i finds nearest to each centre: 32 bits each, as they are
    down  their totals over the cohort, as they are
    up    (c_i / sum_j c_j) * (mean of its points of each cluster) / w_i, through the uplink's compressor

so that the weighted sum of the cohort is the paper's weighted average for every cluster. The paper counts no exchange
of the counts. Its K instances of mean estimation are one vector of K F entries here, so a codec that keeps a share of
the entries keeps it over all centres together. A cluster that nobody has a point in keeps its centre. The first centres
are K data points of clients drawn at random, sent up as they are in the first round in which somebody takes part;
nothing bounds a diverging estimate, as in the paper.

Shape legend: M clients of the cohort, A of a chunk still at work, K clusters, F features, B batch.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Models, Setup
from fedcomp.algorithm.downlinks.downlink import CompressedDownlink
from fedcomp.algorithm.updates.metrics import clients_memory, correlation, servers_memory
from fedcomp.client import LocalData
from fedcomp.compressor import Compressor, Memory
from fedcomp.core.cohort import Cohort
from fedcomp.core.ranges import Whole
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Float, Unsigned

COUNT_WIDTH = 32


@dataclass(frozen=True)
class KMeansState:
    """What lives from round to round.

    Attributes:
        theta: [K F] the centres. started: [1] int64, 1 once the first centres have been picked.
        uplink, downlink: memories of the compressors, one row a client and one for the server.
    """

    theta: Tensor
    started: Tensor
    uplink: Memory
    downlink: Memory


@dataclass(frozen=True)
class LocalClusters:
    """What a client finds among its points.

    Attributes:
        counts: [M, K] int64 points nearest to each centre. sums: [M, K F] float32 their sums.
        distance: [M] sum over all points of the squared distance to the nearest centre.
    """

    counts: Tensor
    sums: Tensor
    distance: Tensor


@dataclass(frozen=True)
class KMeans(Algorithm):
    """Assign points to the nearest centre, move every centre to the mean of its points.

    Attributes:
        uplink: carries each client's share of the new centres. downlink: carries the centres, or their step, back.
    """

    uplink: Compressor
    downlink: Compressor
    batch_size: Annotated[int, Whole()] = 64

    learns = "centres"
    weights = "uniform"
    several_uplinks = True

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> KMeansState:
        """No centres yet, and empty memories."""
        started = torch.zeros(1, dtype=torch.int64, device=theta.device)
        return KMeansState(theta, started, self.uplink.init(setup.num_clients, theta), self.downlink.init(1, theta))

    def round(self, state: KMeansState, cohort: Cohort, ctx: Context) -> tuple[KMeansState, Metrics]:
        """One step of Lloyd's algorithm; `train/objective` is the cohort's, with the centres that the round began with.

        `vectors/correlation` is R2/R1 of what the clients have to send.
        """
        num_clusters = len(ctx.clients.layers)
        first = state.started[0] == 0
        old = torch.where(first, self._first_centres(first, num_clusters, cohort, ctx), state.theta)
        down = CompressedDownlink.of(self.downlink)
        centres, stats, downlink = down.send_model(old, old.new_zeros(0), state.downlink, cohort, ctx)
        local = ctx.clients.map_clients(
            self._assign, cohort, centres.view(1, num_clusters, -1).expand(cohort.size, -1, -1)
        )

        totals = _exchange(local.counts, cohort, ctx)
        shares = local.sums.view(cohort.size, num_clusters, -1) / totals.clamp(min=1)[:, None]
        x = (shares / cohort.weight[:, None, None]).flatten(1)
        mean, uplink = ctx.send_up("centres", self.uplink, x, state.uplink, cohort)

        new = torch.where(totals[:, None] > 0, mean.view(num_clusters, -1), old.view(num_clusters, -1)).flatten()
        theta, _, downlink = down.send_change(old, new, stats, downlink, cohort, ctx)
        metrics = {
            "train/objective": local.distance.sum() / local.counts.sum(),
            "vectors/correlation": correlation(x, cohort.weight),
            **clients_memory(uplink, cohort, x),
            **servers_memory(downlink, new - old),
        }
        return KMeansState(theta, torch.ones_like(state.started), uplink, downlink), metrics

    def evaluation_models(self, state: KMeansState, key: Key) -> dict[str, Models]:
        return {"test": Models(state.theta[None], state.theta.new_zeros(1, 0))}

    def _first_centres(self, first: Tensor, num_clusters: int, cohort: Cohort, ctx: Context) -> Tensor:
        """[K F] points of clients drawn without replacement (in turn, where there are fewer than K), if `first`."""
        key = ctx.key.fold_in("first centres")
        order, place = np.random.default_rng(key.seed).permutation(cohort.size), np.arange(num_clusters)
        rows = order[place % cohort.size]  # drawn on the host, which must know who is asked
        ids = cohort.ids.index_select(0, torch.from_numpy(rows).to(cohort.ids.device, non_blocking=True))
        chosen = Cohort(ids, torch.ones_like(ids, dtype=torch.float32), tuple(cohort.clients[row] for row in rows))
        turn = torch.from_numpy(place // cohort.size).to(ids.device, non_blocking=True)

        def pick(data: LocalData, turn: Tensor) -> Tensor:
            held = data.num_samples
            positions = (((key.bits(data.ids, 1)[:, 0] * held) >> 32) + turn) % held
            return data.take(positions[:, None])[0].flatten(1)

        points = ctx.clients.map_clients(pick, chosen, turn)
        received = ctx.link.up(Payload({"points": _sent_if(first, points)}), chosen)
        centres = received.fields["points"].data.flatten()
        if self.downlink.codec.near_lossless:
            return centres
        payload = Payload({"centres": _sent_if(first, centres[None])})
        return ctx.link.broadcast(payload, ctx.everyone).fields["centres"].data[0]

    def _assign(self, data: LocalData, centres: Tensor) -> LocalClusters:
        """Each client's points by nearest centre, given rows of centres [M, K, F]."""
        sums, distance = torch.zeros_like(centres), centres.new_zeros(len(centres))
        counts = torch.zeros(centres.shape[:2], dtype=torch.int64, device=centres.device)
        clusters = torch.arange(centres.shape[1], device=centres.device)
        for x, _, weight in data.samples(self.batch_size):
            points, active = x.flatten(2), len(x)
            distances = torch.cdist(points, centres[:active], compute_mode="use_mm_for_euclid_dist")
            nearest = distances.min(2)
            mine = nearest.indices[:, :, None] == clusters  # [A, B, K]
            squares = nearest.values.square()
            if weight is not None:
                mine, squares = mine & (weight[:, :, None] > 0), squares * weight
            counts[:active] += mine.sum(1)
            sums[:active] += torch.bmm(mine.transpose(1, 2).to(points.dtype), points)
            distance[:active] += squares.sum(1)
        return LocalClusters(counts, sums.flatten(1), distance)


def _sent_if(happens: Tensor, data: Tensor) -> Field:
    """Rows that are sent if `happens` (0-d bool, which both ends know from the rounds so far), else not a bit."""
    count = (happens * data.shape[1]).expand(len(data))
    return Field(torch.where(happens, data, 0.0), Float(), count, count_known=True)


def _exchange(counts: Tensor, cohort: Cohort, ctx: Context) -> Tensor:
    """[K] int64 points in each cluster, summed by the server from counts [M, K] and sent to the cohort."""
    up = ctx.link.up(Payload({"counts": Field(counts, Unsigned(COUNT_WIDTH))}, paper_bits=0))
    totals = up.fields["counts"].data.sum(0, keepdim=True)
    down = ctx.link.broadcast(Payload({"totals": Field(totals, Unsigned(COUNT_WIDTH))}, paper_bits=0), cohort)
    return down.fields["totals"].data[0]
