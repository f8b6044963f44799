"""Every wrong command is refused in one line, which says what was given, what is allowed and what to do."""

import os
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

import fedcomp as api
from tests.looped import looped

QUICK = ("rounds=1", "num_clients=2", "quiet=true", "pictures=false")

OF_THE_RUN = [
    ("rouds=3", "there is no option 'rouds'; did you mean 'rounds'?"),
    ("+foo=1", "there is no option 'foo' (there are: accept_changes, algorithm,"),
    ("++rouds=3", "there is no option 'rouds'; did you mean 'rounds'? "),
    ("'+foo={a: 1}'", "values that other keys refer to go under vars: +vars.foo=..."),
    ("-m +foo=1 seed=0,1", "there is no option 'foo' "),
    ("output_root=", "output_root is empty, but must be a folder"),
    ("name=a/b", "name='a/b' must be a folder's name"),
    ("\"name=' '\"", "name=' ' must be a folder's name"),
    ("'name=\"a\nb\"'", "name 'a\\nb' contains '\\n', but must be one line of text"),
    ("'label=\" \"'", "label=' ' is blank, but must name a method"),
    ("'label=\"a\x07b\"'", "label 'a\\x07b' contains '\\x07'"),
    ("'label=\"\\${x}\"'", "label=${x} has ${ in a text, which would be a reference where the run is read"),
    ("'case=\"a\u2028b\"'", "case 'a\\u2028b' contains '\\u2028'"),
    ("figures=[{name:a,kind:pie,y:[test/loss]}]", "figure 'a': kind is 'pie', allowed are last, curve, variance"),
    ("figures=[3]", "figure 3 is no mapping such as {name: mse, x: round, y: [mse]}"),
    ("figures=[{name:a,y:3}]", "figure 'a': y is 3, but must be a key such as test/loss, or a list of keys"),
    ("figures=[{name:a,y:[b],beside:[c,d]}]", "figure 'a': 2 beside for 1 y; give one a y"),
    ("'figures=[{name:\"a\nb\",y:[b]}]'", "figure 'a\\nb' contains '\\n'"),
    ("seed=-1", "seed=-1 must be a whole number, 0 or more"),
    ("seed=9223372036854775808", "seed=9223372036854775808 must be a whole number below 2^63"),
    ("rounds=0", "rounds=0 must be a whole number, 1 or more"),
    ("rounds=many", "rounds=many must be a whole number"),
    ("max_bits=1e9x", "max_bits=1e9x must be a number"),
    ("safe=maybe", "safe=maybe must be true or false"),
    ("name=[a]", "name=[a] must be a text"),
    ("figures=3", "figures=3 must be a list"),
    ("vars=3", "vars=3 must be a mapping, {name:value}"),
    ("-m compressor=topk,topkk", "compressor=topkk is unknown; did you mean 'topk'?"),
    ("-m rounds=2,0", "rounds=0 must be a whole number, 1 or more"),
    ("max_bits=0", "max_bits=0.0 must be a positive number, or null: a number of bits"),
    ("verbose=true", "quiet=true and verbose=true exclude each other"),
    ("wire=pigeon", "wire=pigeon must be one of counted, packed"),
    ("wire=tcp", "start fedcomp-serve, and fedcomp-join for each client"),
    ("precision=half", "precision=half must be one of fp32, tf32, bf16"),
    ("device=abacus", "device=abacus must be auto, cpu, cuda or cuda:<number>"),
    ("device=cpu:3", "device=cpu:3 must be auto, cpu, cuda or cuda:<number>"),
    ("device=cuda:7", "GPUs are visible here; use device=cpu or auto"),
    ("--multirn", "there is no flag --multirn; did you mean --multirun? (an option is given as key=value)"),
    ("--config-dir=", "--config-dir needs a value"),
    ("--config-dir /nowhere", "there is no folder /nowhere, which --config-dir names"),
    ("--config-dir empty", "/empty, which --config-dir names, holds no config: put GROUP/NAME.yaml there"),
    (
        "--config-dir same",
        "same/compressor/topk.yaml has the name of one of fedcomp's own, which would be taken instead",
    ),
    ("--config-dir MINE experiment=fast", "experiment/fast.yaml must begin with `# @package _global_`"),
    ("--config-dir MINE experiment=bad", "a config is not valid YAML: "),
    ("--config-dir MINE experiment=bad seed=0,1", "a config is not valid YAML: "),
    ("--help compresor", "there is no group 'compresor' to help with; did you mean 'compressor'? (there are: client, "),
    ("--help compressor=topkk", "compressor=topkk is unknown; did you mean 'topk'?"),
    ("--help compressor.fraction=0.1", "there is no option 'compressor.fraction': compressor is dense, and"),
]
"""(command, what its line says). Nothing is written."""

CHOICES = [
    ("compressor=topkk", "compressor=topkk is unknown; did you mean 'topk'? (there are: chunk_topk, count_sketch,"),
    ("compressor=two_means", "; of your own it is DIR/compressor/two_means.yaml, with --config-dir DIR"),
    ("dataset=MNIST", "dataset=MNIST is unknown; did you mean 'mnist'?"),
    ("experiment=quickstat", "experiment=quickstat is unknown; did you mean 'quickstart'?"),
    ("experiment=quick/start", "did you mean 'quickstart'? (`fedcomp experiment=` lists them)"),
    ("compresor=topk", "there is no option 'compresor'; did you mean 'compressor'?"),
    ("clinet.lr=3", "there is no option 'clinet.lr', nor any 'clinet'; did you mean 'client'?"),
    ("+client=adam", "+client=adam: there is a choice of client already, which client=adam replaces"),
    ("+vars.a=1 ++client=adam", "++client=adam: there is a choice of client already, which client=adam replaces"),
    ("compressor=../client/sgd", "compressor is chosen by the name of a YAML"),
    ("compressor@downlink=/etc/passwd", "compressor is chosen by the name of a YAML"),
    ("~compressor", "a run needs its compressor: choose another one with compressor=<name>"),
    ("compressor=null", "compressor=null: a run needs its compressor: choose another one with compressor=<name>"),
    ("-m compressor=topk model=null", "model=null: a run needs its model"),
    ("~rounds", "~rounds: a run needs all its options: give another value with rounds=<value>"),
    ("~client.lr", "~client.lr: a run needs all its options: give another value with client.lr=<value>"),
    ("compressor= rounds=3", "'compressor=' has no value: give compressor=VALUE"),
    ("rounds=", "'rounds=' has no value: give rounds=VALUE"),
    ("rounds=null", "rounds=null: rounds needs a value (`fedcomp --help rounds` says which)"),
    ("-m 'seed=range(1,1)'", "seed=range(1,1) holds no value, so that there is no run"),
    ("-m 'compressor=glob(zz*)'", "compressor=glob(zz*) holds no value, so that there is no run"),
    ("downlink=null", "downlink=null: a run needs its downlink: choose another one with downlink=<name>"),
    ("compressor@downlink=null downlink.k=3", "a run needs its downlink: choose another one with compressor@downlink="),
    ("-m compressor=null,topk", "compressor=null,topk: a run needs its compressor"),
    ("experiment=null", "experiment=null: a run has no experiment without it"),
    ("--config-dir MINE experiment=bare", "downlink=null is no part of a run: a part is chosen with comp"),
    ("--config-dir MINE experiment=bare downlink.fraction=0.1", "there is no option 'downlink.fraction'"),
    (
        "participation=0.1",
        "participation is chosen by name (there are: absent, bernoulli, full, uniform); a number is given to an "
        "option, as participation=bernoulli participation.probability=0.1",
    ),
    ("compressor=nan", "compressor=nan: compressor is chosen by name (there are: "),
    ("'name=${nothing}'", "name: Interpolation key 'nothing' not found; ${...} stands for the value of another option"),
    ("'client.lr=${client.lr}'", "client.lr: Recursive interpolation detected; ${...} stands for"),
    ("-m 'name=${nothing}'", "Interpolation key 'nothing' not found"),
    ("rounds = 5", "a blank tears 'rounds = 5' apart: give rounds=5"),
    ("rounds= 5", "a blank tears 'rounds= 5' apart: give rounds=5"),
    ("seed=1 ,2", "a blank tears 'seed=1 ,2' apart: give seed=1,2"),
    ("client.lr", "'client.lr' has no value: give client.lr=VALUE"),
    ("-m seed=0-3", "seed=0-3 must be a whole number; of a grid with all of them: -m 'seed=range(0,4)'"),
    ("'seed=range(0,4)'", "seed=range(0,4) has several values: for a grid say -m"),
    ("seed=0,1", "'seed=0,1' has several values: for a grid say -m"),
    ("experiment=fedscalar/digits seed=0,1 rouns=2", "there is no option 'rouns'; did you mean 'rounds'"),
    ("-m compressor=dense,topk,", "'compressor=dense,topk,' has a comma too many: give compressor=dense,topk"),
    ("model.hidden=[,3,,4]", "has a comma too many: give model.hidden=[3,4]"),
    ("'label=top-k (3 %)'", """quote it, also for the shell: 'label="top-k (3 %)"'"""),
    ("'label=a, b'", """for a grid say -m; if it is one text, quote it: 'label="a, b"'"""),
    ("日本=1", "'日本' is no option's name"),
]

OPTIONS = [
    ("compressor=topk compressor.fractoin=0.1", "no option 'compressor.fractoin'"),
    ("compressor=topk compressor.foo=1", "(there are: estimator, feedback, fraction, k, match_bits, positions, pr"),
    ("network=lognormal network.spread_dwn=2", "no option 'network.spread_dwn'; did you mean 'spread_down'?"),
    ("experiment=quickstart partition.alfa=1", "no option 'partition.alfa'; did you mean 'alpha'?"),
    ("+client.sped=1", "there is no option 'client.sped' (there are: batch_size, clip_norm, epochs,"),
    ("+model.depth=3", "there is no option 'model.depth' (there are: bias, hidden, relu_on_logits)"),
    ("+model.hiden=[3]", "there is no option 'model.hiden'; did you mean 'hidden'? (there are: bias, hidden,"),
    ("+partition._seed_=1", "there is no option 'partition._seed_'"),
    ("+launcher.foo=1", "there is no option 'launcher.foo'"),
    ("+sweeper.foo=1", "there is no option 'sweeper.foo'"),
    ("+objective.foo=1", "there is no option 'objective.foo'"),
    ("+downlink.scale=none", "no option 'downlink.scale' (there are: estimator, feedback, precision, predictor)"),
    (
        "compressor=topk compressor.feedback={_target_:fedcomp.compressor.feedback.ErrorFeedback,decai:0.5}",
        "there is no option 'compressor.feedback.decai'; did you mean 'decay'?",
    ),
    (
        "--config-dir MINE compressor=halves participation=uniform compressor.shar=0.1",
        "no option 'compressor.shar'; did you mean 'share'? (there are: feedback, share)",
    ),
    (
        "--config-dir MINE compressor=halves participation=uniform participation.num=3",
        "no option 'participation.num' (there are: num_participants)",
    ),
    ("launcher=slurm launcher.partitoin=x", "there is no option 'launcher.partitoin'"),
    ("lr=0.1", "there is no option 'lr'; did you mean client.lr=0.1 or server.lr=0.1?"),
    ("learning_rate=0.1", "did you mean client.lr=0.1 or server.lr=0.1?"),
    ("client.learning_rate=0.1", "there is no option 'client.learning_rate'; did you mean client.lr=0.1?"),
    ("clients=10", "there is no option 'clients'; did you mean num_clients=10?"),
    ("compressor=topk fraction=0.1", "did you mean compressor.fraction=0.1?"),
    ("compressor.fraction=0.1", "compressor is dense, and fraction belongs to chunk_topk, count_sketch, induced"),
    ("compressor.fraction=0.1", ", ...; take compressor=topk compressor.fraction=0.1"),
    ("downlink.fraction=0.1", "downlink is dense, and fraction belongs to chunk_topk"),
    ("downlink.fraction=0.1", "; take compressor@downlink=topk downlink.fraction=0.1"),
    (
        "partition.alpha=0.1",
        "partition is iid, and alpha belongs to dirichlet; take partition=dirichlet partition.alpha=0.1",
    ),
]

VALUES = [
    ("device=cpu precision=tf32", "precision=tf32 needs an NVIDIA GPU"),
    ("compressor=topk compressor.fraction=2", "compressor.fraction=2 must be a number in (0, 1]"),
    ("compressor@downlink=topk downlink.fraction=2", "downlink.fraction=2 must be a number in (0, 1]"),
    ("client.lr=fast", "client.lr=fast must be a positive number"),
    ("client.lr=null", "client.lr=null must be a positive number"),
    ("compressor=topk compressor.k=true", "compressor.k=true must be a whole number, 1 or more, or null"),
    ("compressor=topk compressor.feedback=null", "compressor.feedback=null must be one of none, error, or a node"),
    ("algorithm=bicompfl_pr algorithm.rest=mix", "leave it out, or take algorithm.split_downlink=true"),
    ("evaluation=per_client evaluation.data=null", "evaluation.data=null must be test or train"),
    ("participation=uniform participation.num_participants=21", "participation.num_participants"),
    ("participation=bernoulli participation.probability=0", "participation.probability"),
    ("partition=shards partition.shards_per_client=1000", "partition.shards_per_client"),
    ("partition.seed=-1", "partition.seed=-1 must be a whole number, 0 or more"),
    ("partition.seed=abc", "partition.seed=abc must be a whole number, 0 or more"),
    ("dataset.split_seed=-1", "dataset.split_seed=-1 must be a whole number, 0 or more"),
    ("dataset=diabetes dataset.split_seed=-1 model=linear", "dataset.split_seed=-1 must be a whole number"),
    ("dataset=vectors dataset.seed=-1 algorithm=mean_estimation", "dataset.seed=-1 must be a whole number"),
    (
        "participation=bernoulli 'participation.probability={low: 0.1, high: 1, seed: -2}'",
        "participation.probability.seed=-2 must be a whole number, 0 or more",
    ),
    ("sweeper=optuna sweeper.seed=-1 'seed=range(2)'", "sweeper.seed=-1 must be a whole number, 0 or more"),
    ("sweeper=optuna sweeper.n_trials=0 client.lr=1,2", "sweeper.n_trials=0 must be a whole number"),
    ("-m sweeper=optuna sweeper.storage=foo://bar 'client.lr=interval(0.1,1)'", "sweeper.storage=foo://bar cannot be"),
    ("sweeper=optuna objective=bits_to_target objective.target=90 client.lr=1,2", "objective.target=90"),
    ("-m 'client.lr=interval(0.1,1)'", "client.lr is an interval: give a list"),
    ("launcher=joblib launcher.n_jobs=0", "launcher.n_jobs=0 must be 1 or more"),
    ("launcher=slurm launcher.runs_per_gpu=0", "launcher.runs_per_gpu=0 must be a whole number, 1 or more"),
    ("launcher=slurm launcher.gpus=-1", "launcher.gpus=-1 must be a whole number, 0 or more, or null"),
    ("launcher=slurm", "launcher=slurm: there is no sbatch here"),
    ("algorithm=decomfl algorithm.mu=1e-30", "algorithm.mu=1e-30 must be a number in [1e-8, 1e3]"),
    ("algorithm.weights=luck", "algorithm.weights=luck must be one of samples, tokens, uniform"),
    ("network=lte network.jitter=1e6", "network.jitter=1000000.0 must be a number in [0, 5]"),
    ("network=shared network.capacity_bps=[1e6,2e6]", "has 2 capacities, but network.cells=1"),
    ("network=shared network.capacity_bps=1e6 network.cells=3", "network.cells=3 are more than the 2 clients"),
    ("dataset=csv dataset.path=t.csv dataset.target=y dataset.features=[a,a]", "dataset.features has 'a' 2 times"),
    ("dataset=csv dataset.path=only.csv dataset.target=y", "has no column beside 'y' to predict it from"),
    ("algorithm=mean_estimation dataset=vectors dataset.kind=file dataset.path=complex.npy", "are complex numbers"),
    ("SHAPES dataset.crop_padding=40", "crop_padding is 40, but must be below the images' 32 pixels"),
    ("dataset=shapes dataset.size=100000", "pictures of 100000 x 100000 pixels take"),
    ("dataset=shapes dataset.unlabelled=background", "unlabelled is 'background', but must be one of ignored, absent"),
    ("dataset=mnist dataset.root=/nowhere dataset.download=false", "/nowhere"),
    ("dataset=voc dataset.root=/nowhere", "dataset=voc: cannot read /nowhere/VOCdevkit/VOC2012/ImageSets"),
    ("output_root=/dev/null/runs", "cannot write /dev/null/runs"),
]

TOGETHER = [
    (
        "algorithm=fedavg_svrg client=sgd",
        "algorithm=fedavg_svrg needs client=svrg, but client=sgd was chosen: leave client out, or take another",
    ),
    ("client=adam algorithm=fedavg_svrg", "algorithm=fedavg_svrg needs client=svrg, but client=adam"),
    ("client.steps=3 client.epochs=2", "client.epochs=2 and client.steps=3 both say how long a client trains"),
    ("client.epochs=null", "client.epochs and client.steps are both null"),
    (
        "compressor=topk compressor.k=5 compressor.fraction=0.1",
        "compressor.fraction=0.1 and k=5 both set the number of entries: give one of them, and null for",
    ),
    (
        "compressor@downlink=randk downlink.k=5 downlink.fraction=0.1",
        "downlink.fraction=0.1 and k=5 both set the number of entries",
    ),
    (
        "compressor=topk compressor.fraction=0.1 compressor.match_bits=1",
        "compressor.fraction=0.1 and match_bits=1 both set",
    ),
    ("compressor=wangni compressor.fraction=null", "compressor.fraction and k are both null"),
    ("compressor.feedback=error", "compressor.feedback has nothing to add: Dense leaves nothing out; take feedb"),
    ("downlink.feedback=error", "downlink.feedback has nothing to add: Dense leaves nothing out"),
    ("algorithm.sends=model compressor@downlink=sign", "algorithm.sends=model needs a dense downlink, not Sign"),
    ("model=centres", "algorithm=fedavg needs a model of kind network, but the model is of kind centres"),
    (
        "algorithm=power_iteration model=mlp",
        "algorithm=power_iteration needs a model of kind principal_direction, but the model is of kind network: take "
        "model=principal_direction",
    ),
    ("TEXT algorithm=kmeans", "needs a model of kind centres, but the model is of kind network"),
    ("algorithm=mean_estimation dataset=digits", "set num_clients=1600, or take partition=iid"),
    ("num_clients=2000", "client 1600 would hold no data"),
    ("partition=dirichlet dataset=diabetes", "take partition=iid"),
    ("dataset=digits partition=natural", "(shakespeare; csv, text, huggingface, image_folder with dataset.owner), or"),
    ("model=lenet5", "lenet5"),
    ("dataset=digits model=char_lstm", "model=char_lstm predicts the next of a sequence of tokens"),
    ("dataset=digits model=bisenetv2", "model=bisenetv2 is for segmentation, the dataset's task is classification"),
    ("SHAPES dataset.size=48", "model=bisenetv2 takes images whose sides are multiples of 32, the dataset gives 48x48"),
    (
        "dataset=shapes dataset.size=32 model=lenet5",
        "model lenet5 gives outputs of shape (5,), the dataset needs (5, 32",
    ),
    (
        "dataset=shapes dataset.size=32 model=torchvision model.name=squeezenet1_1",
        "model squeezenet1_1 gives outputs of shape (5,), the dataset needs (5, 32, 32), a class for each pixel: take",
    ),
    ("SHAPES partition=natural", "partition=natural makes every owner of samples a client, but"),
    (
        "SHAPES dataset.unlabelled=absent algorithm=fedavg_svrg client=svrg participation=bernoulli",
        "client=svrg needs a loss that is a mean over samples",
    ),
    ("TEXT partition=natural num_clients=5", "num_clients is 5, but 2 of 2 owners have partition.min_size=1"),
    ("TEXT partition=natural num_clients=null partition.min_size=9999", "the largest of 2 owners has 500"),
    ("TEXT partition=dirichlet", "partition=dirichlet deals samples by class, but those of this dataset have"),
    ("TEXT num_clients=null", "num_clients=null is for partition=natural and partition=one_each"),
    ("TEXT model=mlp", "choose another model, such as char_gpt or hf"),
    (
        "--config-dir MINE compressor=thirds",
        "thirds.Thirds needs share, which its YAML does not give: write `share: ...`",
    ),
    (
        "--config-dir MINE compressor=thirds compressor.share=0.1",
        "there is no option 'compressor.share' in the YAML of thirds.Thirds, which takes it: write `share: ...` there",
    ),
    (
        "--config-dir MINE compressor=thirds compressor.feedback=error",
        "there is no option 'compressor.feedback' in the YAML of thirds.Thirds, which takes it: write `feedback: ...`",
    ),
    ("--config-dir MINE compressor=blank", "the YAML of compressor has no _target_, which names the class: write `_t"),
    ("--config-dir MINE compressor=later", "the YAML of thirds.Whole must not have `_partial_: true`"),
    ("--config-dir MINE compressor=bare", "compressor._target_=Whole names no class of a file: write FILE.CLASS"),
    ("compressor=sign compressor.feedback={decay:0.5}", "the YAML of compressor.feedback has no _target_, which names"),
    (
        "compressor=sign compressor.feedback={_target_:collections.Counter}",
        "collections.Counter made a Counter, which is no Feedback: let its class inherit from Feedback",
    ),
    (
        "--config-dir MINE compressor=begins",
        "compressor/begins.yaml: defaults: [topkk, ...]: compressor=topkk is unknown; did you mean 'topk'? (there",
    ),
    ("--config-dir MINE compressor=file", "compressor._target_=thirds names no class of a file: write FILE.CLASS"),
    (
        "--config-dir MINE compressor=unmarked",
        "is a field with a type, as in `share: float = ...`, and @dataclass(frozen=True) stands above the class",
    ),
    ("--config-dir MINE compressor=queued", "queue.py has the name of a module that is loaded already ("),
    ("--config-dir MINE compressor=above", "above.yaml describes a part, and `# @package _global_` is for experiments"),
    (
        "--config-dir shadow compressor=sign",
        "/torch.py has the name of a package that fedcomp needs, and would be taken",
    ),
    ("--config-dir MINE model=ready", "the YAML of model torch.nn.Linear needs the line `_partial_: true`"),
    (
        "algorithm._partial_=false",
        "FedAvg needs client, server, uplink, downlink, which its YAML does not give: write `_pa",
    ),
    ("model=module model.path=quits.Net", "calls sys.exit(3)"),
    ("compressor._target_=quits.Codec", "quits.Codec or a module that it imports calls sys.exit(3)"),
]
MINE = "it's, mine = ü"
"""A folder of the user's own configs."""
SHORT = {
    "SHAPES": "dataset=shapes dataset.size=32 dataset.num_train=12 dataset.num_test=6 model=bisenetv2 model.width=0.05",
    "TEXT": "dataset=shakespeare dataset.root=. model=char_lstm",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the commands name; outputs go beside it."""
    folder = tmp_path / "here"
    files = {
        "t.csv": "a,y\n1,2\n2,3\n3,4\n4,5\n",
        "only.csv": "y\n1\n2\n3\n",
        "quits.py": "import sys\nsys.exit(3)\n",
        "tinyshakespeare.txt": "\n\n".join(f"{name}:\n{'abcde ' * 300}" for name in ("ann", "bob")),
        f"{MINE}/experiment/fast.yaml": "rounds: 3\n",
        f"{MINE}/experiment/bad.yaml": "a: [1\n",
        f"{MINE}/experiment/bare.yaml": "# @package _global_\ndownlink: null\n",
        f"{MINE}/compressor/halves.yaml": "_target_: halves.Halves\nshare: 0.5\nfeedback: none\n",
        f"{MINE}/compressor/thirds.yaml": "_target_: thirds.Thirds\n",
        f"{MINE}/model/ready.yaml": "_target_: torch.nn.Linear\nin_features: 64\nout_features: 10\n",
        f"{MINE}/thirds.py": "def Thirds(share): pass\ndef Whole(): pass\n",
        f"{MINE}/compressor/blank.yaml": "share: 0.5\n",
        f"{MINE}/compressor/later.yaml": "_target_: thirds.Whole\n_partial_: true\n",
        f"{MINE}/compressor/bare.yaml": "_target_: Whole\n",
        f"{MINE}/compressor/begins.yaml": "defaults: [topkk, _self_]\n",
        f"{MINE}/compressor/file.yaml": "_target_: thirds\n",
        f"{MINE}/compressor/unmarked.yaml": "_target_: unmarked.Unmarked\nshare: 0.5\n",
        f"{MINE}/unmarked.py": "class Unmarked:\n    share: float\n",
        f"{MINE}/compressor/queued.yaml": "_target_: queue.Whole\n",
        f"{MINE}/compressor/above.yaml": "# @package _global_\n_target_: thirds.Whole\n",
        f"{MINE}/queue.py": "def Whole(): pass\n",
        "shadow/compressor/own.yaml": "_target_: thirds.Whole\n",
        "shadow/torch.py": "",
        "same/compressor/topk.yaml": "_target_: halves.Halves\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "empty").mkdir()
    np.save(folder / "complex.npy", np.ones((2, 3), complex))
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    return tmp_path


@looped("words, says", [*OF_THE_RUN, *CHOICES, *OPTIONS, *VALUES, *TOGETHER])
def test_one_clear_line(fedcomp, capsys, monkeypatch, place: Path, words: str, says: str) -> None:
    cluster = "slurm" in words or "optuna" in words
    if cluster:
        pytest.importorskip("submitit", reason="no submitit here: pip install 'fedcomp[grids]'")
    first, _, rest = words.partition(" ")
    given = shlex.split(f"{SHORT[first]} {rest}" if first in SHORT else words.replace("MINE", shlex.quote(MINE)))
    keys = {word.partition("=")[0] for word in given}
    quick = [] if "--help" in words else [word for word in QUICK if word.partition("=")[0] not in keys]
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere" if cluster else os.environ["PATH"])
        assert fedcomp(*quick, *given) in (1, 2)
    shown = capsys.readouterr()
    assert shown.out == ""
    line = shown.err.partition("\n  File")[0].strip()  # where a module of the user's own ends the process
    assert line.startswith("fedcomp: error: ")
    assert "\n" not in line
    assert says in line
    assert not re.search("hydra|Lexer|override|struct|type 'str'", line, re.IGNORECASE)
    assert [path.name for path in place.iterdir()] == ["here"] or (words, says) not in OF_THE_RUN


def test_missing_submitit_is_one_line_with_the_remedy(fedcomp, capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert fedcomp(*QUICK, "launcher=slurm") == 2
    assert capsys.readouterr().err == "fedcomp: error: launcher=slurm needs submitit: pip install 'fedcomp[grids]'\n"


@looped("given, said", [(3, "3 is no config"), (["launcher=joblib"], "launcher=joblib is for the")])
def test_from_python(given: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        api.run(given)


@looped(
    "words",
    [
        "algorithm=fedavg_svrg client.lr=0.01",
        "client.steps=3 client.epochs=null",
        "compressor=topk compressor.k=5 compressor.fraction=null",
        "compressor.precision=float16 compressor.feedback=error",
        "+width=3 model.hidden=[${width}]",
    ],
)
def test_what_says_one_thing_runs(fedcomp, words: str) -> None:
    assert fedcomp(*QUICK, *words.split()) == 0


def test_an_option_that_an_experiment_sets_for_another_choice_is_said_to_be_its(fedcomp, capsys) -> None:
    assert fedcomp(*QUICK, "experiment=quickstart", "partition=iid") == 1
    said = capsys.readouterr().err
    assert "there is no option 'partition.alpha' (there are: seed): experiment=quickstart sets it, for its own" in said
