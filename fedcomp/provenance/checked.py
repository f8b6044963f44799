"""Which parts of the user's own have passed `fedcomp-check`, and what a run says of one that has not."""

from collections.abc import Iterator, Mapping
from typing import Any

from fedcomp.core.choices import FOLDERS, parts
from fedcomp.provenance.code import code_parts
from fedcomp.records.cached import cached, keep

KIND = "checked"
UNSEEN = {
    "compressor": "that its messages say all that is decoded",
    "downlink": "that its messages say all that is decoded",
    "algorithm": "that nothing reaches the other end without a message",
    "client": "that a client's steps are its own, along the gradients that an algorithm corrects",
    "participation": "that its weights count clients as they should",
}
"""{config key: what a simulation cannot see of such a part}."""


def keep_passed(group: str, part: Mapping[str, Any]) -> None:
    """Keep that a part of this group, as its code is now, has passed all checks; its options may be others later."""
    if (question := _question(group, part)) is not None:
        keep(KIND, question, True)


def unchecked(config: Mapping[str, Any]) -> Iterator[str]:
    """A line for each part of the user's own of this resolved config that has not passed."""
    for key, what in UNSEEN.items():
        group = FOLDERS.get(key, key)
        question = _question(group, config[key])
        if question is not None and cached(KIND, question) is not True:
            targets = (str(one["_target_"]) for one in parts(config[key]))  # a feedback may be one's own, the codec not
            own = next(target for target in targets if code_parts({"_target_": target}))
            yield (
                f"{key}: {own} has not passed fedcomp-check as its code is now, and a simulation "
                f"cannot see {what}: fedcomp-check {group}=<its name>, with your options, tries it"
            )


def _question(group: str, part: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the answer depends on; None: the part has no code of the user's own."""
    code = {name: one.digest for name, one in code_parts(part).items()}
    targets = sorted(str(one["_target_"]) for one in parts(part))
    return {"group": group, "parts": targets, "code": code} if code else None
