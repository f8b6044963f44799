"""Checks of numbers refuse what lies outside, and say what is allowed; hints for unknown names."""

import math

import pytest

from fedcomp.core.first_line import first_line
from fedcomp.core.validate import MAX_LISTED, by_similarity, check_count, check_interval, suggest
from tests.looped import looped


@looped(
    "interval, inside, outside",
    [
        ("(0, 1]", (1e-9, 0.5, 1), (0, -1, 1.1, math.nan)),
        ("[0, 1)", (0, 0.99), (1, -0.1)),
        ("[0, 1]", (0, 1), (-1e-9, 1.01)),
        ("(0, 0.5)", (0.01,), (0, 0.5)),
        ("(0, inf)", (1e-9, 1e300), (0, math.inf, math.nan, -math.inf)),
        ("[0, inf)", (0, 5), (-1, math.inf)),
    ],
)
def test_an_interval_with_and_without_its_ends(
    interval: str, inside: tuple[float, ...], outside: tuple[float, ...]
) -> None:
    for value in inside:
        check_interval("x", value, interval)
    for value in (*outside, "0.5", True, None):
        with pytest.raises(ValueError, match="^x="):
            check_interval("x", value, interval)  # type: ignore[arg-type]


def test_what_a_refusal_says() -> None:
    check_interval("x", None, "(0, 1]", or_null=True)
    check_count("n", None, or_null=True)
    check_count("n", 0, least=0)
    for call, message in (
        (lambda: check_interval("x", 2, "(0, 1]"), "x=2 must be a number in (0, 1]"),
        (lambda: check_interval("x", 0, "(0, inf)", "a rate"), "x=0 must be a positive number: a rate"),
        (lambda: check_interval("x", -1, "[0, inf)", or_null=True), "x=-1 must be a number, 0 or more, or null"),
        (lambda: check_count("n", 1.0, 2, "sides"), "n=1.0 must be a whole number, 2 or more: sides"),
        (lambda: check_count("n", True, or_null=True), "n=True must be a whole number, 1 or more, or null"),
    ):
        with pytest.raises(ValueError, match="^[xn]=") as caught:
            call()
        assert str(caught.value) == message


def test_the_first_line_of_an_error() -> None:
    assert first_line(ValueError("\none\ntwo")) == "one"
    assert first_line(MemoryError()) == "MemoryError"


def test_the_most_similar_name_comes_first_and_is_suggested_only_if_close() -> None:
    assert suggest("pric", ["age", "price"]) == "; did you mean 'price'? (there are: price, age)"
    assert suggest("PRICE", ["age", "price"]).startswith("; did you mean 'price'?")
    assert suggest("xyz", ["b", "a"]) == " (there are: b, a)"
    assert suggest("xyz", []) == ""
    assert by_similarity("b", ["a", "b", "a"]) == ["b", "a"]


def test_a_long_list_is_cut_short() -> None:
    names = [f"column{number}" for number in range(MAX_LISTED + 3)]
    assert suggest("x", names).endswith("column19 and 3 more)")
