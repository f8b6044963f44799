"""Tables as people have them: text as categories, missing values, compressed files and Parquet."""

import gzip
import logging
import sys

import pytest

from fedcomp.dataset.check import check
from fedcomp.dataset.tables import csv
from tests.looped import looped
from tests.refused import one_line_error

TABLE = """age,city,smoker,price
20,Ulm,no,1
NA,Bonn,yes,2
40,,no,3
60,Ulm,no,
30,Köln,no,5
"""


def load(folder, text=TABLE, **options):
    (folder / "t.csv").write_text(text)
    given = {"path": "t.csv", "target": "price", "root": str(folder), "test_fraction": 0, "scaling": "none"}
    return csv.load(**(given | {"features": "auto", "target_scaling": "none"} | options))


def test_numbers_as_they_are_and_an_indicator_of_each_text(tmp_path):
    dataset = load(tmp_path, "age,city,price\n20,Ulm,1\n30,Bonn,2\n40,Ulm,3\n")
    check(dataset)
    assert dataset.train.x.tolist() == [[20, 0, 1], [30, 1, 0], [40, 0, 1]]  # age, city=Bonn, city=Ulm
    listed = load(tmp_path, "age,city,price\n20,Ulm,1\n30,Bonn,2\n40,Ulm,3\n", features=["city=*", "age=*"])
    assert listed.train.x.tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 1, 0], [0, 1, 0, 0, 1]]


def test_columns_that_are_left_out(tmp_path):
    text = "id,age,price\na,20,1\nb,30,2\n"
    for features in ("auto", None):
        assert load(tmp_path, text, features=features, exclude=["id"]).train.x.tolist() == [[20], [30]]
    for options, line in (
        ({"exclude": ["ids"]}, "dataset.exclude names column 'ids', but .* did you mean 'id'"),
        ({"exclude": "id"}, r"dataset.exclude=id must be a list such as \[id\]"),
        ({"exclude": ["id"], "features": ["age"]}, r"dataset.exclude=\['id'\] is for dataset.features=auto or null"),
    ):
        with pytest.raises(ValueError, match=line):
            load(tmp_path, text, **options)


def test_rows_with_missing_values_are_dropped_and_said(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "fedcomp"):
        dataset = load(tmp_path, missing="drop")
    assert dataset.train.x.tolist() == [[20, 0, 1, 1], [30, 1, 0, 1]]  # age, city=Köln, city=Ulm, smoker=no
    assert dataset.train.y.tolist() == [[1], [5]]
    assert caplog.messages == ["t.csv: 3 of 5 rows with a missing value are left out (dataset.missing=drop)"]
    assert caplog.records[0].note
    assert len(load(tmp_path, missing="drop", features=["city=Ulm"]).train) == 3, "only columns that are used count"


def test_missing_values_are_imputed_and_said(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "fedcomp"):
        dataset = load(tmp_path, missing="impute")
    age, ulm = dataset.train.x[:, 0].tolist(), dataset.train.x[:, 3].tolist()
    assert (age, ulm) == ([20, 30, 40, 30], [1, 0, 0, 0])
    assert dataset.train.x[2, 1:4].tolist() == [0, 0, 0], "a city that is missing is none of them"
    assert caplog.messages == [
        "t.csv: 1 of 5 rows without a target or owner are left out; missing values of age (1), city (1) are the "
        "training rows' mean, or of a text none of its categories (dataset.missing=impute)"
    ]


def test_a_category_that_only_the_test_rows_have(tmp_path):
    """Under auto its indicator is 0 in training; a feature that is named stays refused."""
    text = "age,city,price\n" + "".join(f"{age},{'Ulm' if age else 'Bonn'},1\n" for age in range(8))
    for seed in range(20):
        dataset = load(tmp_path, text, scaling="z_score", test_fraction=0.2, split_seed=seed)
        check(dataset)
        if len(dataset.train.x[:, 1].unique()) == 1:
            break
    assert dataset.train.x[:, 1].unique().tolist() == [0]
    assert sorted(dataset.test.x[:, 1].tolist()) == [0, 1]
    with pytest.raises(ValueError, match="city=Bonn is 0 in every training row and cannot be scaled"):
        load(tmp_path, text, scaling="z_score", test_fraction=0.2, split_seed=seed, features=["city=Bonn"])


@looped(
    "text, line",
    [
        ("when,price\n2024-01-31,1\n2024-02-01,2\n", r"'when' holds dates such as '2024-01-31', .*dataset.exclude=\[w"),
        ("when,price\n31.1.2024 12:00,1\n1.2.2024,2\n", "'when' holds dates"),
        ("when,price\n12:30,1\n,2\n", "'when' holds dates"),
        ("a,price\n,1\nNA,2\n", "column 'a' has no value in any row"),
        ("a,price\nx,1\n,2\n", r"line 3, column 'a' \(dataset.features\) names no value \(''\): .*missing=drop or imp"),
        ("a,price\n1,1\n?,2\n", r"line 3, column 'a': '\?' is no number; repair it, or take dataset.missing=drop or i"),
        ("a,price\n1,1\nnan,2\n", "nan is not finite; repair or drop that row, or take dataset.missing=drop or imp"),
        (
            "who,price\n" + "".join(f"name{row},1\n" for row in range(12)),
            r"'who' holds 12 different texts in 12 rows, such as 'name0': no categories but names, .*exclude=\[who\]",
        ),
        (
            "a,price\n" + "".join(f"{row},1\n" for row in range(12)) + "1O,2\n",
            r"'a' holds 13 different texts in 13 rows, such as '1O'",
        ),
    ],
)
def test_what_auto_refuses(tmp_path, text, line):
    with one_line_error(line):
        load(tmp_path, text)


def test_no_row_is_complete_and_no_value_to_impute_from(tmp_path):
    with pytest.raises(ValueError, match=r"has no row with a value in each of price, a, b: leave out"):
        load(tmp_path, "a,b,price\n1,,1\n,2,2\n", missing="drop")
    with pytest.raises(ValueError, match="a has no value in any training row"):
        load(tmp_path, "a,b,price\nNA,1,1\nNA,2,2\n", missing="impute", features=["a", "b"])
    with pytest.raises(ValueError, match="dataset.missing=skip must be one of refuse, drop, impute"):
        load(tmp_path, missing="skip")


def test_a_row_without_an_owner_is_dropped(tmp_path):
    text = "a,who,price\n1,ann,1\n2,,2\n3,bob,3\n"
    for missing in ("drop", "impute"):
        dataset = load(tmp_path, text, owner="who", missing=missing)
        assert (dataset.train.owner.tolist(), dataset.train.x.tolist()) == ([0, 1], [[1], [3]])


def test_a_compressed_file(tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(TABLE.replace(",", ";").encode()))
    plain = load(tmp_path, missing="drop")
    packed = load(tmp_path, path="t.csv.gz", missing="drop", delimiter="auto")
    assert packed.train.x.tolist() == plain.train.x.tolist()
    for broken in (b"no gzip", gzip.compress(TABLE.encode())[:-9]):
        (tmp_path / "b.csv.gz").write_bytes(broken)
        with pytest.raises(ValueError, match=r"b.csv.gz is no CSV file in UTF-8 \(.*\): save it as one"):
            load(tmp_path, path="b.csv.gz")


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"t.parquet is a Parquet file, which pyarrow reads: pip install pyarrow, or"):
        load(tmp_path, path="t.parquet")


def test_parquet_is_read_as_the_same_table_in_csv(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {
        "age": pyarrow.array([20, None, 40, 60, 30]),
        "city": pyarrow.array(["Ulm", "Bonn", None, "Ulm", "Köln"]).dictionary_encode(),
        "smoker": pyarrow.array([False, True, False, False, False]),
        "price": pyarrow.array([1.0, 2.0, 3.0, None, 5.0]),
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    for missing in ("drop", "impute"):
        plain, read = (load(tmp_path, path=path, missing=missing) for path in ("t.csv", "t.parquet"))
        assert read.train.x.tolist() == plain.train.x.tolist()
        assert read.train.y.tolist() == plain.train.y.tolist()
    says = r"t.parquet, row 4, column 'price' \(dataset.target\): .* take dataset.missing=drop"
    with pytest.raises(ValueError, match=says):
        load(tmp_path, path="t.parquet")
    parquet.write_table(pyarrow.table({"price": [1.0], "a": [[1, 2]]}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"t.parquet: column 'a' holds list<.*but must hold numbers or text"):
        load(tmp_path, path="t.parquet")
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"t.parquet cannot be read as a Parquet file"):
        load(tmp_path, path="t.parquet")
