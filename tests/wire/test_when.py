"""Entries sent in some rounds only: all of their bits or none, and the wire agrees."""

import pytest
import torch

from fedcomp.wire import Field, Ledger, Link, Payload, WireLink
from fedcomp.wire.coding import Float, Unsigned, When


def _payload(happens: bool) -> Payload:
    first = torch.tensor(happens)
    floats = Field(torch.tensor([[1.5, -2.0, 0.0], [3.0, 4.0, 5.0]]), When(Float(), first))
    return Payload({"floats": floats, "counts": Field(torch.tensor([[7], [9]]), Unsigned(8))})


@pytest.mark.parametrize("link", [Link, WireLink])
@pytest.mark.parametrize(("happens", "bits"), [(True, 2 * (3 * 32 + 8)), (False, 2 * 8)])
def test_bits(link, happens: bool, bits: int) -> None:
    ledger = Ledger()
    received = link(ledger).up(_payload(happens))
    assert ledger.counters()["uplink"] == bits
    assert received.fields["counts"].data.tolist() == [[7], [9]]
    if happens:
        assert torch.equal(received.fields["floats"].data, _payload(True).fields["floats"].data)


def test_nothing_arrives_of_what_is_not_sent() -> None:
    received = WireLink(Ledger()).up(_payload(False))
    assert torch.equal(received.fields["floats"].data, torch.zeros(2, 3))
