"""CSV files: exact small tables, the FedAvg-SVRG reconstruction, and every error with its place."""

import pytest
import torch

from fedcomp.dataset.check import check
from fedcomp.dataset.tables import csv
from tests.bare import DATA
from tests.looped import looped
from tests.refused import one_line_error

TABLE = """age,sex,bmi,kind
20,male,10,b
30,female,30,a
60,male,20,c
40,female,15,a
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "table.csv").write_text(TABLE)
    return str(tmp_path)


def load(folder, **options):
    given = {"path": "table.csv", "target": "bmi", "features": ["age", "sex=male"], "root": folder, "test_fraction": 0}
    return csv.load(**(given | options))


def test_numbers_and_indicators_min_max_scaled(folder):
    dataset = load(folder)
    check(dataset)
    assert dataset.normalise(dataset.train.x).tolist() == [[0, 1], [0.25, 0], [1, 1], [0.5, 0]]
    assert dataset.train.y.tolist() == [[0], [1], [0.5], [0.25]]
    assert (dataset.task, dataset.num_outputs, dataset.input_shape) == ("regression", 1, (2,))
    assert dataset.test is dataset.train, "no rows are held out"


def test_large_numbers_keep_their_last_digits(tmp_path):
    (tmp_path / "table.csv").write_text("age,bmi\n1700000000,1\n1700000001,2\n1700000004,3\n")
    dataset = load(str(tmp_path), features=["age"])
    assert dataset.normalise(dataset.train.x).tolist() == [[0], [0.25], [1]]


def test_z_scores_and_raw(folder):
    dataset = load(folder, scaling="z_score", target_scaling="none", rows=3)
    inputs = dataset.normalise(dataset.train.x)
    torch.testing.assert_close(inputs.mean(0), torch.zeros(2), atol=1e-6, rtol=0)
    torch.testing.assert_close(inputs.std(0, correction=0), torch.ones(2))
    assert dataset.train.y.tolist() == [[10], [30], [20]]


def test_classes_are_the_targets_values_in_order(folder):
    dataset = load(folder, target="kind", task="classification", features=["age", "bmi"], many_classes=True)
    check(dataset)
    assert dataset.class_names == ("a", "b", "c")
    assert dataset.train.y.tolist() == [1, 0, 2, 0]
    ages = load(folder, target="age", task="classification", features=["bmi"], many_classes=True)
    assert ages.class_names == ("20", "30", "40", "60")


def test_held_out_rows_and_statistics_of_the_others(folder):
    dataset = load(folder, test_fraction=0.25)
    assert (len(dataset.train), len(dataset.test)) == (3, 1)
    raw = load(folder, test_fraction=0.25, scaling="none")
    assert sorted(torch.cat([raw.train.x, raw.test.x])[:, 0].tolist()) == [20, 30, 40, 60]
    low, high = raw.train.x.min(0).values, raw.train.x.max(0).values
    torch.testing.assert_close(dataset.test.x, (raw.test.x - low) / (high - low))
    inputs = dataset.normalise(dataset.train.x)[:, 0]
    assert (float(inputs.min()), float(inputs.max())) == (0, 1)


def test_features_default_to_all_other_columns(folder):
    with pytest.raises(ValueError, match=r"table.csv, line 2, column 'sex': 'male' is no number; .*'sex=male'"):
        load(folder, features=None)


def test_a_byte_order_mark_and_blanks_do_no_harm(tmp_path):
    (tmp_path / "table.csv").write_text("\ufeffage, bmi\n1, 2\n\n3, 4\n", encoding="utf-8")
    assert load(str(tmp_path), features=["age"], scaling="none").train.x.tolist() == [[1], [3]]


@looped(
    "options, line",
    [
        ({"path": None}, r"dataset=csv needs dataset.path, for instance dataset.path=mine.csv"),
        ({"target": None}, r"dataset=csv needs dataset.target"),
        ({"path": "no.csv"}, r"no CSV file at /.*/no.csv: put it there, or set dataset.path"),
        ({"target": "price"}, r"dataset.target names column 'price', but .* has none of that name \(there are: "),
        ({"target": "bim", "features": None}, r"none of that name; did you mean 'bmi'\? \(there are: bmi, "),
        (
            {"target": "kind"},
            r"table.csv, line 2, column 'kind' \(dataset.target\): 'b' is no number, which dataset.task=regression "
            r"predicts: .*take dataset.task=classification, .* \(columns of numbers: bmi, age\)",
        ),
        (
            {"delimiter": "semi"},
            "dataset.delimiter=semi must be auto, one of comma, semicolon, tab, pipe, space, or on",
        ),
        ({"features": ["age", "height"]}, r"dataset.features names column 'height'"),
        ({"features": ["sex=other"]}, r"'sex=other', but column 'sex' holds: female, male"),
        ({"features": "age"}, r"dataset.features=age must be auto, a list"),
        ({"features": []}, r"dataset.features=\[\] must be auto, a list"),
        ({"rows": 5}, r"dataset.rows is 5, but .* has only 4 rows"),
        ({"rows": 0}, r"dataset.rows=0 must be a whole number, 1 or more, or null"),
        ({"task": "guess"}, r"dataset.task=guess must be one of classification, regression"),
        ({"scaling": "log"}, r"dataset.scaling=log must be one of min_max, z_score, none"),
        ({"test_fraction": 1}, r"dataset.test_fraction=1 must be a number in \[0, 1\)"),
        ({"test_fraction": "some"}, r"dataset.test_fraction=some must be"),
        ({"rows": 1, "test_fraction": 0.5}, r"1 row cannot be split"),
        ({"features": ["sex=male"], "rows": 1}, r"sex=male is 1 in every training row and cannot be scaled: leave"),
        ({"rows": 1, "scaling": "none"}, r"the target is .* cannot be scaled: take another one, or dataset.target"),
    ],
)
def test_errors_name_the_argument_and_the_remedy(folder, options, line):
    with one_line_error(line):
        load(folder, **options)


@looped(
    "text, line",
    [
        ("age,bmi\n1,nan\n", r"table.csv, line 2, column 'bmi': nan is not finite"),
        ("age,bmi\n1,2\n-inf,3\n", r"table.csv, line 3, column 'age': -inf is not finite"),
        ("age,bmi\n1,2\n\n\n3,x\n", r"table.csv, line 5, column 'bmi' \(dataset.target\): 'x' is no number"),
        ("age,bmi\n1,2\n,3\n", r"table.csv, line 3, column 'age': '' is no number"),
        ("age,bmi\n1,2,3\n", r"table.csv, line 2: 3 cells, but the header names 2 columns"),
        ("age,bmi,age\n1,2,3\n", r"names a column twice: age; each"),
        ("age,bmi\n", r"table.csv has no rows"),
        ("", r"table.csv has no rows"),
        ("\x00\x80", r"table.csv is no CSV file in UTF-8"),
        ("age;bmi\n1,5;2,5\n2,5;3,5\n", r"'2,5' is no number \(decimals need a point, not a comma\)"),
        ("age,bmi,who\n1,2,ann\n2,3,\n", r"table.csv, line 3, column 'who' \(dataset.owner\) names no owner"),
        ("age,bmi,which who\n1,2,ann\n2,3,bob\n", r"dataset.owner names column 'who', but .* has none of that name"),
    ],
)
def test_broken_files_are_named_with_row_and_column(tmp_path, text, line):
    (tmp_path / "table.csv").write_bytes(text.encode("latin1"))
    delimiter = ";" if ";" in text else ","
    with pytest.raises(ValueError, match=line):
        load(str(tmp_path), features=["age"], delimiter=delimiter, owner="who" if "who" in text else None)


@pytest.mark.data("insurance.csv")
def test_the_insurance_reconstruction_has_the_papers_optimum():
    """f* = 0.0091986, which FedAvg-SVRG prints as 0.01; theta* to three decimals."""
    features = ["age", "sex=male", "bmi", "children", "smoker=yes"]
    dataset = load(str(DATA), path="insurance.csv", target="charges", features=features, rows=900)
    x, y = dataset.normalise(dataset.train.x).double(), dataset.train.y.double()
    theta = torch.linalg.lstsq(x, y).solution
    assert float(((x @ theta - y) ** 2).mean()) == pytest.approx(0.0091986, abs=1e-6)
    expected = torch.tensor([0.168, -0.019, 0.113, 0.016, 0.378], dtype=torch.float64)
    torch.testing.assert_close(theta[:, 0], expected, atol=6e-4, rtol=0)


@pytest.mark.parametrize(("separator", "name"), [(";", "semicolon"), ("\t", "tab"), ("|", "pipe")])
def test_another_delimiter_is_suggested_and_found(tmp_path, separator, name):
    (tmp_path / "table.csv").write_text(TABLE.replace(",", separator))
    with pytest.raises(ValueError, match=rf"looks separated by {name}s: give dataset.delimiter={name}, or .*=auto"):
        load(str(tmp_path))
    expected = [[0, 1], [0.25, 0], [1, 1], [0.5, 0]]
    for given in ("auto", name, separator):
        assert load(str(tmp_path), delimiter=given).train.x.tolist() == expected


def test_auto_leaves_what_it_should_and_says_what_it_cannot_find(folder, tmp_path):
    assert load(folder, delimiter="auto").train.x.tolist() == load(folder).train.x.tolist()
    (tmp_path / "quoted.csv").write_text('"a;b;c",price\n"1;2;3",4\n')
    given = {"path": "quoted.csv", "target": "price", "features": ["a;b;c=1;2;3"], "delimiter": "auto"}
    quoted = load(folder, **given, scaling="none", target_scaling="none")
    assert quoted.train.x.tolist() == [[1]]
    (tmp_path / "one.csv").write_text("price\n1\n2\n")
    with pytest.raises(ValueError, match=r"dataset.delimiter=auto finds no delimiter in .*one.csv"):
        load(folder, path="one.csv", target="price", delimiter="auto")


def classify(folder, labels, **options):
    rows = [f"{place},{label}" for place, label in enumerate(labels)]
    (folder / "labels.csv").write_text("age,kind\n" + "\n".join(rows) + "\n")
    given = {"path": "labels.csv", "target": "kind", "task": "classification", "features": ["age"]}
    return load(str(folder), **(given | options))


@looped("label", ["", "nan", "NaN", "-nan", "NA", "n/a", "<NA>", "NULL"])
def test_labels_without_a_value(tmp_path, label):
    said = r"is empty" if not label else rf"is '{label}', which stands for no value"
    with pytest.raises(ValueError, match=rf"labels.csv, line 3, column 'kind': the label {said}; repair or drop"):
        classify(tmp_path, ["a", label, *"ab" * 10])


def test_words_that_are_labels(tmp_path):
    assert classify(tmp_path, ["none", "inf"] * 10).class_names == ("inf", "none")


def test_a_quantity_is_not_taken_for_classes(tmp_path):
    labels = [str(place % 5 / 7) for place in range(20)]
    with pytest.raises(ValueError, match=r"kind has 5 different values in 20 rows, .*, or dataset.many_classes=true"):
        classify(tmp_path, labels)
    assert len(classify(tmp_path, labels, many_classes=True).class_names) == 5
    assert len(classify(tmp_path, [*labels, *labels[:5]]).class_names) == 5


@pytest.mark.parametrize("features", [["age", "kind"], ["age", "kind=a"]])
def test_the_target_among_the_features(tmp_path, features):
    with pytest.raises(ValueError, match=r"dataset.features has 'kind.*', but 'kind' is the target: .* leave it out"):
        classify(tmp_path, "ab" * 10, features=features)


def test_owners_go_with_their_rows(tmp_path):
    (tmp_path / "table.csv").write_text("age,bmi,who\n1,2,bob\n2,3,ann\n3,1,cyd\n4,2,ann\n")
    dataset = load(str(tmp_path), owner="who", features=None)
    check(dataset)
    assert dataset.train.owner.tolist() == [1, 0, 2, 0]
    assert dataset.input_shape == (1,), "neither target nor owner is a feature"
    assert dataset.to("cpu").train.owner.tolist() == [1, 0, 2, 0]


def test_owners_of_held_in_rows(folder):
    held_in = load(folder, owner="kind", test_fraction=0.5, scaling="none").train
    ages = {20: 1, 30: 0, 60: 2, 40: 0}
    assert held_in.owner.tolist() == [ages[int(age)] for age in held_in.x[:, 0]]
