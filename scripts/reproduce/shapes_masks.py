"""The picture of predicted classes of pixels, from checkpoints: rows for methods below pictures and labels."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fedcomp.api.runs import load_runs
from fedcomp.dataset.images.shapes import load

NUM_PICTURES = 10
COLOURS = np.full((256, 3), 255, dtype=np.uint8)  # 255, no class, is white
COLOURS[:5] = [[0, 0, 0], [230, 60, 60], [60, 200, 60], [70, 90, 240], [240, 220, 60]]
"""Of background, disc, square, triangle and ring."""


def draw(folder: Path, place: Path) -> None:
    """Write `fedmrn_shapes_masks.png` to `place`, of the finished runs with seed 0 in `folder`."""
    runs = {run.config.label: run for run in load_runs(folder) if run.state == "finished" and run.config.seed == 0}
    if not runs:
        return
    dataset = load(objects=next(iter(runs.values())).config.dataset.objects)
    pictures, labels = dataset.test.x[:NUM_PICTURES], dataset.test.y[:NUM_PICTURES]
    rows = [_row(pictures.numpy()), _row(COLOURS[labels.numpy()])]
    for method in ("FedAvg", "EDEN", "SignSGD", "FedMRN"):
        if method in runs:
            with torch.no_grad():
                classes = runs[method].model()(dataset.normalise(pictures)).argmax(1)
            rows.append(_row(COLOURS[classes.numpy()]))
    Image.fromarray(np.concatenate(rows)).save(place / "fedmrn_shapes_masks.png")


def _row(pictures: np.ndarray) -> np.ndarray:
    """Pictures [n, S, S, 3] side by side, [S, n S, 3]."""
    return np.concatenate(list(pictures), axis=1)
