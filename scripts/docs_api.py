"""A hook of MkDocs: pages of the API reference, of what users import, from the docstrings of fedcomp/."""

import importlib
import inspect

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

KINDS = ("codec", "algorithm", "client", "server", "dataset", "partition", "participation")
PAGES = {
    "running": ("Runs and reports", ("fedcomp.api.runs", "fedcomp.api.evaluate", "fedcomp.api.export")),
    "codecs": ("Codecs", ("fedcomp.compressor.contract", "fedcomp.wire.payload", "fedcomp.wire.shared_knowledge")),
    "algorithms": (
        "Algorithms",
        ("fedcomp.algorithm.contract", "fedcomp.algorithm.downlinks.downlink", "fedcomp.core.cohort"),
    ),
    "solvers": ("Local solvers", ("fedcomp.client.solver", "fedcomp.client.minibatch", "fedcomp.server.contract")),
    "data": ("Data", ("fedcomp.dataset.contract",)),
    "random": ("Random draws", ("fedcomp.random.keys",)),
    "checks": ("Checks", ("fedcomp.check", *(f"fedcomp.check.{kind}" for kind in KINDS))),
}
"""{page: (its title, the modules on it)}."""
CODINGS = "fedcomp.wire.coding"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages last in the navigation."""
    pages = [{title: f"api/{page}.md"} for page, (title, _) in PAGES.items()]
    config.nav = [*(config.nav or []), {"API": [*pages, {"Codings": "api/codings.md"}]}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Generate the pages, which exist only in the built site."""
    for page, (title, modules) in PAGES.items():
        text = "\n".join([f"# {title}\n", *(f"::: {module}\n" for module in modules)])
        files.append(File.generated(config, f"api/{page}.md", content=text))
    files.append(File.generated(config, "api/codings.md", content=codings()))
    return files


def codings() -> str:
    """A page with a table of the codings of fields: what each accepts, and whether its bits depend on the values."""
    module = importlib.import_module(CODINGS)
    classes = [one for name in module.__all__ if inspect.isclass(one := getattr(module, name)) and name != "Coding"]
    rows = [f"| `{one.__name__}{_arguments(one)}` | {_first_sentence(one)} |" for one in classes]
    head = ["# Codings", "", f"`from {CODINGS} import ...`", "", "| coding | what its entries are |", "| --- | --- |"]
    return "\n".join([*head, *rows, "", *(f"::: {one.__module__}.{one.__name__}\n" for one in classes)])


def _arguments(coding: type) -> str:
    return str(inspect.signature(coding)).split(" ->")[0].replace("|", "\\|").replace("torch.", "")


def _first_sentence(coding: type) -> str:
    return " ".join((inspect.getdoc(coding) or "").split("\n\n")[0].split()).replace("|", "\\|")
