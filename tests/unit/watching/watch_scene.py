"""A watcher of a job that does what a test says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from pipetune.records.observation import JobReading, RankReading, StackSample
from pipetune.records.watch import Window
from pipetune.sampler.job.job import JobReader
from pipetune.sampler.stacks.sampling import StackSampler
from pipetune.watching.watcher import Tick, Watcher
from tests.fakes import Clock
from tests.unit.diagnosis.scenes import ON_CORE
from tests.watch_fakes import INTERVAL_S, machine_reading, rank_reading, workers

PID = 4000
WAITING = {"busy_frac": 0.0, "workers": workers(2)}
TRAINING = {"busy_frac": 1.0, "main": ON_CORE, "workers": workers(2)}


@dataclass
class FakeInfo:
    pid: int
    rank: int | None = None


@dataclass
class FakeDevice:
    lost: str | None = None
    slow: str | None = None

    def describe_slow_utilisation(self, interval_s: float) -> str | None:
        return None if self.slow is None else f"{self.slow} instead of every {interval_s:g} s"


@dataclass
class FakeRank:
    """What of a rank's reader the watcher asks beside its readings."""

    info: FakeInfo
    device: FakeDevice = field(default_factory=FakeDevice)
    restarts: int = 0


class FakeJob:
    """A job whose next reading is what the test says. Each reading takes its interval of the clock's time."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.ranks: dict[tuple[int, int], FakeRank] = {}
        self.seen: dict[int, dict[str, Any]] = {}
        self.machine: dict[str, Any] = {}
        self.ended = self.closed = False

    def rank(self, pid: int = PID, rank: int | None = None, *, start: int = 1, **reading: Any) -> None:
        """From now on there is such a rank, and its readings are these."""
        if (pid, start) not in self.ranks:
            self.ranks[pid, start] = FakeRank(FakeInfo(pid, rank))
        self.seen[pid] = {"rank": rank} | reading

    def end(self, pid: int = PID) -> None:
        self.seen.pop(pid)
        self.ranks = {key: rank for key, rank in self.ranks.items() if key[0] != pid}

    def close(self) -> None:
        self.closed = True

    def read(self) -> JobReading:
        self.clock.sleep(INTERVAL_S)
        now = self.clock.now_ns
        ranks = [rank_reading(**({"pid": pid, "t_ns": now} | reading)) for pid, reading in self.seen.items()]
        return JobReading(machine=machine_reading(**({"t_ns": now} | self.machine)), ranks=tuple(ranks))


class FakeStacks:
    """A stack sampler with given stacks."""

    def __init__(self, pid: int) -> None:
        self.pid, self.problem = pid, None
        self.says: StackSample | None = None
        self.asked: list[RankReading] = []
        self.worker_activities: dict[str, int] = {}
        self.refills = 0

    def refill(self) -> None:
        self.refills += 1

    def sample(self, rank: RankReading, *, loses_time: bool) -> StackSample | None:
        self.asked.append(rank)
        return self.says


@dataclass
class Scene:
    """A watcher of a fake job."""

    job: FakeJob
    watcher: Watcher
    stacks: dict[int, FakeStacks]

    def ticks(self, seconds: float, **reading: Any) -> list[Tick]:
        if reading:
            self.job.rank(**reading)
        return [self.watcher.tick() for _ in range(round(seconds / INTERVAL_S))]

    def windows(self, seconds: float, **reading: Any) -> list[Window]:
        return [tick.window for tick in self.ticks(seconds, **reading) if tick.window is not None]


def make_scene(window_s: float = 10.0, **options: Any) -> Scene:
    job, stacks = FakeJob(), {}

    def sampler(pid: int) -> StackSampler:
        stacks[pid] = FakeStacks(pid)
        return cast(StackSampler, stacks[pid])

    made: dict[str, Any] = {"stacks": sampler, "clock": job.clock, "unix": lambda: job.clock.now_ns / 1e9 + 5e8}
    watcher = Watcher(cast(JobReader, job), window_s=window_s, **(made | options))
    return Scene(job, watcher, stacks)
