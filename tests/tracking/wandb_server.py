"""A stand-in for the W&B server: the calls that wandb-core 0.31 makes for a run, answered from memory on 127.0.0.1.

Found by recording what wandb-core asks: GraphQL `RunResumeStatus` (does the run exist, how many lines has it?),
`UpsertBucket` (config, names, tags), `CreateRunFiles` (where to put pictures), then POSTs of lines to the run's
`file_stream` and PUTs of files. Lines carry offsets; a line that is sent again replaces the earlier one.

`wandb agent` asks for the sweep (`SweepWithRuns`), registers (`CreateAgent`), and gets its runs with each `Heartbeat`.
"""

import gzip
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

ENTITY = "somebody"
VIEWER = {"id": "viewer", "name": ENTITY, "username": ENTITY, "email": "", "admin": False, "flags": "{}"}
VIEWER |= {"entity": ENTITY, "deletedAt": None, "apiKeys": {"edges": []}, "teams": {"edges": []}}


@dataclass
class ServedRun:
    """What the server knows of a run: `sent` as UpsertBucket gave it, lines by offset, files by name."""

    sent: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, dict[int, str]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    exit_codes: list[int] = field(default_factory=list)

    @property
    def history(self) -> list[dict[str, Any]]:
        """The evaluations in the order of their offsets."""
        return [json.loads(line) for _, line in sorted(self.lines.get("wandb-history.jsonl", {}).items())]

    @property
    def summary(self) -> dict[str, Any]:
        """The summary sent last."""
        summaries = self.lines.get("wandb-summary.json", {})
        return json.loads(summaries[max(summaries)]) if summaries else {}

    @property
    def config(self) -> dict[str, Any]:
        """The config without W&B's own part."""
        config = json.loads(self.sent["config"])
        return {key: entry["value"] for key, entry in config.items() if key != "_wandb"}


class WandbServer:
    """`with WandbServer() as server:` listens on `server.url`; `server.runs` is what arrived.

    Attributes:
        fail_with: an HTTP status to answer everything with from now on; None to work.
        silent: accept connections, never answer.
        sweep: the YAML of the one sweep there is. points: what its agents are still to run, by the runs' ids.
    """

    def __init__(self) -> None:
        self.runs: dict[str, ServedRun] = {}
        self.fail_with: int | None = None
        self.silent = False
        self.sweep = ""
        self.points: dict[str, dict[str, Any]] = {}
        self.operations: list[str] = []
        self._released = threading.Event()

    def __enter__(self) -> Self:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if server.silent:
                    server._released.wait()
                    return
                status = server.fail_with or 200
                data = b"{}" if server.fail_with else json.dumps(server.answer(self.path, body)).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = _answer

        self._http = _Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._http.shutdown()
        self._http.server_close()

    def answer(self, path: str, body: bytes) -> dict[str, Any]:
        """The answer to one request."""
        if path == "/graphql":
            call = json.loads(body)
            asked = re.search(r"(?:query|mutation) (\w+)", call["query"])
            name = call.get("operationName") or (asked[1] if asked else "")
            self.operations.append(name)
            answers = {"RunResumeStatus": self._status, "UpsertBucket": self._upsert, "CreateRunFiles": self._files}
            answers |= {"SweepWithRuns": self._sweep, "Heartbeat": self._heartbeat}
            answers["CreateAgent"] = lambda _: {"createAgent": {"agent": {"id": "agent"}}}
            answers["Viewer"] = lambda _: {"viewer": VIEWER}
            return {"data": answers[name](call.get("variables", {})) if name in answers else {}}
        parts = path.strip("/").split("/")
        if parts[0] == "files" and parts[-1] == "file_stream":
            self._stream(self.runs.setdefault(parts[-2], ServedRun()), json.loads(body))
        elif parts[0] == "put":
            self.runs[parts[1]].files["/".join(parts[2:])] = body
        return {}

    def _status(self, asked: dict[str, Any]) -> dict[str, Any]:
        run = self.runs.get(asked["name"])
        bucket = None
        if run is not None:
            count = {name: len(run.lines.get(f"wandb-{name}.jsonl", {})) for name in ("history", "events")}
            bucket = {"id": "bucket", "name": asked["name"], "summaryMetrics": json.dumps(run.summary)}
            bucket |= {name: run.sent.get(name) for name in ("displayName", "config", "tags", "notes")}
            bucket |= {f"{name}LineCount": num for name, num in count.items()} | {"logLineCount": 0}
            bucket |= {"historyTail": json.dumps([json.dumps(line) for line in run.history[-1:]]), "eventsTail": "[]"}
            bucket |= {"wandbConfig": json.dumps({"t": {"1": []}})}
        return {"model": {"id": "project", "name": asked["project"], "entity": _entity(), "bucket": bucket}}

    def _upsert(self, given: dict[str, Any]) -> dict[str, Any]:
        inserted = given["name"] not in self.runs
        run = self.runs.setdefault(given["name"], ServedRun())
        run.sent.update({key: value for key, value in given.items() if value is not None})
        project = {"id": "project", "name": given["project"], "entity": _entity()}
        bucket = {"id": "bucket", "name": given["name"], "description": None, "sweepName": None, "project": project}
        bucket |= {name: run.sent.get(name) for name in ("displayName", "config")}
        bucket |= {"historyLineCount": len(run.history)}
        return {"upsertBucket": {"bucket": bucket, "inserted": inserted}}

    def _files(self, wanted: dict[str, Any]) -> dict[str, Any]:
        put = f"{self.url}/put/{wanted['run']}"
        files = [{"name": name, "uploadUrl": f"{put}/{name}"} for name in wanted["files"]]
        return {"createRunFiles": {"runID": "bucket", "uploadHeaders": [], "files": files}}

    def _sweep(self, asked: dict[str, Any]) -> dict[str, Any]:
        known = {"id": "sweep", "name": asked["sweep"], "state": "RUNNING", "config": self.sweep, "runs": {"edges": []}}
        return {"project": {"sweep": known}}

    def _heartbeat(self, said: dict[str, Any]) -> dict[str, Any]:
        """The next run, once the one before has ended; then the end."""
        commands: list[dict[str, Any]] = []
        if not json.loads(said["runState"]):
            commands = [{"type": "exit"}]
            if self.points:
                run_id = next(iter(self.points))
                args = {name: {"value": value} for name, value in self.points.pop(run_id).items()}
                commands = [{"type": "run", "run_id": run_id, "args": args, "program": "fedcomp"}]
        return {"agentHeartbeat": {"agent": {"id": "agent"}, "commands": json.dumps(commands)}}

    def _stream(self, run: ServedRun, sent: dict[str, Any]) -> None:
        for name, chunk in (sent.get("files") or {}).items():
            lines = run.lines.setdefault(name, {})
            lines.update({chunk["offset"] + place: line for place, line in enumerate(chunk["content"])})
        if sent.get("complete"):
            run.exit_codes.append(int(sent.get("exitcode") or 0))


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no news."""


def _entity() -> dict[str, str]:
    return {"id": "entity", "name": ENTITY}
