"""FedMRN on other networks and tasks: LeNet-5, text, classes of pixels, and a CIFAR-10 network without BatchNorm."""

from collections.abc import Sequence

from fedcomp.reporting.tables import published
from scripts.reproduce.experiment import Experiment
from scripts.reproduce.markdown import Cell, last, made_with, picture, table
from scripts.reproduce.printed import ACCURACY, UPLINK, beside
from scripts.reproduce.records import Folder, Records
from scripts.reproduce.shapes_masks import draw as draw_masks

METHOD, DATA = "experiment/fedmrn/method@_global_", "experiment/fedmrn/data@_global_"
SPLIT = "experiment/fedmrn/split@_global_"
"""The config groups of the methods, the data and the partitions."""
METRICS = (ACCURACY, "test/loss", "bpp/uplink", "paper/bpp/uplink", "bits/uplink", "bits/total")
CLASSES = ("background", "disc", "square", "triangle", "ring")
LENET = Experiment(
    "fedmrn_fashion_lenet5",
    [
        f"experiment=fedmrn/table1 {DATA}=fashion_mnist {SPLIT}=non_iid_1 {METHOD}=fedavg,fedmrn model=lenet5 "
        "rounds=40 client.epochs=1 client.batch_size=10 client.lr=0.1 eval_every=2 seed=0,1,2 "
        "name=fedmrn_fashion_lenet5"
    ],
    "rounds=4 seed=0",
    METRICS,
    curves={ACCURACY: "fedmrn_fashion_lenet5.png"},
)
TEXT = Experiment(
    "fedmrn_shakespeare",
    [f"experiment=fedmrn/shakespeare rounds=10 eval_every=5 seed={seed}" for seed in (0, 1, 2)],
    f"rounds=1 eval_every=1 seed=0 {METHOD}=fedavg,fedmrn",
    (*METRICS, "test/perplexity"),
    curves={ACCURACY: "fedmrn_shakespeare.png"},
)
TEXT_NOISE = Experiment(
    "fedmrn_shakespeare_noise",
    [
        f"experiment=fedmrn/shakespeare {METHOD}=fedmrn seed=0 algorithm.alpha=0.003,0.01,0.03 rounds=4 eval_every=4 "
        "name=fedmrn_shakespeare_noise"
    ],
    "rounds=1 eval_every=1 algorithm.alpha=0.003",
    METRICS,
    ["algorithm.alpha"],
)
PIXELS = Experiment(
    "fedmrn_shapes",
    [
        f"experiment=fedmrn/other_tasks_small {DATA}=shapes rounds=10 eval_every=5 seed={seed} name=fedmrn_shapes"
        for seed in (0, 1)
    ],
    f"rounds=2 eval_every=2 seed=0 {METHOD}=fedavg,fedmrn",
    (*METRICS, "test/miou", *(f"test/iou/{name}" for name in CLASSES)),
    curves={"test/miou": "fedmrn_shapes.png"},
    draw=draw_masks,
)
CNN6 = Experiment(
    "fedmrn_cifar10_cnn6",
    [
        f"experiment=fedmrn/table1 {DATA}=cifar10 {SPLIT}=iid {METHOD}=fedavg,fedmrn model=cnn6 rounds=10 "
        "participation.num_participants=3 client.epochs=1 client.batch_size=16 client.lr=0.05 eval_every=10 seed=0 "
        "name=fedmrn_cifar10_cnn6"
    ],
    f"rounds=1 participation.num_participants=1 {METHOD}=fedmrn",
    METRICS,
)
EXPERIMENTS = (LENET, TEXT, TEXT_NOISE, PIXELS, CNN6)


CLAIMS: Sequence[tuple[str, str, Experiment | str]] = [
    ("as accurate as FedAvg with an LSTM on Shakespeare and BiSeNetV2 on PascalVOC (appendix A, table 3)", "", "")
]
"""About these tasks; ours are shorter or of other data."""


def sections(folder: Folder) -> str:
    """The part of docs/results/fedmrn.md about them."""
    lenet, text, text_noise = folder[LENET], folder[TEXT], folder[TEXT_NOISE]
    pixels, cnn6 = folder[PIXELS], folder[CNN6]
    return f"""\
## LeNet-5 on Fashion-MNIST

{made_with(LENET, lenet)}

100 clients of a Dirichlet partition with alpha 0.3, 10 a round; both methods at a rate of 0.1. LeNet-5 starts on a
plateau, which the bounded steps of a mask leave later than those of FedAvg.

{beside({}, lenet, [_LAST, UPLINK])}

{picture("FedAvg and FedMRN with LeNet-5 on Fashion-MNIST", "fedmrn_fashion_lenet5.png", lenet)}

## Text (table 3)

{made_with(TEXT, text)}

FedMRN's LSTM, 50 of Shakespeare's roles, 10 a round, one epoch. The printed column is of LEAF's text after 100 rounds,
and no target: the paper's program also sends the plain update of the weights beside the masks. A table of the most
frequent next character reaches 28.7 % (`tests/dataset/test_shakespeare.py`). At FedAvg's rate of 3 SignSGD and EDEN
diverge, so that they have rates of 0.3 and 1.

{beside(_printed("Shakespeare"), text, [_PERPLEXITY, UPLINK])}

{picture("Four methods on text", "fedmrn_shakespeare.png", text)}

Magnitude of FedMRN's noise, of which the program has 0.003 here:

{made_with(TEXT_NOISE, text_noise)}

{_by_magnitude(text_noise)}

## Classes of pixels (table 3)

{made_with(PIXELS, pixels)}

Coloured shapes in place of PascalVOC: a BiSeNetV2 of 223,861 parameters, 16 clients of one class, 8 a round, two
epochs. The printed column is of PascalVOC. BatchNorm's messages make 1 bit more than 2.

{beside(_printed("PascalVOC"), pixels, [_MIOU, UPLINK])}

Intersection over union of each class at the last round:

{_by_class(pixels)}

{picture("Mean IoU against bits and rounds", "fedmrn_shapes.png", pixels)}

{picture(_MASKS, "fedmrn_shapes_masks.png", pixels)}

## CIFAR-10 with cnn6

{made_with(CNN6, cnn6)}

The official, lossless pictures; 100 clients of 500, 3 a round, one epoch. cnn6 has no BatchNorm and does not leave its
first plateau, the accuracy of chance, in so few steps of plain SGD; with Adam it learns in as few
([performance](../performance.md)).

{beside({}, cnn6, [_LOSS, UPLINK])}"""


_MASKS = "Pictures, the classes of their pixels (white: none), and what FedAvg, EDEN, SignSGD and FedMRN predict"
_LAST: tuple[str, Cell] = ("last (%)", last(ACCURACY, "{:.2f}".format, 100))
_LOSS: tuple[str, Cell] = ("test loss", last("test/loss", "{:.4f}".format))
_PERPLEXITY: tuple[str, Cell] = ("perplexity", last("test/perplexity", "{:.1f}".format))
_MIOU: tuple[str, Cell] = ("mean IoU", last("test/miou", "{:.3f}".format))


def _printed(dataset: str) -> dict[str, published.Printed]:
    return {row.method: row for row in published.load("fedmrn") if row.dataset == dataset}


def _by_magnitude(records: Records) -> str:
    rows = [
        (f"α = {alpha}", records.where(algorithm__alpha=alpha))
        for alpha in sorted(records.values("algorithm.alpha"), key=float)
    ]
    return table("", rows, [_LOSS, ("accuracy (%)", _LAST[1])])


def _by_class(records: Records) -> str:
    rows = [(label, records.where(label=label)) for label in records.values("label")]
    return table("", rows, [(name, last(f"test/iou/{name}", "{:.3f}".format)) for name in CLASSES])
