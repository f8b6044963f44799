"""The Rice code of gaps is the one whose worst case is best, and its worst case happens."""

from itertools import product

import torch

from fedcomp.wire.coding import Rice


def test_the_worst_case_is_the_longest_of_all_messages() -> None:
    for span in (1, 5, 8):
        for num in range(1, min(span, 4) + 1):
            gaps = [row for row in product(range(span), repeat=num) if sum(row) <= span - num]
            for parameter in range(4):
                bits = Rice(parameter).bits(torch.tensor(gaps))
                assert int(bits.max()) == Rice(parameter).worst_case(num, span)


def test_the_parameter_has_the_best_worst_case() -> None:
    for num, span in ((1, 1), (1, 100), (30, 1000), (500, 1000), (1000, 1000), (58_000, 1_933_258)):
        best = Rice.for_gaps(num, span)
        assert best.span == span
        cases = [Rice(parameter).worst_case(num, span) for parameter in range(24)]
        assert cases[best.parameter] == min(cases)
