"""Networks by their preset: `lte`, instead of `lognormal down_bps=2.9e+07 up_bps=5.74e+06 rtt_s=0.0616`.

And other parts by their choice: `dasha`, not `gradient_estimate estimate=dasha`; `torchvision`, not `classifier`.
"""

from functools import lru_cache

from fedcomp.core.choices import FOLDERS, called, choices
from fedcomp.core.folders import part_name
from fedcomp.reporting.labels import Flat, flatten, within

TARGET = "network._target_"
FIGURES = ("network.down_bps", "network.up_bps", "network.rtt_s")


def with_preset(flat: Flat) -> Flat:
    """A config whose network is the preset of `conf/network` that it is, and the options that differ from that.

    And whose other parts are the choices that they are, of those of their classes.

    A network is a preset if it has the preset's own values: rates, round trip, and all in which the preset differs from
    the general choice of its kind, but not, say, its jitter.

    Args:
        flat: the config as dotted keys; with a network that is no preset it stays as it is.
    """
    for group in [key.removesuffix("._target_") for key in flat if key.count(".") == 1 and key.endswith("._target_")]:
        own = {key.removeprefix(f"{group}."): value for key, value in flat.items() if within(key, {group})}
        target = f"{group}._target_"
        if target != TARGET and (name := called(FOLDERS.get(group, group), own)) != part_name(flat[target]):
            flat = {**flat, target: name}
    fitting = [
        (len(own), name, options)
        for name, (own, options) in _presets().items()
        if part_name(flat.get(TARGET)) == part_name(options[TARGET])
        and all(flat.get(key) == value for key, value in own.items())
    ]
    if not fitting:
        return flat
    _, name, options = max(fitting)
    rest = {key: value for key, value in flat.items() if key not in options or value != options[key]}
    return {**rest, TARGET: name}


@lru_cache(maxsize=1)
def _presets() -> dict[str, tuple[Flat, Flat]]:
    """{name: (own values, all options)}, with the options' dotted keys."""
    every = {name: flatten(one, "network.") for name, one in choices("network").items()}
    found = {}
    for name, options in every.items():
        general = part_name(options[TARGET])
        own = {key: value for key, value in options.items() if key in FIGURES or value != every[general].get(key)}
        if name != general:
            found[name] = own, options
    return found
