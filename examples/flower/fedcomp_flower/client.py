"""A ClientApp that is one client of a run: it answers each exchange by making its round from the frames so far.

A ClientApp cannot wait within a round for the server's next message, but a round is pure: its state at the beginning
and the frames since then are in the context, and the round is made again until it needs a frame that is not there.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping
from typing import Any

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from fedcomp.core.pytree import flatten, restore
from fedcomp.remote.client_end import ClientEnd
from fedcomp.remote.frames import MESSAGE, REPORT, WORD, CarriedBytes, read_words
from fedcomp.remote.processes import check, run_name, told_round
from fedcomp.remote.simulation import RemoteSimulation
from fedcomp.simulation.simulation import Simulation
from fedcomp.training.place import RunPlace

app = ClientApp()


class NoFrame(Exception):
    """The round needs a frame that has not come yet."""


class LogEnd(ClientEnd):
    """A client's end that receives from a log of frames. `sent`: what it sends."""

    def __init__(self, client: int, frames: list[bytes]) -> None:
        self.client, self.past, self.carried = client, False, CarriedBytes()
        self.frames, self.at, self.sent = frames, 0, list[bytes]()

    def _next(self, kind: bytes) -> bytes:
        if self.at == len(self.frames):
            raise NoFrame
        frame, self.at = self.frames[self.at], self.at + 1
        if frame[:1] != kind:
            raise ValueError("the server sends something else than is due: it runs other code")
        return frame[1:]

    def receive(self, most: int) -> bytes:
        return self._next(MESSAGE)

    def listen(self) -> Mapping[str, Any]:
        return read_words(self._next(WORD))

    def send(self, message: bytes) -> None:
        self.sent.append(MESSAGE + message)

    def report(self, data: bytes) -> None:
        self.sent.append(REPORT + data)


@functools.cache
def built(options: str) -> tuple[Simulation, str]:
    """The simulation of these options, and the name of the run."""
    config = compose([*options.split(), "wire=tcp"])
    check(config)
    simulation, _ = build_simulation(config, torch.device("cpu"))
    return simulation, run_name(RunPlace(config), simulation)


@app.query()
def introduce(message: Message, context: Context) -> Message:
    """Which client this is, and of which run."""
    _, name = built(str(context.run_config["options"]))
    own = ConfigRecord({"client": int(context.node_config["client"]), "run": name})
    return Message(RecordDict({"own": own}), reply_to=message)


@app.train()
def exchange(message: Message, context: Context) -> Message:
    """Takes frames down, makes rounds as far as they go, and answers with the frames up that are new."""
    simulation, _ = built(str(context.run_config["options"]))
    kept = context.state.config_records.get("kept", ConfigRecord({"state": b"", "frames": [], "sent": 0}))
    end = LogEnd(int(context.node_config["client"]), [*kept["frames"], *message.content["frames"]["down"]])
    remote = RemoteSimulation.of(simulation, end)
    state = remote.init()
    if kept["state"]:
        saved = torch.load(io.BytesIO(kept["state"]), weights_only=True)
        state = restore(state, saved["state"])
        remote.memory.update(saved["memory"])
    while True:
        begin, known, memory = end.at, len(end.sent), dict(remote.memory)
        try:
            state = told_round(remote, end, end.listen(), state)
        except NoFrame:
            break
    content = io.BytesIO()
    torch.save({"state": flatten(state), "memory": memory}, content)
    context.state["kept"] = ConfigRecord(
        {"state": content.getvalue(), "frames": end.frames[begin:], "sent": len(end.sent) - known}
    )
    return Message(RecordDict({"frames": ConfigRecord({"up": end.sent[kept["sent"] :]})}), reply_to=message)
