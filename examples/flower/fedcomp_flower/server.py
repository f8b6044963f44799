"""A ServerApp that makes a run's rounds; what goes to clients, and comes from them, goes through Flower's grid."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedcomp.core.pytree import flatten
from fedcomp.display.console import say
from fedcomp.remote.frames import MESSAGE, WORD, CarriedBytes, Gone
from fedcomp.remote.server_end import ServerEnd
from fedcomp.remote.simulation import ServerSimulation
from fedcomp.wire import Ledger
from fedcomp_flower.client import built

app = ServerApp()


class GridEnd(ServerEnd):
    """The server's end: frames wait until a client's answer is due, and then go to all clients of the cohort at once.

    Args:
        nodes: {client: node}.
    """

    def __init__(self, grid: Grid, nodes: Mapping[int, int]) -> None:
        self._grid, self._nodes, self.carried, self.num_requests = grid, nodes, CarriedBytes(), 0
        self._down: dict[int, list[bytes]] = {client: [] for client in nodes}
        self._up: dict[int, list[bytes]] = {client: [] for client in nodes}

    def begin(self, index: int) -> tuple[int, ...]:
        return ()

    def tell_round(self, index: int, absent: Sequence[int], cohort: Sequence[int]) -> None:
        self._needed = frozenset(cohort)
        for frames in self._down.values():
            frames.append(WORD + json.dumps({"round": index, "absent": absent}).encode())

    def send(self, client: int, message: bytes) -> None:
        self.carried.down += len(message)
        self.carried.messages += 1
        self._down[client].append(MESSAGE + message)

    def _hear(self, client: int, kind: bytes, most: int) -> bytes:
        if not self._up[client]:
            self._exchange([one for one in sorted(self._needed) if self._down[one]])
        frame = self._up[client].pop(0) if self._up[client] else b""
        if frame[:1] != kind or len(frame) > most + 1:
            raise Gone(f"client {client} sends something else than is due: it runs other code")
        return frame[1:]

    def _exchange(self, clients: Sequence[int]) -> None:
        requests = {
            self._nodes[client]: RecordDict({"frames": ConfigRecord({"down": self._down[client]})})
            for client in clients
        }
        self.num_requests += len(clients)
        for node, content in asked(self._grid, "train", requests).items():
            (client,) = (one for one in clients if self._nodes[one] == node)
            self._up[client] += content["frames"]["up"]
            self._down[client] = []


def asked(grid: Grid, kind: str, requests: Mapping[int, RecordDict]) -> dict[int, RecordDict]:
    """{node: its answer}. Raises Gone: a node does not answer, or fails."""
    messages = [Message(content, dst_node_id=node, message_type=kind) for node, content in requests.items()]
    found = {}
    for reply in grid.send_and_receive(messages):
        if reply.has_error():
            raise Gone(f"node {reply.metadata.src_node_id} fails: {reply.error}")
        found[reply.metadata.src_node_id] = reply.content
    if missing := requests.keys() - found.keys():
        raise Gone(f"nodes {sorted(missing)} do not answer")
    return found


def gathered(grid: Grid, num_clients: int, run: str) -> dict[int, int]:
    """{client: node}, once there are so many. Raises Gone: a node is of another run, or a client is missing."""
    while len(nodes := list(grid.get_node_ids())) < num_clients:
        time.sleep(0.5)
    found = {}
    for node, content in asked(grid, "query", {node: RecordDict() for node in nodes}).items():
        if content["own"]["run"] != run:
            raise Gone(f"node {node} is of the run {content['own']['run']}, and this is {run}")
        found[content["own"]["client"]] = node
    if found.keys() != set(range(num_clients)):
        raise Gone(f"the nodes are clients {sorted(found)}, but 0 to {num_clients - 1} are needed, each once")
    return found


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Make the run between nodes; then the same run as a simulation, and compare the models."""
    simulation, name = built(str(context.run_config["options"]))
    end = GridEnd(grid, gathered(grid, len(simulation.shards.sizes), name))
    ends = [ServerSimulation.of(simulation, end), replace(simulation, chunk_size=1)]
    lines, models = [], []
    for one in ends:
        state, ledger = one.init(), Ledger()
        for index in range(one.rounds):
            state, _ = one.round(index, state, ledger)
        models.append(flatten(one.algorithm.evaluation_models(state, one.key)))
        accuracy = float(one.test_metrics(one.rounds, state)["test/accuracy"])
        lines.append((f"{100 * accuracy:.2f} %", f"{ledger.counters()['uplink']:,} bits up"))
    same = all(torch.equal(tensor, models[1][name]) for name, tensor in models[0].items())
    say(f"Flower: {', '.join(lines[0])} in {end.carried.up:,} bytes, {end.num_requests} requests")
    say(f"simulation: {', '.join(lines[1])}; the models are {'the same' if same else 'DIFFERENT'}, bit for bit")
