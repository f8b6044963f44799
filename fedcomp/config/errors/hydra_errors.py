"""Hydra's and OmegaConf's errors as one line: what was given, what is allowed, and the most similar name."""

import re
from collections.abc import Sequence
from pathlib import Path

from hydra.errors import HydraException, InstantiationException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fedcomp.config.comments import comments_of
from fedcomp.config.errors.slips import blanks, elsewhere, no_integer
from fedcomp.config.loading import load
from fedcomp.config.options import parameters_of, renamed
from fedcomp.config.overrides import quote_text, quoting_error
from fedcomp.config.schema import PARTS, READ_BESIDE
from fedcomp.core.folders import CONF
from fedcomp.core.validate import did_you_mean

UNKNOWN_KEY = re.compile(r"Could not override '([^']+)'")
UNKNOWN_CHOICE = re.compile(
    r"Could not find '([^']+)'\s+Available options in '([^']+)':\s+(.*?)\s*(?:Config search|$)", re.S
)
MERGING = re.compile(r"Error merging override (([^\s=]+)\S*)")
"""How the error of a value of the wrong kind begins: with the override, of an option of the run."""
UNKNOWN_BEGIN = re.compile(r"^In '([^']+)': Could not load '([^']+)/([^'/]+)'")
"""A choice that begins with none that there is, by `defaults: [...]`: both, and their group."""
NO_INTEGER = re.compile(r"Value '([^']*)' of type '\w+' could not be converted to Integer")
NOT_ONE_OF = re.compile(r"Invalid value '[^']*', expected one of \[([^\]]*)\]")
NO_NULL = re.compile(r"field '[^']*' is not Optional")
WRONG_KINDS = {
    re.compile(r"of type '\w+' could not be converted to Float"): "a number",
    re.compile(r"Value '.*' is not a valid bool", re.S): "true or false",
    re.compile(r"is not a ListConfig"): "a list",
    re.compile(r"Cannot convert '\w+' to string"): "a text",
    re.compile(r"Cannot assign \w+ to Dict"): "a mapping, {name:value}",
}
"""What an option must be, by what OmegaConf says of another value."""
UNKNOWN_GROUP = re.compile(r"Could not override '([^']+)'\.\s+(?:No match|Did you mean)", re.S)
OF_HYDRA = ("full_key", "object_type", "reference_type", "Set the environment", "See https://hydra.cc")
"""How lines begin that say nothing to a user of fedcomp."""
SEVERAL = ("Sweep parameters", "Ambiguous value for argument")
"""How errors begin that say that an override has several values."""
ADDED = ("Multiple values for", "force-add of config groups is not supported")
"""What errors say of a choice that is added, with a +, to the one that there is."""
CHOICE = re.compile(rf"({'|'.join(PARTS)}|compressor@downlink|experiment)=[\w/]+")
"""One part of a run, chosen by name, or an experiment, which chooses several."""


def error_message(error: Exception, arguments: Sequence[str] = (), own: Sequence[Path] = ()) -> str:
    """The error in one line.

    Args:
        arguments: overrides of the command line; their choices determine the options. own: the user's config folders.
    """
    if isinstance(error, YAMLError):
        return f"a config is not valid YAML: {' '.join(str(error).split())}"
    message = _own_message(error)
    if message is not None:
        return message
    slip = blanks(arguments)
    if slip is not None:
        return slip
    unquoted = next((line for line in map(quoting_error, arguments) if line is not None), None)
    if unquoted is not None:
        return unquoted
    text = str(error)
    wrong_kind = _wrong_kind(f"{text} {error.__cause__}")
    if wrong_kind is not None:
        return wrong_kind
    if text.startswith(SEVERAL):
        other = _error_of_a_grid(arguments, own)
        if other is not None and not str(other).startswith(SEVERAL):
            return error_message(other, arguments, own)
    if text.startswith(SEVERAL[0]):
        given = text.split("'")[1]
        return f"{given} has several values: for a grid say -m"
    if "Key 'experiment' not in 'RunConfig'" in text:
        name = text.split("'")[1]
        return f"the keys of {name} belong to no part of a run: {name}.yaml must begin with `# @package _global_`"
    if "Key '_target_' not in 'RunConfig'" in text:
        name = text.split("'")[1]
        return f"{name}.yaml describes a part, and `# @package _global_` is for experiments: leave that line out"
    if text.startswith(SEVERAL[1]):
        given = text.splitlines()[0].removeprefix(f"{SEVERAL[1]} ")
        option, _, value = given.strip("'").partition("=")
        quoted = quote_text(option, value) if ", " in value else None
        hint = f"; if it is one text, quote it: {quoted}" if quoted is not None else ""
        return f"{given} has several values: for a grid say -m{hint}"
    adding = (word for word in arguments if word.startswith("+") and word.strip("+").partition("=")[0] in text)
    added = next(adding, None)
    if added is not None and any(said in text for said in ADDED):
        replaced = added.lstrip("+")
        return f"{added}: there is a choice of {replaced.partition('=')[0]} already, which {replaced} replaces"
    choice = UNKNOWN_CHOICE.search(text)
    if choice:
        wanted, group, options = choice.group(1), choice.group(2), choice.group(3).split()
        if group.split("/")[0] == "experiment":
            name = wanted.removeprefix("experiment/")
            hint = did_you_mean(name, comments_of("experiment", [CONF, *own]))
            return f"experiment={name} is unknown{hint} (`fedcomp experiment=` lists them)"
        name = wanted.removeprefix(f"{group}/")
        line = f"{group}={name} is unknown{_suggest(name.split('/')[-1], options)}"
        if did_you_mean(name, options):
            return line
        return f"{line}; of your own it is DIR/{group}/{name}.yaml, with --config-dir DIR"
    begin = UNKNOWN_BEGIN.search(text)
    if begin:
        file, group, name = begin.groups()
        hint = _suggest(name, list(comments_of(group, [CONF, *own])))
        return f"{file}.yaml: defaults: [{name}, ...]: {group}={name} is unknown{hint}"
    key = UNKNOWN_KEY.search(text)
    cause = error.__cause__
    if key and (
        "is not in struct" in f"{text} {cause}" or "not in '" in f"{text} {cause}" or UNKNOWN_GROUP.search(text)
    ):
        name = key.group(1).split("@")[-1]
        config = _composed(arguments, own)
        value = next((word.partition("=")[2] for word in arguments if word.lstrip("+").startswith(f"{name}=")), "")
        known = renamed(name) or _unlisted(name, value, config) or elsewhere(name, value, config, [CONF, *own])
        if known is not None:
            return known
        first, _, rest = name.partition(".")
        nowhere = bool(rest) and first not in config
        node = OmegaConf.select(config, name.rpartition(".")[0]) if rest and not nowhere else config
        siblings = (
            [str(key) for key in node if not str(key).startswith(("_", "hydra"))]
            if isinstance(node, DictConfig)
            else []
        )
        if nowhere:
            return f"there is no option '{name}', nor any '{first}'{_suggest(first, sorted(siblings))}"
        return f"there is no option '{name}'{_suggest(name.split('.')[-1], sorted(siblings))}"
    parts = [text] if cause is None or str(cause) in text else [text, str(cause)]
    lines = [line.strip().removeprefix("Error merging override ") for part in parts for line in part.split("\n")]
    kept = [line for line in lines if line and not line.startswith(OF_HYDRA)]
    return "; ".join(kept[:3])


def _wrong_kind(text: str) -> str | None:
    """The error in one line, if it is that an option of the run has a value of the wrong kind; None: it is not."""
    if (merging := MERGING.search(text)) is None:
        return None
    given, option = merging.groups()
    if (number := NO_INTEGER.search(text)) is not None:
        return no_integer(option, number[1])
    if (one_of := NOT_ONE_OF.search(text)) is not None:
        return f"{given} must be one of {one_of[1]}"
    if NO_NULL.search(text) is not None:
        return f"{option}=null: {option} needs a value (`fedcomp --help {option}` says which)"
    kind = next((kind for said, kind in WRONG_KINDS.items() if said.search(text)), None)
    return None if kind is None else f"{given} must be {kind}"


def _own_message(error: BaseException) -> str | None:
    """The message of a launcher, sweeper or objective that refuses its options; None for any other error."""
    if not isinstance(error, InstantiationException):
        return None
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) if isinstance(error, ValueError) else None


def _unlisted(name: str, value: str, config: DictConfig) -> str | None:
    """The error message for an option that a user's part takes and its YAML does not list; None: it is none."""
    group, _, option = name.rpartition(".")
    node = OmegaConf.select(config, group) if group in PARTS else None
    target = str(node["_target_"]) if isinstance(node, DictConfig) and "_target_" in node else "fedcomp."
    if target.startswith("fedcomp.") or option not in (*(parameters_of(target) or {}), *READ_BESIDE.get(group, ())):
        return None
    return (
        f"there is no option '{name}' in the YAML of {target}, which takes it: write `{option}: ...` there, with its "
        f"default, or give +{name}={value}"
    )


def _suggest(name: str, options: list[str]) -> str:
    return did_you_mean(name, options) + (f" (there are: {', '.join(options)})" if options else "")


def _error_of_a_grid(arguments: Sequence[str], own: Sequence[Path]) -> Exception | None:
    """The error that the command line has as a grid, too; then Hydra does not see that its experiment asks for one."""
    try:
        load(arguments, own, grid=True)
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        return error
    return None


def _composed(arguments: Sequence[str], own: Sequence[Path]) -> DictConfig:
    """The config that is composed of the command line's choices."""
    try:
        return load([word for word in arguments if CHOICE.fullmatch(word)], own)
    except HydraException:  # an unknown choice, which is reported elsewhere
        return load([])
