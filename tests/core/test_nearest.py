"""The names there are, the most alike first."""

from fedcomp.core.nearest import SHOWN, by_likeness, near


def test_the_most_alike_comes_first_and_is_asked_for_only_if_close() -> None:
    assert near("pric", ["age", "price"]) == "; did you mean 'price'? (there are: price, age)"
    assert near("PRICE", ["age", "price"]).startswith("; did you mean 'price'?")
    assert near("xyz", ["b", "a"]) == " (there are: b, a)"
    assert near("xyz", []) == ""
    assert by_likeness("b", ["a", "b", "a"]) == ["b", "a"]


def test_a_long_list_is_cut_short() -> None:
    names = [f"column{number}" for number in range(SHOWN + 3)]
    assert near("x", names).endswith("column19 and 3 more)")
