from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from pipetune.candidates.fit import find_obstacles, needs_of
from pipetune.machine.host import Host, describe_host
from pipetune.records.sweep import Candidate, Failure
from pipetune.sweeping.unfit import UnfitCandidates
from tests.unit.sweeping.bench import PLAN, SPACE, run

ROOMY = replace(describe_host(), memory_available_bytes=2**36, shm_free_bytes=2**34, open_files_limit=65536)
LARGE = next(point for point in SPACE.grid() if point.key == "opencv-w2-p2-b64")
LEAST = needs_of(next(point for point in SPACE.grid() if point.num_workers == 1), 224).shm_bytes


class Machine:
    """Its shared memory grows when it is told to."""

    def __init__(self, shm_free_bytes: int) -> None:
        self.host = replace(ROOMY, shm_free_bytes=shm_free_bytes)
        self.decided = 0

    def find(self, candidates: Collection[Candidate], host: Host) -> dict[Candidate, Failure]:
        self.decided += 1
        return find_obstacles(candidates, 224, host)

    def unfit(self) -> UnfitCandidates:
        pairs = tuple(find_obstacles(SPACE.grid(), 224, self.host).items())
        return UnfitCandidates(pairs, self.find, lambda: self.host)


def test_what_fits_by_now_is_in_the_space_again() -> None:
    machine = Machine(0)
    unfit = machine.unfit()
    assert LARGE not in unfit.exclude_from(SPACE).grid()
    machine.host = replace(machine.host, shm_free_bytes=LEAST)
    unfit.look_again()
    assert {candidate.num_workers for candidate, _ in unfit.pairs} == {2}
    machine.host = ROOMY
    unfit.look_again()
    assert unfit.pairs == ()
    assert unfit.exclude_from(SPACE) is SPACE


def test_candidates_are_gone_through_only_where_enough_for_one_is_there() -> None:
    machine = Machine(0)
    unfit = machine.unfit()
    machine.host = replace(machine.host, shm_free_bytes=LEAST - 1)
    unfit.look_again()
    assert machine.decided == 0
    before = unfit.pairs
    machine.host = replace(machine.host, shm_free_bytes=0)
    unfit.look_again()
    assert unfit.pairs is before


def test_what_is_never_there_again_is_never_looked_for() -> None:
    machine = Machine(2**34)
    files = tuple(find_obstacles(SPACE.grid(), 224, replace(ROOMY, open_files_limit=20)).items())
    unfit = UnfitCandidates(files, machine.find, lambda: machine.host)
    unfit.look_again()
    assert (machine.decided, unfit.pairs) == (0, files)
    empty = UnfitCandidates((), machine.find, lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    empty.look_again()


def test_a_sweep_measures_what_has_come_to_fit_meanwhile() -> None:
    machine = Machine(0)
    unfit = machine.unfit()
    plan = replace(PLAN, space=unfit.exclude_from(SPACE), unfit=unfit, grid=True)
    _, saved, _ = run(plan=plan)
    assert not any(out.candidate.num_workers for out in saved)
    growing = Machine(0)
    unfit = growing.unfit()
    growing.host = ROOMY  # after the start
    _, saved, _ = run(plan=replace(plan, unfit=unfit))
    assert {out.candidate for out in saved if out.role != "ceiling"} == set(SPACE.grid())
