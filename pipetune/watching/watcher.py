"""Readings of a job in, windows with a verdict per rank out. No printing, no torch.

The newest readings are kept in a ring. Verdicts are drawn from it: one per window for the log, and for a live view at
any time over the newest stretch. A rank counts from the first reading in which its accelerator was busy, so that
imports, compilation and the first batch are no lost time.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pipetune.diagnosis import causes
from pipetune.diagnosis.combine import whole_run, worst_first
from pipetune.diagnosis.judge import judge
from pipetune.diagnosis.main_thread import loses_time
from pipetune.diagnosis.stalls import StallTracker
from pipetune.machine.proc import read_process_stat
from pipetune.records.sweep import GpuReading, Reading
from pipetune.records.watch import (
    EMULATED,
    LOADER_WAIT,
    JobReading,
    MachineReading,
    RankReading,
    Stall,
    Verdict,
    Window,
)
from pipetune.sampler.job.job import JobReader
from pipetune.sampler.stacks import activity as act
from pipetune.sampler.stacks.sampling import StackSampler
from pipetune.stats.intervals import mean
from pipetune.watching.options import MAX_READINGS

#: An accelerator busy for this share of a reading has begun its work.
_BEGUN = 0.02
#: Windows of one rank that are kept one by one, and stalls.
_MOST_VERDICTS, _MOST_STALLS = 360, 20_000
#: Readings with a stack from before a window that still teach.
_TEACHERS = 40
#: A job that has been watched, or whose loader workers have lived, for so long is not setting up any more (s; own).
_SETUP_S = 120.0
#: Where no accelerator can be seen, workers of this age have had time to deliver their first batch (s).
_FIRST_BATCH_S = 3.0


@dataclass(slots=True)
class _Followed:
    """What is kept of one rank."""

    stacks: StackSampler
    since_ns: int
    stalls: StallTracker = field(default_factory=StallTracker)
    readings: deque[RankReading] = field(default_factory=lambda: deque(maxlen=MAX_READINGS))
    teachers: deque[RankReading] = field(default_factory=lambda: deque(maxlen=_TEACHERS))
    """The newest readings with a stack: what they taught holds on, and stacks become rare in a long run."""
    seen_workers: dict[str, int] = field(default_factory=dict)
    restarts: int = 0
    begun: bool = False
    cause: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """What one reading brought."""

    reading: JobReading
    stalls: tuple[Stall, ...]
    """Those that have just ended."""
    window: Window | None
    """The window that this reading closes."""


class Watcher:
    """Reads a job once per call, and judges it window by window.

    Args:
        job: what is read; the caller's to close.
        window_s: length of a window (s).
        stacks: makes the stack sampler of a rank; ``None``: no stacks are taken.
        patience_s: windows also close once no rank has begun to train for this long (s); ``None``: they never do.
        clock: ns, like ``time.monotonic_ns``.
        unix: seconds since 1970.
        own_pid: whose memory is reported as our own.
    """

    def __init__(
        self,
        job: JobReader,
        *,
        window_s: float,
        stacks: Callable[[int], StackSampler] | None = StackSampler,
        patience_s: float | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        unix: Callable[[], float] = time.time,
        own_pid: int | None = None,
    ) -> None:
        self._job, self._window_s, self._stacks = job, window_s, stacks
        self._clock, self._unix, self._own_pid = clock, unix, own_pid
        self._ranks: dict[tuple[int, int], _Followed] = {}
        self.machine: deque[MachineReading] = deque(maxlen=MAX_READINGS)
        self._patience_s = math.inf if patience_s is None else patience_s
        self._first_ns: int | None = None
        self._opened_ns: int | None = None
        self._opened_unix_s = 0.0
        self._number = 0
        self._cost_s = self._wall_s = 0.0
        self._ended_stalls: list[Stall] = []
        self._notes: list[str] = []
        self._noted: set[str] = set()
        self._verdicts: dict[tuple[int, int], list[Verdict]] = {}
        self.stalls: list[Stall] = []
        """The newest of those that have ended."""
        self.stall_count = 0
        self.stalled_s = 0.0
        """Length of all that have ended."""

    @property
    def ended(self) -> bool:
        """Nothing of the job is left."""
        return self._job.ended

    @property
    def begun(self) -> bool:
        """Some rank has begun to train."""
        return any(followed.begun for followed in self._ranks.values())

    def note(self, text: str) -> None:
        """Add to the notes of the window that is open; each text is told once."""
        if text not in self._noted:
            self._noted.add(text)
            self._notes.append(text)

    def tick(self) -> Tick:
        """Read once, and close the window if it is time."""
        reading = self._job.read()
        self.machine.append(reading.machine)
        if reading.machine.interval_s:
            self._cost_s, self._wall_s = (
                self._cost_s + reading.machine.cost_s,
                self._wall_s + reading.machine.interval_s,
            )
        ranks, ended = [], []
        for seen in reading.ranks:
            followed, rank = self._follow(seen)
            ranks.append(rank)
            stall = self._track(followed, rank)
            if stall is not None:
                ended.append(stall)
        for key, reader in self._job.ranks.items():
            if key in self._ranks and reader.restarts > self._ranks[key].restarts:
                self._ranks[key].restarts = reader.restarts
                self._notes.append(f"loader workers of process {reader.info.pid} were started anew")
            if reader.device.lost is not None:
                self.note(
                    f"the GPU of process {reader.info.pid} cannot be read any more ({reader.device.lost}); the rest "
                    "goes on; in a container, a systemctl daemon-reload on the host takes the access away"
                )
        ended += self._bury(reading)
        self._keep(ended)
        now_ns = reading.machine.t_ns
        self._first_ns = now_ns if self._first_ns is None else self._first_ns
        waits = not self.begun and not self._number and (now_ns - self._first_ns) / 1e9 <= self._patience_s
        if self._opened_ns is None or waits:
            self._opened_ns, self._opened_unix_s = now_ns, self._unix()
        window = self.close_window() if now_ns - self._opened_ns >= self._window_s * 1e9 else None
        return Tick(reading=replace(reading, ranks=tuple(ranks)), stalls=tuple(ended), window=window)

    def close_window(self) -> Window | None:
        """The window up to the newest reading; ``None``: nothing was seen since the one before."""
        if self._opened_ns is None or not self.machine or self.machine[-1].t_ns <= self._opened_ns:
            return None
        since_ns, now_ns = self._opened_ns, self.machine[-1].t_ns
        machine = [reading for reading in self.machine if reading.t_ns > since_ns]
        verdicts = self._judge_all(since_ns)
        for key, verdict in verdicts.items():
            kept = self._verdicts.setdefault(key, [])
            kept.append(verdict)
            if len(kept) > _MOST_VERDICTS:
                # Days of windows are no more to the summary than what they come to.
                oldest = whole_run(kept[: _MOST_VERDICTS // 2])
                kept[: _MOST_VERDICTS // 2] = [] if oldest is None else [oldest]
            if key in self._ranks:
                self._ranks[key].cause = verdict.cause
                # What workers' stacks said fades: half of it in each window.
                seen = self._ranks[key].seen_workers
                self._ranks[key].seen_workers = {name: count // 2 for name, count in seen.items() if count > 1}
        wall_s = sum(reading.interval_s for reading in machine) or 1e-9
        self._number += 1
        window = Window(
            number=self._number,
            started_unix_s=self._opened_unix_s,
            seconds=(now_ns - since_ns) / 1e9,
            verdicts=worst_first(list(verdicts.values())),
            stalls=tuple(self._ended_stalls),
            cpu_busy_pct=mean(reading.cpu_busy_pct for reading in machine),
            cpu_idle_pct=mean(reading.cpu_idle_pct for reading in machine),
            cpu_iowait_pct=mean(reading.cpu_iowait_pct for reading in machine),
            psi_cpu_some_pct=mean(reading.psi_cpu_some_pct for reading in machine),
            psi_io_some_pct=mean(reading.psi_io_some_pct for reading in machine),
            psi_memory_some_pct=mean(reading.psi_memory_some_pct for reading in machine),
            psi_scope=machine[-1].psi_scope,
            throttled_frac=mean(reading.throttled_frac for reading in machine),
            cores=machine[-1].cores,
            own_core_frac=sum(reading.cost_s for reading in machine) / wall_s,
            own_rss_bytes=self.own_rss_bytes(),
            notes=tuple(self._notes),
        )
        self._opened_ns, self._opened_unix_s = now_ns, self._unix()
        self._ended_stalls, self._notes = [], []
        return window

    def verdicts(self, seconds: float) -> tuple[Verdict, ...]:
        """What the newest ``seconds`` come to, the worst rank first; for a live view."""
        if not self.machine:
            return ()
        return worst_first(list(self._judge_all(self.machine[-1].t_ns - round(seconds * 1e9)).values()))

    def end_stalls(self) -> list[Stall]:
        """The watching ends: stalls that are going on end with it."""
        found = []
        for followed in self._ranks.values():
            t_ns = self.machine[-1].t_ns if self.machine else 0
            stall = followed.stalls.end(t_ns, followed.seen_workers, followed.cause, followed.teachers)
            found += [stall] if stall is not None else []
        self._keep(found)
        return found

    def summary(self) -> tuple[Verdict, ...]:
        """All windows so far, a verdict per rank, the worst first."""
        wholes = [whole_run(verdicts) for verdicts in self._verdicts.values()]
        return worst_first([verdict for verdict in wholes if verdict is not None])

    def readings_of(self, pid: int) -> list[RankReading]:
        """The newest readings of one rank, oldest first."""
        return [
            reading for (number, _), followed in self._ranks.items() if number == pid for reading in followed.readings
        ]

    def stalled_since_ns(self, pid: int) -> int | None:
        """When the stall that one rank is in began."""
        return next((f.stalls.began_ns for (number, _), f in self._ranks.items() if number == pid), None)

    def _follow(self, rank: RankReading) -> tuple[_Followed, RankReading]:
        key = self._key_of(rank.pid)
        followed = self._ranks.get(key)
        if followed is None:
            sampler = (self._stacks or _no_stacks)(rank.pid)
            followed = self._ranks[key] = _Followed(sampler, rank.t_ns)
        if rank.interval_s > 0:
            stack = followed.stacks.sample(rank, loses_time=loses_time(rank))
            if stack is not None:
                rank = replace(rank, stack=stack)
            for name, count in followed.stacks.worker_activities.items():
                followed.seen_workers[name] = followed.seen_workers.get(name, 0) + count
            followed.stacks.worker_activities.clear()
        if not followed.begun and _has_begun(rank, (rank.t_ns - followed.since_ns) / 1e9):
            followed.begun = True
            followed.stacks.refill()
        if followed.begun and rank.interval_s > 0:
            followed.readings.append(rank)
            if rank.stack is not None:
                followed.teachers.append(rank)
        return followed, rank

    def _track(self, followed: _Followed, rank: RankReading) -> Stall | None:
        if not followed.begun or rank.interval_s <= 0:
            return None
        return followed.stalls.add(rank, followed.seen_workers, followed.cause, followed.teachers)

    def _bury(self, reading: JobReading) -> list[Stall]:
        """Ranks that have ended: what was going on in them is told, their readings stay until the window closes."""
        alive = {rank.pid for rank in reading.ranks}
        ended = []
        for (pid, _), followed in self._ranks.items():
            if pid not in alive:
                stall = followed.stalls.end(
                    reading.machine.t_ns, followed.seen_workers, followed.cause, followed.teachers
                )
                ended += [stall] if stall is not None else []
        return ended

    def _judge_all(self, since_ns: int) -> dict[tuple[int, int], Verdict]:
        machine = [reading for reading in self.machine if reading.t_ns > since_ns]
        found: dict[tuple[int, int], Verdict] = {}
        for key, followed in self._ranks.items():
            readings = [reading for reading in followed.readings if reading.t_ns > since_ns]
            if not readings:
                if not followed.begun and key in self._job.ranks:
                    found[key] = _not_started(key[0], self._job.ranks[key].info.rank, (self._clock() - since_ns) / 1e9)
                continue
            # The machine's readings of before the rank began say nothing about it.
            during = [reading for reading in machine if reading.t_ns >= readings[0].t_ns]
            verdict = judge(
                readings,
                during,
                stack_problem=followed.stacks.problem,
                worker_stacks=followed.seen_workers,
                earlier=[reading for reading in followed.teachers if reading.t_ns < readings[0].t_ns],
            )
            if verdict is not None:
                found[key] = verdict
        return found

    def _keep(self, stalls: list[Stall]) -> None:
        self._ended_stalls += stalls
        self.stalls = [*self.stalls, *stalls][-_MOST_STALLS:] if stalls else self.stalls
        self.stall_count += len(stalls)
        self.stalled_s += sum(stall.t_end_ns - stall.t_start_ns for stall in stalls) / 1e9

    def _key_of(self, pid: int) -> tuple[int, int]:
        return next((key for key in self._job.ranks if key[0] == pid), (pid, 0))

    @property
    def own_core_frac(self) -> float | None:
        """What the watching has cost since the second reading, as a share of one core; ``None``: no time has passed."""
        return self._cost_s / self._wall_s if self._wall_s else None

    def own_rss_bytes(self) -> int | None:
        """Memory of this process."""
        if self._own_pid is None:
            return None
        stat = read_process_stat(self._own_pid)
        return None if stat is None else stat.rss_bytes


def reading_of(machine: MachineReading, rank: RankReading) -> Reading:
    """A reading as the run folder keeps it, in the form of a sweep's readings.

    An emulated accelerator's busy share stands where a GPU's utilisation would.
    """
    gpu = rank.gpu
    if gpu is None and rank.source == EMULATED and rank.busy_frac is not None:
        gpu = GpuReading(util_pct=100 * rank.busy_frac)
    return Reading(
        t_ns=rank.t_ns,
        interval_s=rank.interval_s,
        cpu_busy_pct=machine.cpu_busy_pct,
        cpu_idle_pct=machine.cpu_idle_pct,
        cpu_iowait_pct=machine.cpu_iowait_pct,
        psi_cpu_some_pct=machine.psi_cpu_some_pct,
        psi_io_some_pct=machine.psi_io_some_pct,
        psi_memory_some_pct=machine.psi_memory_some_pct,
        tree=rank.tree,
        gpu=gpu,
        tick_cost_s=machine.cost_s,
    )


def _has_begun(rank: RankReading, watched_s: float) -> bool:
    if rank.source != LOADER_WAIT:
        # An accelerator that is never busy is what one has to be told of, once nobody can call it setting up any more.
        old = watched_s >= _SETUP_S or (bool(rank.workers) and (rank.youngest_worker_s or 0.0) >= _SETUP_S)
        return rank.busy_frac is not None and (rank.busy_frac >= _BEGUN or old)
    trains = (act.LOADER_INLINE, act.MODEL, act.DEVICE_WAIT)
    # The first batch takes long: workers count once they had time to deliver it.
    delivers = bool(rank.workers) and (rank.youngest_worker_s is None or rank.youngest_worker_s >= _FIRST_BATCH_S)
    return delivers or (rank.stack is not None and rank.stack.activity in trains)


def _not_started(pid: int, rank: int | None, seconds: float) -> Verdict:
    return Verdict(
        rank=rank, pid=pid, seconds=seconds, source=LOADER_WAIT, util_frac=None, lost_frac=None, lost_ci95=None,
        cause=causes.NOT_STARTED, confidence="low", shares=(),
        sentence="no training seen yet: the accelerator has not been busy and no batch has been loaded", evidence=(),
        advice=None, missing=(), activities={}, workers=(), looks=0, stacks=0,
    )  # fmt: skip


def _no_stacks(pid: int) -> StackSampler:
    sampler = StackSampler(pid)
    sampler.given_up = True
    sampler.problem = "stacks: left out at your wish (--no-stacks)"
    return sampler
