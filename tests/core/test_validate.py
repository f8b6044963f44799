"""Hints for unknown names: the most similar known name comes first."""

from fedcomp.core.validate import MAX_LISTED, by_similarity, suggest


def test_the_most_similar_name_comes_first_and_is_suggested_only_if_close() -> None:
    assert suggest("pric", ["age", "price"]) == "; did you mean 'price'? (there are: price, age)"
    assert suggest("PRICE", ["age", "price"]).startswith("; did you mean 'price'?")
    assert suggest("xyz", ["b", "a"]) == " (there are: b, a)"
    assert suggest("xyz", []) == ""
    assert by_similarity("b", ["a", "b", "a"]) == ["b", "a"]


def test_a_long_list_is_cut_short() -> None:
    names = [f"column{number}" for number in range(MAX_LISTED + 3)]
    assert suggest("x", names).endswith("column19 and 3 more)")
