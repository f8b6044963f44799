"""DeltaMask: masks over frozen weights are trained as in FedPM, and clients send where theirs differ from the server's.

V. Tsouvalas, Y. Asano, A. Saeed, "Federated fine-tuning of foundation models via probabilistic masking", IEEE Big Data
2024 (arXiv:2311.17299). Server and client k draw one reference mask m_g ~ Bernoulli(theta_g) from a shared key. The
client trains theta_k from theta_g (masks/training.py) and draws m_k. Of the flips (places where m_k differs from m_g)
it sends the ceil(kappa |flips|) of largest KL(theta_k || theta_g), in a binary fuse filter (fuse_filter.py). The server
flips m_g wherever the filter says so, and FedPM's Beta posterior makes theta_g of the masks.

Decided here (the paper's text was not at hand beyond its abstract):
    draw: coupled     m_k and m_g are made of the same uniform numbers, so that P(flip) = |theta_k - theta_g|, with the
                      law of m_k as before; independent draws flip a third of uniform theta where nothing was learnt
    reference: client a client's own uniform numbers; one m_g for all with coupled draws would make all masks alike
    coding: filter    with false positives at 2^-f, which pull theta to 1/2; `places` (Golomb-Rice gaps) and
                      `arithmetic` carry the same flips without error, and in fewer bits where more than half a
                      percent of the entries flip; `auto` sends each client's flips in a filter or as places, whichever
                      is shorter (places if they are equally long, since they are exact), after one bit that says which
Flips that kappa leaves out keep m_g: the mean moves by less than it was trained to. kappa falls from round to round by
a cosine to kappa_final. The paper puts the filter's bytes into a grey image (PNG), which saves what empty cells take,
4 to 12 %; that is left out.

Shape legend: M clients of the cohort, d masked parameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context, Metrics, Setup
from fedcomp.algorithm.masks.probabilities import MaskProbabilities, MaskState, mean_entropy
from fedcomp.algorithm.masks.training import masked_part
from fedcomp.client.solver import learning_rate_factor
from fedcomp.compressor.fuse_filter import Arity, Fingerprint, FuseFilter
from fedcomp.compressor.sparsifiers.sparse_indices import places_field, read_places
from fedcomp.core.cohort import Cohort
from fedcomp.core.ranges import Whole, Within
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Arithmetic, Shortest, Unsigned, bits_for
from fedcomp.wire.payload import CountFrom

KEPT = 1e-6
"""How far probabilities stay from 0 and 1 in the divergence that flips are ranked by."""

Share = Annotated[float, Within("(0, 1]", "the share of a client's flips that it sends")]


@dataclass(frozen=True)
class DeltaMask(MaskProbabilities):
    """Flips of a reference mask up, probabilities down.

    Attributes:
        client to test_samples: see `MaskProbabilities`. fingerprint, arity: of the filter, see `FuseFilter`.
        reset_every: None: rounds between resets are as many as it takes all clients to come, ceil(N / M).
    """

    kappa: Share = 0.8
    kappa_final: Share = 0.8
    schedule: Literal["constant", "cosine"] = "cosine"
    draw: Literal["coupled", "independent"] = "coupled"
    reference: Literal["client", "shared"] = "client"
    coding: Literal["filter", "places", "arithmetic", "auto"] = "filter"
    fingerprint: Fingerprint = 8
    arity: Arity = 4
    reset_every: Annotated[int | None, Whole(0, "a number of rounds; 0 for never")] = None
    weights: Literal["uniform"] = "uniform"

    normalises_weights = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.draw == "coupled" and self.reference == "shared":
            raise ValueError(
                "algorithm.draw=coupled with algorithm.reference=shared makes all clients' masks alike, so that theta "
                "becomes the drawn mask: take algorithm.reference=client, or algorithm.draw=independent"
            )

    @property
    def filter(self) -> FuseFilter:
        """The filter."""
        return FuseFilter(self.fingerprint, self.arity)

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> MaskState:
        """Frozen weights and first probabilities, both from the run's seed. Raises ValueError: nothing to mask."""
        part = masked_part(setup.tensors, "deltamask")
        if part.size >= 1 << 32:
            raise ValueError(f"algorithm=deltamask counts flips in 32 bits, too few for {part.size} masked weights")
        return self.first_state(theta, stats, part, setup)

    def round(self, state: MaskState, cohort: Cohort, ctx: Context) -> tuple[MaskState, Metrics]:
        """One round.

        Metrics, one value a client: `delta/flips` and `delta/sent`, flips and those sent as shares of d; `delta/false`
        share of false ones among the flips that the server finds; `delta/kl_sent`, `delta/kl_dropped` mean divergence;
        with a filter `delta/tries`. `mask/entropy`: theta's mean entropy in bits.
        """
        part = masked_part(ctx.clients.tensors, "deltamask")
        received = self.send_down(state, part, cohort, ctx)
        local, stats = self.train_masks(received.weights, received.theta[None], received.stats, part, cohort, ctx)
        before, theta = part.take(received.theta), part.take(local.value)
        shared = cohort.ids if self.reference == "client" else torch.zeros_like(cohort.ids)
        draws = ctx.key.fold_in("reference").uniform(shared, part.size)
        reference = draws < before
        own = draws if self.draw == "coupled" else ctx.sender_key("mask").uniform(cohort.ids, part.size)
        flips = (own < theta) != reference
        divergence = kl(theta, before)
        sent = largest(flips, divergence, self.share(ctx))
        found, more = self._send_up(sent, cohort, ctx)
        masks = reference ^ found
        gathered = replace(self.gather_rest(received, local, part, cohort, ctx), stats=stats)

        every = -(-ctx.clients.num_clients // cohort.size) if self.reset_every is None else self.reset_every
        keeps = bool(every == 0 or ctx.round % every)  # else the posterior is reset
        sums = torch.mv(masks.t().to(torch.float32), torch.ones_like(cohort.weight))
        after = self.count_masks(gathered, sums, part, cohort.size, keeps)
        metrics = {
            "train/loss": local.loss,
            "delta/flips": flips.to(torch.float32).mean(1),
            "delta/sent": sent.to(torch.float32).mean(1),
            "delta/false": (found & ~sent).sum(1) / found.sum(1).clamp(min=1),
            "delta/kl_sent": (divergence * sent).sum(1) / sent.sum(1).clamp(min=1),
            "delta/kl_dropped": (divergence * (flips & ~sent)).sum(1) / (flips & ~sent).sum(1).clamp(min=1),
            "mask/entropy": mean_entropy(part.take(after.theta)),
            **more,
        }
        return after, metrics

    def share(self, ctx: Context) -> float:
        """kappa of this round."""
        if self.schedule == "constant":
            return self.kappa
        return self.kappa * learning_rate_factor("cosine", self.kappa_final / self.kappa, ctx.progress)

    def _send_up(self, sent: Tensor, cohort: Cohort, ctx: Context) -> tuple[Tensor, Metrics]:
        """[M, d] bool the flips as the server finds them, from those that are sent [M, d] bool."""
        dim = sent.shape[1]
        if self.coding == "arithmetic":
            coding = Shortest((Unsigned(1), Arithmetic()))
            (bits,) = ctx.link.up(Payload({"flips": Field(sent.to(torch.uint8), coding)})).expect(flips=dim)
            return bits > 0, {}
        if self.coding == "places":
            return read_places(ctx.link.up(Payload({"gaps": places_field(sent)})).fields["gaps"], dim), {}
        key = ctx.key.fold_in("filter")
        if self.coding == "filter":
            received = ctx.link.up(self.filter.encode(sent, cohort.ids, key))
            return self.filter.decode(received, cohort.ids, key, dim), _tries(received)
        return self.read_shorter(ctx.link.up(shorter(sent, self.filter, cohort.ids, key)), cohort.ids, key, dim)

    def read_shorter(self, received: Payload, ids: Tensor, key: Key, dim: int) -> tuple[Tensor, Metrics]:
        """[M, d] bool the flips that messages of `shorter` hold, and their `delta/tries`: 0 without a filter."""
        found, fields = read_places(received.fields["gaps"], dim), received.fields
        if not fields["filter"].data.any():
            return found, {"delta/tries": torch.zeros(len(found), device=found.device)}
        filters = Payload({name: fields[name] for name in ("keys", "tries", "cells")})
        return found | self.filter.decode(filters, ids, key, dim), _tries(received)


def shorter(sent: Tensor, fuse: FuseFilter, ids: Tensor, key: Key) -> Payload:
    """Flips [M, d] of each row in a filter or as places, whichever is shorter, after a bit: 1 for a filter.

    A filter of n flips has 40 + f A(n) bits; places have ceil(log2(d + 1)) bits for n, and their shortest Rice code.
    """
    num, dim = sent.sum(1), sent.shape[1]
    filter_bits = torch.tensor([fuse.bits(one) for one in num.tolist()], device=sent.device)
    by_filter = filter_bits < places_field(sent).bits
    filters = fuse.encode(sent & by_filter[:, None], ids, key).fields
    places = places_field(sent & ~by_filter[:, None])
    assert places.count is not None
    number = Field(places.count[:, None], Unsigned(bits_for(dim + 1), dim + 1))
    return Payload(
        {
            "filter": Field(by_filter[:, None].to(torch.uint8), Unsigned(1)),
            "keys": _known(filters["keys"], by_filter, _num_filters),
            "tries": _known(filters["tries"], by_filter, _num_filters),
            "cells": filters["cells"],
            "flips": _known(number, ~by_filter, lambda row: 1 - _num_filters(row)),
            "gaps": _known(places, places.count, lambda row: int(row["flips"].sum())),
        }
    )


def _known(one: Field, count: Tensor, count_from: CountFrom) -> Field:
    """The field with `count` [M] entries a row, which follow from the fields before it."""
    return replace(one, count=count.long(), count_known=True, count_from=count_from)


def _num_filters(row: Mapping[str, Tensor]) -> int:
    return int(row["filter"])


def _tries(received: Payload) -> Metrics:
    return {"delta/tries": received.fields["tries"].data[:, 0].to(torch.float32)}


def kl(p: Tensor, q: Tensor) -> Tensor:
    """Divergence of Bernoulli(p) from Bernoulli(q) in nats, float64, of p [M, d] and q [d]."""
    p, q = p.double().clamp(KEPT, 1 - KEPT), q.double().clamp(KEPT, 1 - KEPT)
    return p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()


def largest(flips: Tensor, divergence: Tensor, share: float) -> Tensor:
    """[M, d] bool: of each row's flips the ceil(share of them) of largest divergence, equal ones in order of place."""
    if share == 1:
        return flips
    num = (share * flips.sum(1, keepdim=True).double() - 1e-9).ceil()
    order = torch.where(flips, divergence, -1.0).argsort(dim=1, descending=True, stable=True)
    chosen = torch.arange(flips.shape[1], device=flips.device) < num
    return torch.zeros_like(flips).scatter_(1, order, chosen)
