"""Both apps in one process, without SuperLink and SuperNodes: FedAvg with top-k, and PowerSGD.

python check.py
"""

from __future__ import annotations

from collections.abc import Iterable

from fedcomp_flower import client, server
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

COMMON = "experiment=quickstart num_clients=3 rounds=10 participation=uniform participation.num_participants=2"
METHODS = ("compressor=topk compressor.feedback=error", "algorithm=powersgd")


class HereGrid(Grid):
    """Hands messages to ClientApps of this process, each with a context of its own."""

    set_run = run = create_message = push_messages = pull_messages = None

    def __init__(self, options: str, num_clients: int) -> None:
        self.nodes = {
            100 + client: Context(1, 100 + client, {"client": client}, RecordDict(), {"options": options})
            for client in range(num_clients)
        }

    def get_node_ids(self) -> Iterable[int]:
        return self.nodes

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        for message in messages:
            message.metadata.__dict__["_message_id"] = "m"  # which the SuperLink gives
            yield client.app(message, self.nodes[message.metadata.dst_node_id])


if __name__ == "__main__":
    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # which the SuperLink gives, too
    for method in METHODS:
        options = f"{COMMON} {method}"
        server.app(HereGrid(options, 3), Context(1, 0, {}, RecordDict(), {"options": options}))
