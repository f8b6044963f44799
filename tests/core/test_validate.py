"""Numbers and options outside of what is allowed are refused, by the name that users give; hints for unknown names."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from fedcomp.core.first_line import first_line
from fedcomp.core.ranges import CheckedOptions, Whole, Within, checked, field_types
from fedcomp.core.validate import MAX_LISTED, by_similarity, check_count, check_interval, did_you_mean, suggest
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
        (lambda: check_interval("x", "many", "[-inf, inf]"), "x=many must be a number"),
        (lambda: check_count("n", 0.5, -math.inf), "n=0.5 must be a whole number"),
        (lambda: check_count("n", True, or_null=True), "n=true must be a whole number, 1 or more, or null"),
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
    assert did_you_mean("mse", ["rand_k/mse", "mask"]) == "; did you mean 'rand_k/mse'?"
    assert suggest("xyz", ["b", "a"]) == " (there are: b, a)"
    assert suggest("xyz", []) == ""
    assert by_similarity("b", ["a", "b", "a"]) == ["b", "a"]


def test_a_long_list_is_cut_short() -> None:
    names = [f"column{number}" for number in range(MAX_LISTED + 3)]
    assert suggest("x", names).endswith("column19 and 3 more)")


Share = Annotated[float | None, Within("(0, 1]", "a share")]


@dataclass(frozen=True)
class _Part(CheckedOptions):
    scale: Literal["mean", "fixed"] = "mean"
    share: Share = 0.5
    rate: Annotated[float, Within("(0, inf)")] | None = None
    alpha: Literal["mean"] | Annotated[float, Within("(0, inf)", "a step")] = "mean"
    bits: Annotated[Literal[8, 16], "a width"] = 8
    rows: Annotated[int, Whole(2, "rows", most=9)] = 5
    free: float = 1.0
    prefix = "part."


@dataclass(frozen=True)
class _Special(_Part):
    places: Literal["auto"] | None = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()


ALLOWED = [
    *({"scale": "fixed"}, {"share": 1}, {"share": None}, {"rate": 3.0}, {"rate": None}, {"alpha": 0.1}),
    *({"bits": 16}, {"rows": 2}, {"rows": 9}, {"free": -1.0}, {"places": None}),
]
REFUSED = [
    ({"scale": "max"}, "part.scale=max must be one of mean, fixed"),
    ({"scale": None}, "part.scale=null must be one of mean, fixed"),
    ({"share": 0}, "part.share=0 must be a number in (0, 1], or null: a share"),
    ({"rate": 0}, "part.rate=0 must be a positive number, or null"),
    ({"alpha": 0}, "part.alpha=0 must be mean, or a positive number: a step"),
    ({"alpha": "max"}, "part.alpha=max must be mean, or a positive number: a step"),
    ({"alpha": None}, "part.alpha=null must be mean, or a positive number: a step"),
    ({"bits": 9}, "part.bits=9 must be one of 8, 16: a width"),
    ({"bits": True}, "part.bits=true must be one of 8, 16: a width"),
    ({"free": "many"}, "part.free=many must be a number"),
    ({"rows": 1}, "part.rows=1 must be a whole number from 2 to 9: rows"),
    ({"rows": 10}, "part.rows=10 must be a whole number from 2 to 9: rows"),
    ({"places": "index"}, "part.places=index must be one of auto, or null"),
]


@looped("options", ALLOWED)
def test_what_a_type_declares_is_allowed(options: dict[str, Any]) -> None:
    _Special(**options)


@looped("options, message", REFUSED)
def test_anything_else_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r"^part\.") as caught:
        _Special(**options)
    assert str(caught.value) == message


def test_a_field_that_a_subclass_declares_anew_is_its_own() -> None:
    @dataclass(frozen=True)
    class Wider(_Part):
        rows: Annotated[int, Whole(0)] = 0

    assert Wider(rows=100).rows == 100
    with pytest.raises(ValueError, match=r"^part.share=2 "):
        Wider(share=2)


def test_types_are_read_where_they_stand() -> None:
    assert field_types(_Special)["share"] == float | None
    assert field_types(_Special, declarations=True)["share"] == Share


@checked("dataset.")
def _load(num: Annotated[int, Whole(meaning="samples")], kind: Literal["a", "b"] = "a") -> str:
    return f"{num} {kind}"


def test_a_functions_arguments_are_checked_by_position_and_by_name() -> None:
    assert _load(3) == "3 a"
    with pytest.raises(ValueError, match=r"^dataset.num=0 must be a whole number, 1 or more: samples$"):
        _load(0)
    with pytest.raises(ValueError, match=r"^dataset.kind=c must be one of a, b$"):
        _load(num=1, kind="c")


def test_a_declared_range_that_cannot_be_read_is_said_and_not_left_out() -> None:
    @dataclass(frozen=True)
    class Unread(CheckedOptions):
        share: 'Annotated[float, Within("(0, 1]")] | OnlyForTypeCheckers' = 2.0  # noqa: F821

    with pytest.raises(TypeError, match="the type of share in .* cannot be read .*OnlyForTypeCheckers.* at the top"):
        Unread()
