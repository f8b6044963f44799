"""BiCompFL's tables 5 to 12: their experiments, and the names of their methods."""

from scripts.reproduce.experiment import Cut, Experiment

METRICS = (
    "test/accuracy",
    "expected/accuracy",
    "bpp/uplink",
    "bpp/downlink",
    "paper/bpp/uplink",
    "paper/bpp/downlink",
    "bits/uplink",
    "bits/downlink",
    "bits/total",
    "mrc/kl_up",
)
FIRST = "fedavg,doublesqueeze,gr_fixed,pr_fixed,gr_cfl,gr_adaptive_avg,pr_split"
REST = "memsgd,liec,cser,neolithic,m3,gr_adaptive,gr_reconst,pr_op"
SEEDS = ("0", "1,2")
"""One of every method, then the others."""
GR = "BiCompFL-GR-Fixed"
ADAPTIVE = "BiCompFL-GR-Adaptive-Avg"
SPLIT = "BiCompFL-PR-Fixed-SplitDL"
BLOCK = 256
"""Entries of a block of GR-Fixed."""
METHOD = "experiment/bicompfl/method@_global_"
"""The config group of the methods."""
RECONST, PRIVATE, CFL = "BiCompFL-GR-Reconst-Fixed", "BiCompFL-PR-Fixed", "BiCompFL-GR-CFL"
PARAMETERS = 61_706
"""Of LeNet-5."""
BASELINES = ("Doublesqueeze", "Memsgd", "Liec", "Cser", "Neolithic", "M3")
TITLES = {
    "5": ("mnist_lenet", "iid", "LeNet-5 on MNIST, i.i.d."),
    "6": ("mnist_lenet", "non_iid", "LeNet-5 on MNIST, Dirichlet(0.1)"),
    "7": ("mnist_cnn4", "iid", "4CNN on MNIST, i.i.d."),
    "8": ("mnist_cnn4", "non_iid", "4CNN on MNIST, Dirichlet(0.1)"),
    "9": ("fashion_cnn4", "iid", "4CNN on Fashion-MNIST, i.i.d."),
    "10": ("fashion_cnn4", "non_iid", "4CNN on Fashion-MNIST, Dirichlet(0.1)"),
    "11": ("cifar10_cnn6", "iid", "6CNN on CIFAR-10, i.i.d."),
    "12": ("cifar10_cnn6", "non_iid", "6CNN on CIFAR-10, Dirichlet(0.1)"),
}
"""By the number of the paper's table: our data and split, and what it is."""
ONE_STEP = f"seed=0 rounds=1 client.epochs=null client.steps=1 client.batch_size=32 {METHOD}=gr_fixed"
"""For networks with which a round of the paper takes a core a quarter of an hour."""
SMALL = {
    **dict.fromkeys(("5", "6"), f"seed=0 rounds=2 {METHOD}=fedavg,gr_fixed"),
    **dict.fromkeys(("7", "9", "11"), ONE_STEP),
}


def chosen(number: str) -> str:
    """The words of a command that choose the data and the split of a table."""
    data, split, _ = TITLES[number]
    group = "experiment/bicompfl"
    return f"experiment=bicompfl/tables {group}/data@_global_={data} {group}/split@_global_={split}"


def _experiment(number: str) -> Experiment:
    data, split, _ = TITLES[number]
    name = f"bicompfl_{data}_{split.replace('_', '')}"
    commands = [
        f"{chosen(number)} {METHOD}={methods} seed={seed} name={name}" for seed in SEEDS for methods in (FIRST, REST)
    ]
    curves = {"test/accuracy": f"bicompfl_table_{number}.png"}
    gradients = 3 * (50_000 if data.startswith("cifar10") else 60_000)
    cut = None if data == "mnist_lenet" else Cut("num_clients=2 client.epochs=null client.steps=", gradients)
    return Experiment(name, commands, SMALL.get(number), METRICS, curves=curves, cut=cut)


TABLES = {number: _experiment(number) for number in TITLES}
