"""`traffic.npz`: what is written is read, in few bytes; segments join; damage and other versions are refused."""

from pathlib import Path

import numpy as np
import pytest

from fedcomp.network.traffic import segments
from fedcomp.network.traffic.file import FILE, Traffic, joined, load, save
from fedcomp.network.traffic.rounds import Round, round_of
from fedcomp.wire.legs import BROADCAST, RELAY, UNICAST, UP, WORK, Leg, Legs
from tests.network.recorded import arrays, content


def _round(seed: int, num: int = 9) -> Round:
    """Legs of every kind, form and receiver."""
    rng = np.random.default_rng(seed)
    clients = tuple(range(num)) if seed % 3 else tuple(sorted(rng.choice(num, 4, replace=False).tolist()))
    size = len(clients)
    made = [
        Leg(BROADCAST, "all", 320),
        Leg(BROADCAST, (1, 5), rng.integers(1, 9, 1)),
        Leg(UNICAST, "cohort", 64),
        Leg(WORK, "cohort", rng.integers(1, 3 + (seed % 2) * 70_000, size)),
        Leg(UP, "cohort", rng.integers(1, 100, size)),
        Leg(UP, (2, 2, 3), rng.integers(0, 2, 3)),
        Leg(RELAY, "cohort", rng.integers(1, 100, size)),
    ]
    return round_of(Legs(clients, made[seed % 2 :] if seed != 4 else []), num)


def _same(one: Traffic, other: Traffic) -> bool:
    def plain(traffic: Traffic) -> list[object]:
        return [
            (one.template, one.clients, one.listed, [values.tolist() for values in one.varying])
            for rounds in traffic.rounds
            for one in rounds
        ]

    return plain(one) == plain(other) and (one.num_clients, one.repeated) == (other.num_clients, other.repeated)


@pytest.mark.parametrize("repetitions", [1, 2])
def test_what_is_written_is_read(tmp_path: Path, repetitions: int) -> None:
    rounds = tuple(tuple(_round(seed + 9 * number) for seed in range(6)) for number in range(repetitions))
    traffic = Traffic(9, rounds, repetitions > 1)
    save(tmp_path / FILE, traffic)
    assert _same(load(tmp_path / FILE), traffic)
    assert content(load(tmp_path / FILE), tmp_path) == (tmp_path / FILE).read_bytes()


def test_segments_join_to_the_same_bytes_wherever_they_end(tmp_path: Path) -> None:
    rounds = tuple(_round(seed) for seed in range(10))
    whole = content(Traffic(9, (rounds,)), tmp_path)
    for ends in ((10,), (1, 2, 3, 10), (5, 10)):
        folder = tmp_path / str(ends)
        folder.mkdir()
        for first, last in zip((0, *ends), ends):
            segments.write_segment(folder, Traffic(9, (rounds[first:last],)), last)
        segments.join(folder)
        assert [path.name for path in folder.iterdir()] == [FILE]
        assert (folder / FILE).read_bytes() == whole


@pytest.mark.parametrize(("gone", "missing"), [(0, 1), (1, 3)])
def test_segments_with_a_gap_are_not_joined(tmp_path: Path, gone: int, missing: int) -> None:
    rounds = tuple(_round(seed) for seed in range(6))
    for first, last in ((0, 2), (2, 4), (4, 6)):
        segments.write_segment(tmp_path, Traffic(9, (rounds[first:last],)), last)
    sorted(tmp_path.iterdir())[gone].unlink()
    with pytest.raises(ValueError, match=rf"has no traffic of round {missing}, but of later rounds: put the missing"):
        segments.join(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2, "what is there is kept"


def test_a_resume_drops_what_is_later_and_refuses_what_is_missing(tmp_path: Path) -> None:
    rounds = tuple(_round(seed) for seed in range(6))
    for first, last in ((0, 2), (2, 4), (4, 6)):
        segments.write_segment(tmp_path, Traffic(9, (rounds[first:last],)), last)
    found = segments.resume(tmp_path, 4)
    assert found is not None
    assert _same(found, Traffic(9, (rounds[:4],)))
    assert len(list(tmp_path.iterdir())) == 2
    (tmp_path / "traffic-0000001-0000002.npz").unlink()
    with pytest.raises(
        ValueError, match=r"has no traffic of round 1, but the run was at round 4: put its traffic-\*.npz"
    ):
        segments.resume(tmp_path, 4)
    assert segments.resume(tmp_path, 0) is None
    assert not list(tmp_path.iterdir())
    save(tmp_path / FILE, Traffic(9, (rounds,)))
    found = segments.resume(tmp_path, 3)  # the checkpoint of the end was lost
    assert found is not None
    assert found.num_rounds == 3
    assert [path.name for path in tmp_path.iterdir()] == ["traffic-0000001-0000003.npz"]


def test_sizes_of_a_thousand_rounds_of_a_thousand_clients(tmp_path: Path) -> None:
    rng, num = np.random.default_rng(0), 1000
    work = rng.integers(50, 2000, num)
    static = [Leg(BROADCAST, "cohort", 32 * 10**6), Leg(WORK, "cohort", work), Leg(UP, "cohort", 10**6)]
    one = round_of(Legs(tuple(range(num)), static), num)
    assert len(content(Traffic(num, ((one,) * 1000,)), tmp_path)) < 8_000
    some = [
        round_of(
            Legs(
                tuple(sorted(rng.choice(num, 100, replace=False).tolist())),
                [static[0], Leg(WORK, "cohort", np.full(100, 64)), static[2]],
            ),
            num,
        )
        for _ in range(1000)
    ]
    assert len(content(Traffic(num, (tuple(some),)), tmp_path)) < 80_000


def test_a_varying_leg_is_kept_in_two_bytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for spread, kind in ((1200, np.uint16), (10**6, np.uint32)):
        rounds = [
            round_of(Legs((0, 1, 2), [Leg(UP, "cohort", 10**9 + rng.integers(0, spread, 3))]), 3) for _ in range(4)
        ]
        save(tmp_path / FILE, Traffic(3, (tuple(rounds),)))
        assert arrays(tmp_path / FILE)["vary_delta"].dtype == kind


def test_messages_of_one_phase_are_added_up() -> None:
    made = [
        Leg(UP, "cohort", 3),
        Leg(UP, "cohort", 4),
        Leg(UP, "cohort", np.array([1, 2])),
        Leg(WORK, "cohort", np.zeros(2)),
    ]
    one = round_of(Legs((0, 1), made), 2)
    assert len(one.template) == 1
    assert one.varying[0].tolist() == [8, 9]


def test_damage_and_other_versions(tmp_path: Path) -> None:
    path = tmp_path / FILE
    traffic = Traffic(9, ((_round(1),),))
    save(path, traffic)
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(ValueError, match=r"is damaged: run again with overwrite=true"):
        load(path)
    save(path, traffic)
    changed = arrays(path) | {"version": np.int32(7)}
    np.savez(path, **changed)
    with pytest.raises(ValueError, match=r"is of version 7, not 1"):
        load(path)
    with pytest.raises(ValueError, match=r"has no traffic.npz, from which times follow: only runs with a network"):
        segments.read_traffic(tmp_path / "nothing")


def test_joining_keeps_repetitions_apart() -> None:
    one, other = Traffic(9, ((_round(1),), (_round(2),)), True), Traffic(9, ((_round(3),), (_round(5),)), True)
    assert [len(rounds) for rounds in joined([one, other]).rounds] == [2, 2]
