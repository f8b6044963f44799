"""Networks by their preset: `lte`, instead of `lognormal down_bps=2.9e+07 up_bps=5.74e+06 rtt_s=0.0616`.

And methods of one class by their choice: `dasha`, instead of `gradient_estimate estimate=dasha`.
"""

from functools import lru_cache

from fedcomp.core.choices import called, choices
from fedcomp.core.folders import part_name
from fedcomp.reporting.labels import Flat, flatten, within

TARGET, METHOD = "network._target_", "algorithm._target_"
FIGURES = ("network.down_bps", "network.up_bps", "network.rtt_s")


def with_preset(flat: Flat) -> Flat:
    """A config whose network is the preset of `conf/network` that it is, and the options that differ from that.

    And whose method is the choice that it is, of those of its class.

    A network is a preset if it has the preset's own values: rates, round trip, and all in which the preset differs from
    the general choice of its kind, but not, say, its jitter.

    Args:
        flat: the config as dotted keys; with a network that is no preset it stays as it is.
    """
    if METHOD in flat:
        method = {key.removeprefix("algorithm."): value for key, value in flat.items() if within(key, {"algorithm"})}
        if (name := called("algorithm", method)) != part_name(flat[METHOD]):
            flat = {**flat, METHOD: name}
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
