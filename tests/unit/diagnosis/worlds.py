"""Jobs that are simulated in continuous time, so that the true shares of a window are known, with readings of them.

The main thread goes through phases of random length, the accelerator works in some of them, and each worker goes
through phases of its own. What a reading counts (busy time, processor time) is exact; what it samples (states, stacks)
is that of its instant.
"""

from __future__ import annotations

import bisect
import functools
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pipetune.diagnosis import causes
from pipetune.diagnosis.main_thread import loses_time
from pipetune.records.observation import DISK, EMULATED, LOCK, NETWORK, NVML, PIPE, RUNNING, RankReading, TaskReading
from pipetune.sampler.stacks import activity as act
from tests.unit.diagnosis.scenes import stack
from tests.watch_fakes import PID, main_reading, rank_reading, task_reading

_Fracs = tuple[tuple[str, float], ...]

#: What the main thread does → what watch sees of it without a stack: wait, state, share of a core.
_SIGNS = {
    act.LOADER: (PIPE, "S", 0.0),
    act.COMMUNICATION: (LOCK, "S", 0.0),
    act.DEVICE_WAIT: (RUNNING, "R", 1.0),  # CUDA spins
    act.PYTHON: (RUNNING, "R", 1.0),
    act.COPY: (RUNNING, "R", 1.0),
    act.MODEL: (RUNNING, "R", 1.0),
}
_CAUSES = {
    act.PYTHON: causes.MAIN_PYTHON,
    act.COPY: causes.H2D_COPY,
    act.MODEL: causes.SMALL_BATCH,
    act.COMMUNICATION: causes.COMMUNICATION,
}
#: What a worker does → its state, its wait, and the cause.
_WORK = {
    "decodes": ("R", RUNNING, causes.CPU_DECODE),
    "is starved": ("R", RUNNING, causes.CPU_STARVED),
    "reads": ("D", DISK, causes.DISK),
    "fetches": ("S", NETWORK, causes.NETWORK),
    "has nothing to do": ("S", PIPE, None),
}


class _Track:
    """Phases of random length, one after the other."""

    def __init__(self, rng: random.Random, fracs: Mapping[str, float], seconds: float, cycle_s: float) -> None:
        self._starts: list[float] = []
        self._kinds: list[str] = []
        now_s = 0.0
        while now_s < seconds:
            for kind, frac in fracs.items():
                self._starts.append(now_s)
                self._kinds.append(kind)
                now_s += cycle_s * frac * rng.gammavariate(2, 0.5)
        self._starts.append(now_s)

    def at(self, t_s: float) -> str:
        return self._kinds[min(bisect.bisect(self._starts, t_s) - 1, len(self._kinds) - 1)]

    def spent(self, from_s: float, to_s: float) -> dict[str, float]:
        """Seconds of each kind of phase."""
        found: dict[str, float] = defaultdict(float)
        place = max(0, bisect.bisect(self._starts, from_s) - 1)
        while place < len(self._kinds) and self._starts[place] < to_s:
            inside = min(self._starts[place + 1], to_s) - max(self._starts[place], from_s)
            found[self._kinds[place]] += max(0.0, inside)
            place += 1
        return found


@dataclass(kw_only=True)
class World:
    """A job.

    Attributes:
        main: activity of the main thread → share of the time; the accelerator works while it is waited for.
        work: what each worker does → share of its time.
        source: NVML reports how busy the accelerator was; an emulated one also whether it is idle now.
        stack_every: each so many readings have a stack, where one would be taken.
        max_stacks: as many as the budget pays for.
    """

    main: Mapping[str, float]
    work: Mapping[str, float] = field(default_factory=lambda: {"decodes": 0.9, "has nothing to do": 0.1})
    source: str = NVML
    readings: int = 120
    workers: int = 4
    stack_every: int = 1
    max_stacks: int = 10**6
    cycle_s: float = 0.4


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Of one window of a world."""

    shares: dict[str, float]
    lost_frac: float


def sampled(world: World, seed: int) -> tuple[list[RankReading], Truth]:
    """Readings of a world, and what is true of it."""
    seen, truth = _simulated(
        tuple(world.main.items()), tuple(world.work.items()), world.readings, world.workers, world.cycle_s, seed
    )
    readings: list[RankReading] = []
    stacks = 0
    for number, (doing, facts) in enumerate(seen):
        idle_now = doing != act.DEVICE_WAIT if world.source == EMULATED else None
        reading = rank_reading(source=world.source, idle_now=idle_now, **facts)
        asked = loses_time(reading) and number % world.stack_every == 0 and stacks < world.max_stacks
        stacks += asked
        readings.append(replace(reading, stack=stack(doing)) if asked else reading)
    return readings, truth


@functools.lru_cache(maxsize=100)
def _simulated(
    main_fracs: _Fracs, work_fracs: _Fracs, readings: int, workers: int, cycle_s: float, seed: int
) -> tuple[list[tuple[str, dict[str, Any]]], Truth]:
    """What the main thread does at each reading, and what any source of readings sees; kept for the next source."""
    rng = random.Random(seed)
    seconds = 0.55 * readings + 1
    main = _Track(rng, dict(main_fracs), seconds, cycle_s)
    teams = [_Track(rng, dict(work_fracs), seconds, 0.75 * cycle_s) for _ in range(workers)]
    seen: list[tuple[str, dict[str, Any]]] = []
    now_s = 0.0
    for _ in range(readings):
        before_s, now_s = now_s, now_s + 0.5 * rng.uniform(0.97, 1.03)
        span_s, doing = now_s - before_s, main.at(now_s)
        wait, state, cpu_frac = _SIGNS[doing]
        facts = {
            "t_ns": round(1e9 * (1 + now_s)),
            "interval_s": span_s,
            "busy_frac": main.spent(before_s, now_s)[act.DEVICE_WAIT] / span_s,
            "main": main_reading(wait=wait, state=state, cpu_frac=cpu_frac, write_chars=0),
            "workers": tuple(_worker(team, PID + 1 + place, before_s, now_s) for place, team in enumerate(teams)),
        }
        seen.append((doing, facts))
    return seen, _truth(main, teams, now_s)


def _worker(team: _Track, pid: int, before_s: float, now_s: float) -> TaskReading:
    state, wait, _ = _WORK[team.at(now_s)]
    spent, span_s = team.spent(before_s, now_s), now_s - before_s
    return task_reading(
        pid=pid, state=state, wait=wait, cpu_frac=spent["decodes"] / span_s,
        run_delay_frac=spent["is starved"] / span_s, read_bytes=1_000_000,
    )  # fmt: skip


def _truth(main: _Track, teams: Sequence[_Track], seconds: float) -> Truth:
    spent = main.spent(0.0, seconds)
    lost_s = sum(value for kind, value in spent.items() if kind != act.DEVICE_WAIT)
    worked: dict[str, float] = defaultdict(float)
    for team in teams:
        for kind, value in team.spent(0.0, seconds).items():
            cause = _WORK[kind][2]
            if cause is not None:
                worked[cause] += value
    shares: dict[str, float] = defaultdict(float)
    for kind, value in spent.items():
        if kind == act.LOADER:
            for cause, part in worked.items():
                shares[cause] += value / lost_s * part / sum(worked.values())
        elif kind != act.DEVICE_WAIT:
            shares[_CAUSES[kind]] += value / lost_s
    return Truth(shares=dict(shares), lost_frac=lost_s / seconds)
