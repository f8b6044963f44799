"""Client i holds sample i."""

import pytest

from fedcomp.partition.one_each import OneEach
from fedcomp.random.keys import Key


def test_in_order() -> None:
    parts = OneEach().split(None, 4, 4, Key(("x",)))
    assert [part.tolist() for part in parts] == [[0], [1], [2], [3]]


def test_another_number_of_clients_is_refused() -> None:
    with pytest.raises(ValueError, match="set num_clients=5, or take partition=iid"):
        OneEach().split(None, 5, 4, Key(("x",)))
