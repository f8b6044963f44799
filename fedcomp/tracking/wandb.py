"""Weights & Biases shows the record: every evaluation once, against bits, also after kills and network failures.

The record on disk is the truth, and W&B mirrors it by round: what W&B has is left out, what it lacks is logged from the
record. So rounds that are computed again after a kill appear once, and lost evaluations appear after all.

- Online, the last round that W&B has is in the run's summary on the server.
- A run that is finished is shown from its record, if W&B lacks it or an agent of a sweep wants it as a run of its own.
- Offline, each session writes a file of its own, which `wandb sync` uploads: a piece. `wandb_pieces.json` in the run's
  folder notes which pieces were closed, and their last rounds. A piece that was not closed, because the process was
  killed, may end in half a record: `wandb sync` uploads it up to there, refuses it, and refuses the later pieces of the
  run with it. So the next offline session logs all that no closed piece holds, and removes the pieces that were not
  closed; machine statistics of killed sessions go with them. Rounds come twice only if a piece was uploaded before its
  killed run was resumed, or if a run was killed online and resumes offline: `wandb sync` drops nothing.

`step=` is not used: W&B drops every line whose step is not larger than the last, which after a resume from an older
checkpoint are the right ones.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal, get_args

from fedcomp.core.choices import FOLDERS, called
from fedcomp.core.first_line import first_line
from fedcomp.core.parse import parse_json
from fedcomp.core.validate import check_interval, is_whole
from fedcomp.records.atomic_write import write_atomically
from fedcomp.records.metrics_file import FILE as RECORD
from fedcomp.records.metrics_file import Metrics, read_lines
from fedcomp.records.reader import RunFiles
from fedcomp.records.run_folder import CURVE, PARTITION
from fedcomp.tracking.call_with_timeout import CallWithTimeout
from fedcomp.tracking.contract import RunInfo, Tracker
from fedcomp.tracking.wandb_artifacts import check_kinds, input_artifact, output_artifacts
from fedcomp.tracking.wandb_axes import against_other_axes, x_axis

if TYPE_CHECKING:
    import wandb

Mode = Literal["online", "offline", "disabled"]

ID_FILE, PIECES_FILE = "wandb_id", "wandb_pieces.json"
PICTURES = {"partition": PARTITION, "curve": CURVE}
"""{column of W&B's history: picture of the run}."""
FLUSH_SECONDS = 1.0
LOCAL_SECONDS = 60.0
"""What a call that needs no server may take (a slow file system, a busy machine) before W&B is given up."""


class Wandb(Tracker):
    """A W&B run beside the record. `conf/tracker/wandb.yaml` explains the options.

    Raises ValueError: an option that W&B refuses.
    """

    def __init__(
        self,
        mode: str = "offline",
        project: str = "fedcomp",
        entity: str | None = None,
        run_name: str | None = None,
        job_type: str = "train",
        tags: Sequence[str] = (),
        notes: str | None = None,
        folder: str | None = None,
        timeout: float = 60.0,
        artifacts: Sequence[str] = (),
        group: str | None = None,
    ) -> None:
        variable = os.environ.get("WANDB_MODE")
        self._mode = variable or mode
        if self._mode not in get_args(Mode):
            source = "WANDB_MODE" if variable else "tracker.mode"
            raise ValueError(f"{source}={self._mode} must be one of {', '.join(get_args(Mode))}")
        refused = sorted(set(project) & set("/\\#?%:")) if project else []
        if not project or refused or len(project) > 128:
            raise ValueError(f"tracker.project={project!r} must be 1 to 128 characters without any of / \\ # ? % :")
        for tag in tags:
            if not 1 <= len(str(tag)) <= 64:
                raise ValueError(f"tracker.tags: {tag!r} must be 1 to 64 characters")
        check_interval("tracker.timeout", timeout, "(0, inf)", "a number of seconds")
        self._artifacts, self._group = check_kinds(artifacts), group
        self._options: dict[str, Any] = {"project": project, "entity": entity, "job_type": job_type, "notes": notes}
        self._name, self._tags, self._folder, self._timeout = run_name, [str(tag) for tag in tags], folder, timeout
        self._call_with_timeout = CallWithTimeout()
        self._run: wandb.Run | None = None
        self._last_round = -1
        self._defined: set[str] = set()
        self._closed: dict[str, int] = {}  # {folder of a piece that was closed: its last round}

    def lacks(self, folder: Path) -> bool:
        """Whether a finished run is not at W&B yet, or an agent of a sweep waits for it under an id of its own."""
        known, wanted = _kept_id(folder), _agents_id()
        return self._mode != "disabled" and (known is None or wanted not in (None, known))

    def start(self, run: RunInfo) -> None:
        """Open the run, offline if the server does not answer, and log what the record holds and W&B does not."""
        self._info, mode = run, self._mode
        if mode == "disabled":
            return
        if mode == "online" and not os.environ.get("WANDB_API_KEY"):
            run.note("W&B: WANDB_API_KEY is not set, so this run stays offline")
            mode = "offline"
        if mode == "online" and not self._try("no answer, this run stays offline", lambda: self._open("online")):
            mode = "offline"
            self._call_with_timeout(_teardown, LOCAL_SECONDS)
        if mode == "offline" and not self._try("not available, the run goes on without", lambda: self._open("offline")):
            return
        known = self._try("rounds that were logged offline may come twice", self._read_closed_pieces)
        self._try("cannot read what is there", self._find_last_round)
        for line in read_lines(run.folder / RECORD):
            self.log(line)
        if known and self._run is not None and self._run.offline:
            self._try("pieces of killed sessions stay, so rounds may come twice", self._remove_unclosed_pieces)

    def log(self, record: Metrics) -> None:
        """Add one evaluation unless W&B has its round already."""
        if self._run is None or record["round"] <= self._last_round:
            return
        row = {**record, **against_other_axes(record)}
        if not self._try("stopped logging, the run goes on without", lambda: self._add(row)):
            self._run = None
        self._last_round = int(record["round"])

    def finish(self, state: str, summary: Metrics) -> None:
        """Add picture and summary, and close the run as finished, failed or (interrupted) preempted."""
        run = self._run
        if run is not None:
            self._run = None
            self._try("summary or curve are missing", lambda: self._summarise(run, state, summary))
            if state == "finished" and self._artifacts:
                if not run.offline:  # where W&B takes no inputs
                    self._try("the data are not noted as the run's input", lambda: self._use_data(run))
                self._try("artifacts are missing", lambda: self._log_artifacts(run, summary))
            if state == "interrupted":
                self._try("cannot mark the run as preempted", run.mark_preempting)
            closed = self._try(
                f"not everything has arrived; `wandb sync {quote(run.settings.sync_dir)}` uploads the rest",
                lambda: run.finish(exit_code=0 if state == "finished" else 1),
            )
            if closed:
                self._try("a resume will log all rounds again", lambda: self._note_closed_piece(run))
        self._call_with_timeout.close()

    def _try(self, otherwise: str, call: Callable[[], Any]) -> bool:
        """Make the call; if it fails or hangs, say `otherwise` and why in one line, and return False."""
        error = self._call_with_timeout(call, self._timeout + LOCAL_SECONDS)
        if error is not None:
            reason = first_line(error)[:200]
            missing = isinstance(error, ModuleNotFoundError) and error.name == "wandb"
            self._info.note(f"W&B: {otherwise} ({'it is missing: pip install wandb' if missing else reason})")
        return error is None

    def _open(self, mode: Literal["online", "offline"]) -> None:
        os.environ.setdefault("WANDB_SILENT", "true")
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        info = self._info
        parts = ("algorithm", "dataset", "model", "compressor", "downlink")
        names = [called(FOLDERS.get(part, part), info.config[part]) for part in parts]
        algorithm, *data, uplink, downlink = names
        unused = RunFiles(info.folder).unused()
        ways = {"compressor": uplink, "downlink": f"downlink-{downlink}"}
        codecs = [tag for way, tag in ways.items() if way not in unused]
        label = info.config.get("label")
        method = label or " ".join([algorithm, *([f"{uplink}/{downlink}"] if len(codecs) == 2 else codecs)])
        tags = [label, algorithm, *codecs, *data, *self._tags]
        wanted: dict[str, Any] = {
            "silent": True,
            "console": "off",
            "save_code": False,
            "init_timeout": self._timeout,
            "finish_timeout": self._timeout,
            "finish_timeout_raises": True,
            "x_transaction_log_flush_interval": FLUSH_SECONDS,
        }
        known = {key: value for key, value in wanted.items() if key in wandb.Settings.model_fields}
        self._run = wandb.init(
            **self._options,
            mode=mode,
            id=_run_id(info),
            resume="allow",
            reinit="finish_previous",
            group=self._group or info.config_hash,
            name=self._name or f"{method} seed={info.seed}"[:128],
            tags=list(dict.fromkeys(str(tag)[:64] for tag in tags if tag)),
            config={**info.config, "config_hash": info.config_hash, "method": method, **info.facts},
            dir=self._folder or str(info.folder),
            settings=wandb.Settings(**known),
        )
        upload = f"offline; `wandb sync {quote(self._run.settings.sync_dir)}` uploads it"
        info.note(f"W&B: {self._run.url if mode == 'online' else upload}")

    def _find_last_round(self) -> None:
        """The last round that the server has; offline, that the closed pieces of the run have."""
        assert self._run is not None
        if self._run.offline:
            own = [last for name, last in self._closed.items() if name.endswith(f"-{self._run.id}")]
            self._last_round = max(own, default=-1)
        elif self._run.resumed:
            self._last_round = int(self._run.summary.get("round", -1))

    def _read_closed_pieces(self) -> None:
        path = self._info.folder / PIECES_FILE
        try:
            found = parse_json(path.read_bytes()) if path.exists() else {}
        except ValueError:
            found = None
        if not isinstance(found, dict) or not all(map(is_whole, found.values())):
            raise ValueError(f"{path} is damaged, and is written anew")
        self._closed = found

    def _note_closed_piece(self, run: wandb.Run) -> None:
        pieces = {**self._closed, Path(run.settings.sync_dir).name: self._last_round}
        write_atomically(self._info.folder / PIECES_FILE, json.dumps(pieces).encode() + b"\n")

    def _remove_unclosed_pieces(self) -> None:
        """Remove the offline pieces of sessions that were killed; the piece that is open holds all of their rounds."""
        assert self._run is not None
        settings = self._run.settings
        for folder in Path(settings.wandb_dir).glob(f"offline-run-*-{self._run.id}*"):
            if folder.name not in self._closed and folder != Path(settings.sync_dir):
                shutil.rmtree(folder, ignore_errors=True)

    def _add(self, row: Mapping[str, float | int]) -> None:
        assert self._run is not None
        for name in row.keys() - self._defined:
            summary = "max,last" if name in ("test/accuracy", "test/miou") else None
            self._run.define_metric(name, step_metric=x_axis(name), summary=summary)
        self._defined |= row.keys()
        self._run.log({**row, **(self._picture("partition") if self._last_round < 0 else {})})

    def _summarise(self, run: wandb.Run, state: str, last: Metrics) -> None:
        curve = self._picture("curve")
        if curve:
            run.log(curve)
        best: dict[str, float | int] = {}
        for name, pick in (("miou", max), ("accuracy", max), ("loss", min)):
            key = f"test/{name}"
            lines = [line for line in read_lines(self._info.folder / RECORD) if math.isfinite(line.get(key, math.nan))]
            if lines:
                line = pick(lines, key=itemgetter(key))
                best |= {f"{pick.__name__}_{name}": line[key], f"{pick.__name__}_{name}_round": line["round"]}
        spent = {name: value for name, value in last.items() if x_axis(name) in (None, "round")}
        run.summary.update({"state": state, **spent, **best})

    def _use_data(self, run: wandb.Run) -> None:
        import wandb

        data = input_artifact(wandb, self._info)
        if data is not None:
            run.use_artifact(data)

    def _log_artifacts(self, run: wandb.Run, last: Metrics) -> None:
        import wandb

        for artifact in output_artifacts(wandb, self._info, self._artifacts, last):
            run.log_artifact(artifact, aliases=["final"])

    def _picture(self, name: str) -> dict[str, Any]:
        import wandb

        path = self._info.folder / PICTURES[name]
        return {name: wandb.Image(str(path))} if path.exists() else {}


def _run_id(info: RunInfo) -> str:
    """The run's id at W&B: kept in its folder for resuming; new with `overwrite=true`, which starts another run.

    Under an agent of a sweep it is the one that the agent gives, also where another agent had the same config before.
    """
    known = _kept_id(info.folder)
    wanted = _agents_id() or known or f"{info.config_hash}-{info.seed}-{secrets.token_hex(3)}"
    if wanted != known:
        write_atomically(info.folder / ID_FILE, f"{wanted}\n".encode())
    return wanted


def _kept_id(folder: Path) -> str | None:
    """The id in a run's folder; None: it has none, or an empty file, as a full disk leaves it."""
    path = folder / ID_FILE
    return path.read_text(encoding="utf-8", errors="replace").strip() or None if path.exists() else None


def _agents_id() -> str | None:
    """The id under which an agent of a sweep (`wandb agent`) waits for this run; None: no agent started it."""
    return os.environ.get("WANDB_RUN_ID") or None if os.environ.get("WANDB_SWEEP_ID") else None


def _teardown() -> None:
    """End W&B's service: an id whose opening failed would count as in use."""
    import wandb

    wandb.teardown()
