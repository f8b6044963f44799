"""Text on the command line that Hydra cannot read without quotes of its own."""

from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from fedcomp.config.overrides import quote
from tests.looped import looped


@looped(
    "word, value",
    [
        ("label=日本語", "日本語"),
        ("label=C&A #1; x<y", "C&A #1; x<y"),
        ("label=k=1", "k=1"),
        ("label=it's", "it's"),
        ("label=é\\", "é\\"),
        ("output_root=/tmp/größe/x", "/tmp/größe/x"),
        ("dataset.delimiter=;", ";"),
        ("dataset.features=[age,größe,sex=male,'sex=weiß']", ["age", "größe", "sex=male", "sex=weiß"]),
    ],
)
def test_what_has_one_meaning_is_read(word: str, value: object) -> None:
    given = OverridesParser.create().parse_override(quote(word)).value()
    assert (given if isinstance(value, str) else list(map(str, given))) == value


@looped(
    "word",
    [
        "rounds=3",
        "label=",
        "label='日本語'",
        'label="a, b"',
        "seed=0,1",
        "~label",
        "label=${größe}",
        "client.lr=tag(log, interval(0.01, 1))",
        "participation.schedule={50: 0.3}",
        "label=top-k (3 %)",
        "label='a' é",
    ],
)
def test_what_hydra_reads_or_may_mean_otherwise_stays(word: str) -> None:
    assert quote(word) == word


def test_a_label_in_any_script_is_the_runs_label(fedcomp, tmp_path: Path) -> None:
    options = ("rounds=1", "model=linear", "num_clients=2", "pictures=false", "quiet=true")
    assert fedcomp(*options, "label=日本語") == 0
    assert fedcomp(*options, "-m", "label=größe,b", "name=grid", "seed=1") == 0
    labels = {str(OmegaConf.load(path).label) for path in tmp_path.rglob("config.yaml")}
    assert "日本語" in labels
    assert labels & {"größe", "b"}
