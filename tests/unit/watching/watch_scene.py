"""A watcher of a job that does what a test says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from pipetune.records.watch import Look, RankLook, StackLook, Window
from pipetune.sampler.job.job import JobReader
from pipetune.sampler.stacks.sampling import StackSampler
from pipetune.watching.watcher import Tick, Watcher
from tests.fakes import Clock
from tests.unit.diagnosis.scenes import ON_CORE
from tests.watch_fakes import INTERVAL_S, machine_look, rank_look, workers

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


@dataclass
class FakeRank:
    """What of a rank's reader the watcher looks at beside its looks."""

    info: FakeInfo
    device: FakeDevice = field(default_factory=FakeDevice)
    restarts: int = 0


class FakeJob:
    """A job whose next look is what the test says. Each look takes its interval of the clock's time."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.ranks: dict[tuple[int, int], FakeRank] = {}
        self.seen: dict[int, dict[str, Any]] = {}
        self.machine: dict[str, Any] = {}
        self.ended = self.closed = False

    def rank(self, pid: int = PID, rank: int | None = None, *, start: int = 1, **look: Any) -> None:
        """From now on there is such a rank, and its looks are these."""
        if (pid, start) not in self.ranks:
            self.ranks[pid, start] = FakeRank(FakeInfo(pid, rank))
        self.seen[pid] = {"rank": rank} | look

    def end(self, pid: int = PID) -> None:
        self.seen.pop(pid)
        self.ranks = {key: rank for key, rank in self.ranks.items() if key[0] != pid}

    def close(self) -> None:
        self.closed = True

    def look(self) -> Look:
        self.clock.sleep(INTERVAL_S)
        now = self.clock.now_ns
        ranks = [rank_look(**({"pid": pid, "t_ns": now} | look)) for pid, look in self.seen.items()]
        return Look(machine=machine_look(**({"t_ns": now} | self.machine)), ranks=tuple(ranks))


class FakeStacks:
    """A stack sampler that says what it is told to."""

    def __init__(self, pid: int) -> None:
        self.pid, self.problem = pid, None
        self.says: StackLook | None = None
        self.asked: list[RankLook] = []
        self.worker_activities: dict[str, int] = {}
        self.refills = 0

    def refill(self) -> None:
        self.refills += 1

    def sample(self, rank: RankLook, *, loses_time: bool) -> StackLook | None:
        self.asked.append(rank)
        return self.says


@dataclass
class Scene:
    """A watcher of a fake job."""

    job: FakeJob
    watcher: Watcher
    stacks: dict[int, FakeStacks]

    def ticks(self, seconds: float, **look: Any) -> list[Tick]:
        if look:
            self.job.rank(**look)
        return [self.watcher.tick() for _ in range(round(seconds / INTERVAL_S))]

    def windows(self, seconds: float, **look: Any) -> list[Window]:
        return [tick.window for tick in self.ticks(seconds, **look) if tick.window is not None]


def make_scene(window_s: float = 10.0, **options: Any) -> Scene:
    job, stacks = FakeJob(), {}

    def sampler(pid: int) -> StackSampler:
        stacks[pid] = FakeStacks(pid)
        return cast(StackSampler, stacks[pid])

    made: dict[str, Any] = {"stacks": sampler, "clock": job.clock, "unix": lambda: job.clock.now_ns / 1e9 + 5e8}
    watcher = Watcher(cast(JobReader, job), window_s=window_s, **(made | options))
    return Scene(job, watcher, stacks)
