"""When to look at stacks, and at whose: only while a stall is suspected, at most two a second, on a budget.

A stack costs some 12 ms of CPU time, forty times as much as a look at /proc. So there is a purse: it is full at the
start, which pays for the first verdict, and fills up slowly afterwards, which keeps the long run cheap.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

from pipetune.records.watch import LOCK, NETWORK, OTHER, PIPE, SLEEP, RankLook, StackLook, TaskLook
from pipetune.sampler.stacks.activity import main_activity, worker_activity
from pipetune.sampler.stacks.dump import StackDump, find_py_spy, source_line
from pipetune.sampler.stacks.dump import dump as take_dump
from pipetune.sampler.stacks.suspicion import suspicious

#: Two looks are at least so far apart (s).
_LEAST_S = 0.45
#: Share of a core that stacks may cost in the long run, and what may be spent at once (CPU s).
LONG_RUN_CORE_FRAC = 0.0004
_PURSE_S = 0.3
#: Every so many stacks one is a loader worker's.
_WORKER_TURN = 4


class StackSampler:
    """Looks at the stacks of one rank.

    Args:
        pid: the training process.
        dump: takes a PID and gives its stacks.
        clock: s.
        spent: CPU time of our children so far (s).
        purse_s: how much CPU time may be spent at once.
    """

    def __init__(
        self,
        pid: int,
        *,
        dump: Callable[[int], StackDump] | None = None,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] | None = None,
        purse_s: float = _PURSE_S,
    ) -> None:
        program = find_py_spy()
        self._pid, self._clock, self._spent = pid, clock, spent or _children_cpu_s
        self._dump = dump or (lambda number: take_dump(number, program))
        self._purse_s, self._full_s = purse_s, purse_s
        self._refill_s = self._last_s = clock()
        self._last_s -= _LEAST_S
        self._turns = 0
        self.problem: str | None = None
        """Why there are no stacks, or why the newest one is missing."""
        self.given_up = False
        self.taken = 0
        self.worker_activities: dict[str, int] = {}
        """What the loader workers that were looked at did → how often; emptied by whoever reads it."""

    def refill(self) -> None:
        """The job begins to train: what stacks of its imports have cost is not to be missing now."""
        self._purse_s = self._full_s

    def look(self, rank: RankLook) -> StackLook | None:
        """A stack of the main thread, if it is time for one; now and then a worker is looked at instead.

        Args:
            rank: the look of this moment.
        """
        now_s = self._clock()
        self._purse_s = min(self._full_s, self._purse_s + (now_s - self._refill_s) * LONG_RUN_CORE_FRAC)
        self._refill_s = now_s
        if self.given_up or self._purse_s <= 0 or now_s - self._last_s < _LEAST_S or not suspicious(rank):
            return None
        self._last_s = now_s
        before_s = self._spent()
        self._turns += 1
        unclear = _unclear(rank)
        look = None
        if self._turns % _WORKER_TURN == 0 and unclear:
            self._look_at_worker(unclear[self._turns // _WORKER_TURN % len(unclear)].pid)
        else:
            look = self._look_at_main()
        self._purse_s -= self._spent() - before_s
        return look

    def _look_at_main(self) -> StackLook | None:
        seen = self._dump(self._pid)
        frames = seen.threads.get(self._pid)
        self._note(seen)
        if not frames:
            return None
        self.taken += 1
        activity, where = main_activity(frames, source_line(self._pid))
        return StackLook(pid=self._pid, activity=activity, where=where, active=seen.active.get(self._pid))

    def _look_at_worker(self, pid: int) -> None:
        frames = self._dump(pid).threads.get(pid)
        if frames:
            activity, _ = worker_activity(frames, source_line(pid))
            self.worker_activities[activity] = self.worker_activities.get(activity, 0) + 1

    def _note(self, seen: StackDump) -> None:
        self.problem = seen.problem
        self.given_up = seen.permanent


def _unclear(rank: RankLook) -> list[TaskLook]:
    """Loader workers that are asleep, and whose wait does not say what for; of one on a core all is known."""
    if rank.worker_kind != "process":
        return []
    return [task for task in rank.workers if task.wait in (PIPE, LOCK, SLEEP, OTHER, NETWORK)]


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
