"""Options that would have no effect beside the others are refused, by the words of the YAML that explains them."""

from pathlib import Path

import pytest

from fedcomp.config.compose import compose
from fedcomp.config.effects import Condition, check_effects
from fedcomp.core.choices import options
from tests.config.test_comments import CHOICES, read
from tests.looped import looped

REFUSED = [
    ("algorithm=deltamask algorithm.schedule=constant algorithm.kappa_final=0.5", "algorithm.schedule=constant"),
    ("algorithm=deltamask algorithm.coding=places algorithm.fingerprint=4", "algorithm.coding=places"),
    ("algorithm=deltamask algorithm.coding=arithmetic algorithm.arity=3", "algorithm.coding=arithmetic"),
    ("algorithm=fedkseed algorithm.unbiased_sampling=true", "algorithm.sampling=uniform"),
    ("algorithm=fedsparsify algorithm.schedule=constant algorithm.first_sparsity=0.5", "algorithm.schedule=constant"),
    ("algorithm=fetchsgd algorithm.columns=64 algorithm.fraction=0.2", "algorithm.columns=64"),
    ("algorithm=fetchsgd algorithm.k=8 algorithm.share=0.2", "algorithm.k=8"),
    ("algorithm=bicompfl_gr algorithm.n_dl=3", "algorithm.reconstruct=false"),
    ("algorithm=bicompfl_gr algorithm.capacity=bits", "algorithm.allocation=fixed"),
    ("algorithm=bicompfl_pr algorithm.rest=mix", "algorithm.split_downlink=false"),
    ("algorithm=bicompfl_pr algorithm.split_downlink=true algorithm.mix_until=50", "algorithm.rest=keep"),
    ("algorithm=fedmud algorithm.view=out_fan_in", "algorithm.type=kron"),
    ("algorithm=fedmud algorithm.magnitude=1", "algorithm.distribution=auto"),
    ("algorithm=powersgd algorithm.decay=0.9 algorithm.memory=none", "algorithm.memory=none"),
    ("algorithm=powersgd algorithm.iterations=3", "algorithm.mode=aggregated"),
    ("algorithm=powersgd algorithm.mode=independent algorithm.warm_start=true", "algorithm.mode=independent"),
    ("algorithm=dasha algorithm.p=0.5", "algorithm.estimate=dasha"),
    ("algorithm=marina algorithm.a=0.5", "algorithm.estimate=marina"),
    ("algorithm=marina algorithm.start=zero", "algorithm.estimate=marina"),
    ("compressor=sign compressor.value=5", "compressor.scale=mean_abs"),
    ("compressor@downlink=sign downlink.value=5", "downlink.scale=mean_abs"),
    ("compressor=randk_spatial compressor.estimator.decay=0.5", "compressor.estimator.transform=avg"),
    ("client.schedule=constant client.lr_final=0.1", "client.schedule=constant"),
    ("network=lte network.deadline_weights=inverse", "network.deadline=null"),
]


@looped("words, beside", REFUSED)
def test_an_option_without_effect_is_refused(words: str, beside: str) -> None:
    given = words.split()
    refused = next(word for word in reversed(given) if word != beside and beside.rpartition(".")[0] in word)
    with pytest.raises(ValueError, match="has no effect with") as error:
        check_effects(compose(given))
    assert str(error.value).startswith(f"{refused} has no effect with {beside}: leave it out, or ")


@looped(
    "words",
    [
        "algorithm=deltamask algorithm.kappa_final=0.5",
        "algorithm=deltamask algorithm.schedule=constant algorithm.kappa_final=0.8",  # its default
        "algorithm=fetchsgd algorithm.columns=64 algorithm.fraction=null",
        "algorithm=bicompfl_gr algorithm.reconstruct=true algorithm.n_dl=3",
        "algorithm=marina algorithm.p=0.5",
        "client=adam_scores client.schedule=cosine client.lr_final=0.1",
        "network=lte network.deadline=3 network.deadline_weights=inverse",
        "compressor=count_sketch compressor.fraction=0.2",
    ],
)
def test_an_option_with_effect_and_a_default_are_not(words: str) -> None:
    check_effects(compose(words.split()))


def test_a_run_and_a_grid_refuse_it_before_the_first_round(fedcomp, capsys, tmp_path: Path) -> None:
    assert fedcomp("client.lr_final=0.1", "rounds=1") == 1
    assert "client.lr_final=0.1 has no effect with client.schedule=constant" in capsys.readouterr().err
    assert fedcomp("-m", "client.lr_final=0.1", "client.schedule=constant,cosine", "rounds=1", "num_clients=2") == 1
    said = capsys.readouterr().err
    assert said.index("client.lr_final=0.1 has no effect") < said.index("run 1 of the grid")
    assert len(list(tmp_path.rglob("metrics.jsonl"))) == 1


def test_the_yaml_of_a_users_own_class_is_read(tmp_path: Path) -> None:
    (tmp_path / "own_sparsifier.py").write_text("class Own:\n    pass\n")
    (tmp_path / "compressor").mkdir()
    text = "# Mine.\n_target_: own_sparsifier.Own\nmode: plain\nextra: 1  # with mode=rich|full: more\n"
    (tmp_path / "compressor" / "own.yaml").write_text(text)
    check_effects(compose(["compressor=own"], tmp_path))
    check_effects(compose(["compressor=own", "compressor.extra=2", "compressor.mode=full"], tmp_path))
    refusal = (
        "compressor.extra=2 has no effect with compressor.mode=plain: leave it out, or take compressor.mode=rich or"
    )
    with pytest.raises(ValueError, match=refusal):
        check_effects(compose(["compressor=own", "compressor.extra=2"], tmp_path))


@looped("path", CHOICES)
def test_a_condition_names_an_option_beside_it_and_its_values(path: Path) -> None:
    comments, content = read(path).options, options(path)
    for name, comment in comments.items():
        condition = Condition.of(comment)
        if condition is None:
            continue
        inside, _, _ = name.rpartition(".")
        node = content[inside] if inside else content
        assert condition.option in node or path.stem == "insurance", f"{name}: there is no {condition.option} beside it"
        other = comments.get(f"{inside}.{condition.option}" if inside else condition.option, "")
        for value in condition.values:
            default = str(node.get(condition.option, "regression")).lower()
            assert value in {default, *other.replace(":", " ").replace(",", " ").replace("(", " ").split()}, (
                name,
                value,
            )
