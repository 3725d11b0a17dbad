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
from dataclasses import dataclass, replace

from pipetune.diagnosis.combine import worst_first
from pipetune.diagnosis.context import OtherRanks
from pipetune.machine.proc import read_process_stat
from pipetune.records.observation import JobReading, MachineReading, RankReading
from pipetune.records.watch import Stall, Verdict, Window
from pipetune.sampler.job.job import JobReader
from pipetune.sampler.stacks.sampling import StackSampler
from pipetune.stats.intervals import mean
from pipetune.units import format_duration
from pipetune.watching.history import History, RankKey
from pipetune.watching.options import MAX_READINGS
from pipetune.watching.rank import SETUP_S, FollowedRank, follow, not_started

#: Nothing is concluded of a longer time between two readings, in which the watch or the whole machine was stopped (s).
GAP_S = 10.0


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
        setup_s: how long a job without a loader or an accelerator in sight may set up
            (:class:`pipetune.watching.rank.FollowedRank`).
        gap_s: longer times between two readings count for nothing (s).
        clock: ns, like ``time.monotonic_ns``.
        unix: seconds since 1970.
        own_pid: whose memory is reported as pipetune's own.
    """

    def __init__(
        self,
        job: JobReader,
        *,
        window_s: float,
        stacks: Callable[[int], StackSampler] | None = StackSampler,
        patience_s: float | None = None,
        setup_s: float = SETUP_S,
        gap_s: float = GAP_S,
        clock: Callable[[], int] = time.monotonic_ns,
        unix: Callable[[], float] = time.time,
        own_pid: int | None = None,
    ) -> None:
        self._job, self._window_s, self._stacks, self._setup_s = job, window_s, stacks, setup_s
        self._clock, self._unix, self._own_pid = clock, unix, own_pid
        self._patience_s = math.inf if patience_s is None else patience_s
        self._ranks: dict[RankKey, FollowedRank] = {}
        self.machine: deque[MachineReading] = deque(maxlen=MAX_READINGS)
        """The newest readings of the machine, oldest first."""
        self.history = History()
        self._first_ns: int | None = None
        self._opened_ns: int | None = None
        self._opened_unix_s = 0.0
        self._number = 0
        self._begun = False
        self._gap_s = gap_s
        self._cost_s = self._wall_s = 0.0
        self._ended_stalls: list[Stall] = []
        self._notes: list[str] = []
        self._noted: set[str] = set()
        self._slow_pids: set[int] = set()

    @property
    def ended(self) -> bool:
        """Nothing of the job is left."""
        return self._job.ended

    @property
    def begun(self) -> bool:
        """Some rank has begun to train."""
        self._begun = self._begun or any(rank.begun for rank in self._ranks.values())
        return self._begun

    def note(self, text: str) -> None:
        """Add to the notes of the window that is open; each text once per watch."""
        if text not in self._noted:
            self._noted.add(text)
            self._notes.append(text)

    def tick(self) -> Tick:
        """Read once, and close the window if it is time."""
        reading = self._job.read()
        before: list[Stall] = []
        ended: list[Stall] = []
        window: Window | None = None
        if reading.machine.interval_s > self._gap_s:
            before, window = self._end_before_gap(reading.machine)
            reading = JobReading(
                machine=replace(reading.machine, interval_s=0.0, cost_s=0.0),
                ranks=tuple(replace(rank, interval_s=0.0) for rank in reading.ranks),
            )
        machine = reading.machine
        self.machine.append(machine)
        if machine.interval_s:
            self._cost_s, self._wall_s = self._cost_s + machine.cost_s, self._wall_s + machine.interval_s
        ranks: list[RankReading] = []
        for first in reading.ranks:
            rank, stalls = self._followed(first).take(first)
            ranks.append(rank)
            ended += stalls
        self._note_changes()
        # Ranks that have ended: their stalls end with them, their readings stay until the window closes.
        alive = {rank.pid for rank in ranks}
        ended += self._end_stalls([rank for (pid, _), rank in self._ranks.items() if pid not in alive], machine.t_ns)
        self._keep(ended)
        self._first_ns = machine.t_ns if self._first_ns is None else self._first_ns
        waits = not self.begun and not self._number and (machine.t_ns - self._first_ns) / 1e9 <= self._patience_s
        if self._opened_ns is None or waits:
            self._opened_ns, self._opened_unix_s = machine.t_ns, self._unix()
        if machine.t_ns - self._opened_ns >= self._window_s * 1e9:
            window = self.close_window()
        return Tick(reading=replace(reading, ranks=tuple(ranks)), stalls=(*before, *ended), window=window)

    def _end_before_gap(self, machine: MachineReading) -> tuple[list[Stall], Window | None]:
        """End what was going on when a long time without readings began: stalls, and the window.

        Of what happened meanwhile (Ctrl-Z, a suspended machine) one glance at its end tells nothing.
        """
        self.note(f"nothing was read for {format_duration(machine.interval_s)}, which counts for nothing")
        ended = self._end_stalls(list(self._ranks.values()), machine.t_ns - round(1e9 * machine.interval_s))
        self._keep(ended)
        window = self.close_window() if self.begun else None
        if self._opened_ns is not None:
            self._opened_ns, self._opened_unix_s = machine.t_ns, self._unix()
        return ended, window

    def close_only_window(self) -> Window | None:
        """The window over all readings, for a watch that ends before its only window has closed."""
        if not self.begun and self._first_ns is not None and self._opened_ns is not None:
            self._opened_unix_s -= (self._opened_ns - self._first_ns) / 1e9
            self._opened_ns = self._first_ns
        return self.close_window()

    def close_window(self) -> Window | None:
        """The window up to the newest reading; ``None``: nothing was read since the one before."""
        if self._opened_ns is None or not self.machine or self.machine[-1].t_ns <= self._opened_ns:
            return None
        return self._closed(self._opened_ns, self.machine[-1].t_ns)

    def empty_window(self) -> Window:
        """A window of no time, for a job that ended before it could be read twice."""
        now_ns = self.machine[-1].t_ns if self.machine else self._clock()
        return self._closed(now_ns, now_ns)

    def _closed(self, since_ns: int, now_ns: int) -> Window:
        verdicts = self._judge_all(since_ns, window=True)
        for key, verdict in verdicts.items():
            self.history.add_verdict(key, verdict)
            if key in self._ranks:
                self._ranks[key].close_window(verdict)
        for key in [key for key in self._ranks if key not in self._job.ranks and key not in verdicts]:
            del self._ranks[key]  # it has ended, and had nothing to say in this window
        machine = [reading for reading in self.machine if reading.t_ns > since_ns]
        wall_s = sum(reading.interval_s for reading in machine) or 1e-9
        self._note_slow_utilisation(wall_s / max(1, len(machine)))
        stalls, self._ended_stalls = self._ended_stalls, []
        notes, self._notes = self._notes, []
        self._number += 1
        window = Window(
            number=self._number,
            started_unix_s=self._opened_unix_s,
            seconds=(now_ns - since_ns) / 1e9,
            verdicts=worst_first(list(verdicts.values())),
            stalls=tuple(stalls),
            cpu_busy_pct=mean(reading.cpu_busy_pct for reading in machine),
            cpu_idle_pct=mean(reading.cpu_idle_pct for reading in machine),
            cpu_iowait_pct=mean(reading.cpu_iowait_pct for reading in machine),
            psi_cpu_some_pct=mean(reading.psi_cpu_some_pct for reading in machine),
            psi_io_some_pct=mean(reading.psi_io_some_pct for reading in machine),
            psi_memory_some_pct=mean(reading.psi_memory_some_pct for reading in machine),
            psi_scope=machine[-1].psi_scope if machine else None,
            throttled_frac=mean(reading.throttled_frac for reading in machine),
            cores=machine[-1].cores if machine else 1.0,
            own_core_frac=sum(reading.cost_s for reading in machine) / wall_s,
            own_rss_bytes=self.own_rss_bytes(),
            notes=tuple(notes),
        )
        self._opened_ns, self._opened_unix_s = now_ns, self._unix()
        return window

    def verdicts(self, seconds: float) -> tuple[Verdict, ...]:
        """One verdict per rank over the newest ``seconds``, the worst first; for a live view."""
        if not self.machine:
            return ()
        return worst_first(list(self._judge_all(self.machine[-1].t_ns - round(seconds * 1e9)).values()))

    def end_stalls(self) -> list[Stall]:
        """End the stalls that are going on, because the watch ends."""
        ended = self._end_stalls(list(self._ranks.values()), self.machine[-1].t_ns if self.machine else 0)
        self._keep(ended)
        return ended

    def readings_of(self, pid: int) -> list[RankReading]:
        """The newest readings of one rank since training began, oldest first."""
        return [reading for (number, _), rank in self._ranks.items() if number == pid for reading in rank.newest]

    def stalled_since_ns(self, pid: int) -> int | None:
        """When the stall began that one rank is in; ``None``: it is in none."""
        return next((rank.stalled_since_ns for (number, _), rank in self._ranks.items() if number == pid), None)

    @property
    def own_core_frac(self) -> float | None:
        """Cost of the watch since the second reading, as a share of one core; ``None``: no time has passed."""
        return self._cost_s / self._wall_s if self._wall_s else None

    def own_rss_bytes(self) -> int | None:
        """Memory of this process."""
        if self._own_pid is None:
            return None
        stat = read_process_stat(self._own_pid)
        return None if stat is None else stat.rss_bytes

    def _followed(self, reading: RankReading) -> FollowedRank:
        key = next((key for key in self._job.ranks if key[0] == reading.pid), (reading.pid, 0))
        if key not in self._ranks:
            self._ranks[key] = follow(reading, self._stacks, setup_s=self._setup_s)
        return self._ranks[key]

    def _note_changes(self) -> None:
        for key, reader in self._job.ranks.items():
            if key in self._ranks and reader.restarts > self._ranks[key].restarts:
                self._ranks[key].restarts = reader.restarts
                self._notes.append(f"loader workers of process {reader.info.pid} were started anew")
            if reader.device.lost is not None:
                self.note(
                    f"the GPU of process {reader.info.pid} cannot be read any more ({reader.device.lost}); the rest "
                    "goes on; in a container, a systemctl daemon-reload on the host takes the access away"
                )

    def _note_slow_utilisation(self, interval_s: float) -> None:
        """Note once a rank that its GPU's utilisation is known worse than the readings of a window could tell."""
        for reader in self._job.ranks.values():
            problem = reader.device.describe_slow_utilisation(interval_s)
            if problem is not None and reader.info.pid not in self._slow_pids:
                self._slow_pids.add(reader.info.pid)
                self.note(f"the GPU of process {reader.info.pid}: {problem}")

    def _judge_all(self, since_ns: int, *, window: bool = False) -> dict[RankKey, Verdict]:
        machine = [reading for reading in self.machine if reading.t_ns > since_ns]
        found: dict[RankKey, Verdict] = {}
        used = {key: cores for key, rank in self._ranks.items() if (cores := rank.cores_since(since_ns)) is not None}
        for key, rank in self._ranks.items():
            others = [cores for other, cores in used.items() if other != key and other in self._job.ranks]
            other_ranks = OtherRanks(len(others), sum(others))
            verdict = rank.judge(rank.window_since(since_ns) if window else since_ns, machine, other_ranks)
            if verdict is None and window and not rank.begun:
                verdict = rank.judge_unbegun(since_ns, machine, other_ranks)
            if verdict is None and not rank.begun and key in self._job.ranks:
                seconds = (self._clock() - since_ns) / 1e9
                verdict = not_started(key[0], self._job.ranks[key].info.rank, seconds)
            if verdict is not None:
                found[key] = verdict
        return found

    def _end_stalls(self, ranks: list[FollowedRank], t_ns: int) -> list[Stall]:
        return [stall for rank in ranks for stall in rank.end_stall(t_ns)]

    def _keep(self, stalls: list[Stall]) -> None:
        self._ended_stalls += stalls
        self.history.add_stalls(stalls)
