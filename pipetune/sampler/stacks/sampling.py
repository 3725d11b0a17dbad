"""When a stack is taken, and whose: only while time is lost, at most two a second, within a budget of CPU time.

A stack costs some 12 ms of CPU time, forty times as much as one reading of /proc. The budget is a token bucket: it is
full at the start, which is enough for the first verdict, and is refilled slowly, which keeps a long run cheap.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pipetune.machine.proc import ended_children_cpu_s
from pipetune.records.observation import LOCK, NETWORK, OTHER, PIPE, SLEEP, RankReading, StackSample, TaskReading
from pipetune.sampler.stacks.activity import computes_here, main_activity, worker_activity
from pipetune.sampler.stacks.dump import StackDump, find_py_spy
from pipetune.sampler.stacks.dump import dump as take_dump
from pipetune.sampler.stacks.source import source_line

#: Minimum time between two stacks (s).
_MIN_GAP_S = 0.45
#: Share of a core that stacks may cost in the long run, and the CPU time that may be spent at once (s).
LONG_RUN_CORE_FRAC = 0.0004
_BUDGET_S = 0.3
#: Every fourth stack is a loader worker's.
_WORKER_TURN = 4


class StackSampler:
    """Takes stacks of one rank.

    Args:
        pid: the training process.
        dump: PID -> its stacks.
        clock: s.
        spent: CPU time of this process's children so far (s).
        budget_s: CPU time that may be spent at once.
    """

    def __init__(
        self,
        pid: int,
        *,
        dump: Callable[[int], StackDump] | None = None,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] | None = None,
        budget_s: float = _BUDGET_S,
    ) -> None:
        program = find_py_spy()
        self._pid, self._clock, self._spent = pid, clock, spent or ended_children_cpu_s
        self._dump = dump or (lambda number: take_dump(number, program))
        self._budget_s, self._full_s = budget_s, budget_s
        self._refill_s = self._last_s = clock()
        self._last_s -= _MIN_GAP_S
        self._turns = 0
        self.problem: str | None = None
        """Why there are no stacks, or why the newest one is missing."""
        self.given_up = False
        self.taken = 0
        self.worker_activities: dict[str, int] = {}
        """Activity of the loader workers → number of stacks that showed it; the caller empties it after reading."""

    def refill(self) -> None:
        """Restore the whole budget: called when training begins, so that stacks of the imports before do not count."""
        self._budget_s = self._full_s

    def sample(self, rank: RankReading, *, loses_time: bool) -> StackSample | None:
        """A stack of the main thread, if one is due; every fourth time a loader worker's is taken instead.

        Args:
            rank: the reading of this moment.
            loses_time: the accelerator loses time now, or this is not known; otherwise no stack is taken.
        """
        now_s = self._clock()
        self._budget_s = min(self._full_s, self._budget_s + (now_s - self._refill_s) * LONG_RUN_CORE_FRAC)
        self._refill_s = now_s
        if self.given_up or self._budget_s <= 0 or now_s - self._last_s < _MIN_GAP_S or not loses_time:
            return None
        self._last_s = now_s
        before_s = self._spent()
        self._turns += 1
        unclear = _unclear(rank)
        stack = None
        if self._turns % _WORKER_TURN == 0 and unclear:
            self._sample_worker(unclear[self._turns // _WORKER_TURN % len(unclear)].pid)
        else:
            stack = self._sample_main()
        self._budget_s -= self._spent() - before_s
        return stack

    def _sample_main(self) -> StackSample | None:
        seen = self._dump(self._pid)
        frames = seen.threads.get(self._pid)
        self._note(seen)
        if not frames:
            return None
        self.taken += 1
        in_python = True if computes_here(frames) else seen.in_python.get(self._pid)
        found = main_activity(frames, source_line(self._pid), in_python=in_python)
        return StackSample(
            pid=self._pid,
            activity=found.activity,
            where=found.where,
            active=seen.active.get(self._pid),
            in_python=in_python,
            unseen=found.unseen,
        )

    def _sample_worker(self, pid: int) -> None:
        frames = self._dump(pid).threads.get(pid)
        if frames:
            activity = worker_activity(frames, source_line(pid)).activity
            self.worker_activities[activity] = self.worker_activities.get(activity, 0) + 1

    def _note(self, seen: StackDump) -> None:
        self.problem = seen.problem
        self.given_up = seen.permanent


def _unclear(rank: RankReading) -> list[TaskReading]:
    """Loader workers asleep in a wait that does not show what they wait for; one on a core needs no stack."""
    if rank.worker_kind != "process":
        return []
    return [task for task in rank.workers if task.wait in (PIPE, LOCK, SLEEP, OTHER, NETWORK)]
