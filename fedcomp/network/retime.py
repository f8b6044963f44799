"""Times of recorded rounds under any network: what a run does while it goes on, and a replay afterwards."""

from collections.abc import Iterable, Sequence

from fedcomp.network.clock import Clock, Times
from fedcomp.network.links.contract import Network
from fedcomp.network.traffic.file import Traffic
from fedcomp.random.keys import Key


def mean_of(lines: Sequence[Times]) -> Times:
    """The line of one repetition; of several their means, without the number of the slowest client."""
    if len(lines) == 1:
        return lines[0]
    names = [name for name in lines[0] if name != "time/slowest"]
    return {name: sum(line[name] for line in lines) / len(lines) for name in names}


def retime(
    traffic: Traffic, network: Network, keys: Sequence[Key], rounds: Iterable[int]
) -> tuple[dict[int, Times], list[Clock]]:
    """({round: `time/...` after it} for each of `rounds` that was recorded, the clocks at the end).

    Args:
        keys: of each repetition's run, for jitter.
    Raises:
        ValueError: the network has no links for so many clients.
    """
    links = network.checked_links(traffic.num_clients)
    clocks = [Clock(network, links, key) for key in keys]
    found: dict[int, Times] = {}
    done = 0
    for wanted in sorted(rounds):
        if wanted > traffic.num_rounds:
            break
        for clock, own in zip(clocks, traffic.rounds, strict=True):
            for one in own[done:wanted]:
                clock.advance(one)
        done = wanted
        found[wanted] = mean_of([clock.metrics() for clock in clocks])
    return found, clocks
