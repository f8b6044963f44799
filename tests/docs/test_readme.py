"""What the README shows works as written."""

from __future__ import annotations

import re
from pathlib import Path

from fedcomp.records.metrics_file import read_lines
from tests.conformance.codec import CHECKS, CodecCase

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def _block(language: str, containing: str) -> str:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.S | re.M)
    (found,) = [text for name, text in blocks if name == language and containing in text]
    return found


def test_own_method(fedcomp, tmp_path: Path, monkeypatch) -> None:
    mine = tmp_path / "mine"
    (mine / "compressor").mkdir(parents=True)
    (mine / "quarter.py").write_text(_block("python", "class Quarter"))
    (mine / "compressor" / "quarter.yaml").write_text(_block("yaml", "quarter.Quarter"))
    command = _block("", "compressor=quarter").split()[1:]
    monkeypatch.chdir(tmp_path)
    assert fedcomp(*command, "rounds=3", f"output_root={tmp_path / 'outputs'}") == 0
    (record,) = (tmp_path / "outputs").rglob("metrics.jsonl")
    first, *_, line = read_lines(record)
    assert line["test/loss"] < first["test/loss"]
    assert line["bpp/uplink"] == 32 * round(0.25 * 2410) / 2410

    import quarter  # type: ignore[import-not-found]  # lies in --config-dir, which the command put on the path

    case = CodecCase("quarter", quarter.Quarter(), lambda layers: 32 * max(1, round(0.25 * sum(layers))))
    for check in CHECKS:
        check(case)


def test_parameter_counts_in_the_readme() -> None:
    for name, count in (("lenet5", "61,706"), ("cnn4", "1,933,258"), ("cnn6", "2,262,602")):
        assert f"`{name}` ({count})" in README
