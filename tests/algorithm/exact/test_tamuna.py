"""TAMUNA: its masks, an error of its authors, wrong input; its rounds are in `test_plain_rounds.py`."""

import pytest
import torch

from fedcomp.algorithm.exact import tamuna
from fedcomp.algorithm.exact.tamuna import Masks, Tamuna
from fedcomp.random.keys import Key
from tests.algorithm.heterogeneous import D, Run, problem
from tests.conformance import world
from tests.looped import looped
from tests.parts import GD
from tests.refused import refused


@pytest.mark.thorough
def test_a_client_that_learns_of_the_mean_too_late_spoils_the_limit(monkeypatch) -> None:
    """Duals made from the model that the round began with, as the authors' Flower baseline has it at a later visit."""

    class Late(Masks):
        begun = torch.zeros(D)

        def message(self, rows):
            mean = rows.stride(0) == 0  # the answer is one row for all
            payload = super().message(Late.begun.expand_as(rows) if mean else rows)
            Late.begun = rows[0].clone() if mean else Late.begun
            return payload

    algorithm = Tamuna(GD(lr=2 / 1.02), 2, 0.265)
    assert Run(algorithm, problem(0), 4).floor(200) < 1e-2
    monkeypatch.setattr(tamuna, "Masks", Late)
    assert not Run(algorithm, problem(0), 4).floor(200) < 0.05


@looped("clients, per_entry, dim", [(7, 2, 40), (5, 5, 11), (4, 3, 7), (10, 2, 3), (3, 2, 1)])
def test_every_entry_is_sent_by_as_many_clients(clients: int, per_entry: int, dim: int) -> None:
    seen = torch.zeros(clients, dim)
    for draw in range(200):
        masks = Masks.draw(clients, per_entry, dim, Key(("masks", draw)), torch.device("cpu"))
        whole = masks.whole(dim)
        assert (whole.sum(0) == per_entry).all()
        assert torch.equal(whole.sum(1), masks.count.float())
        if per_entry * dim >= clients:
            assert int(masks.count.max() - masks.count.min()) <= per_entry
        seen += whole
    share = per_entry / clients
    assert ((seen / 200 - share).abs() < 5 * (share * (1 - share) / 200) ** 0.5 + 1e-6).all()


test_wrong_input = refused(
    [
        (lambda: Tamuna(GD(lr=0.1), p=None, smoothness=1.0), "algorithm.p=null is computed from algorithm.smoothness"),
        (lambda: Tamuna(GD(lr=0.1, steps=2)), "TAMUNA sets its own number of plain gradient steps, but client.steps=2"),
        (lambda: Tamuna(GD(lr=0.1)).check_cohort(None), "TAMUNA needs as many clients in every round: take"),
        (lambda: Tamuna(GD(lr=0.1), 2).check_cohort(1), "algorithm.sparsity=2 is above the 1 clients .* clients .2"),
        (lambda: Tamuna(GD(lr=0.1), 4).check_cohort(3), "algorithm.sparsity=4 is above the 3 clients of a round"),
        (lambda: world.simulation(Tamuna(GD(lr=0.1)), world.with_batch_norm).init(), "TAMUNA needs a model without"),
    ]
)
