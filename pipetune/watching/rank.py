"""One rank of a watched job: its newest readings, the stall that it is in, and the verdict over a stretch of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from pipetune.diagnosis import causes
from pipetune.diagnosis.judge import judge
from pipetune.diagnosis.main_thread import loses_time
from pipetune.diagnosis.stalls import StallTracker
from pipetune.records.observation import (
    EMULATED,
    LOADER_WAIT,
    GpuReading,
    MachineReading,
    RankReading,
    Reading,
    timeline_reading,
)
from pipetune.records.watch import Stall, Verdict
from pipetune.sampler.stacks import activity as act
from pipetune.sampler.stacks.sampling import StackSampler
from pipetune.watching.late_samples import LateSamples
from pipetune.watching.options import MAX_READINGS

#: An accelerator busy for this share of a reading has begun its work.
_BEGUN = 0.02
#: So many of the newest readings with a stack are used to interpret the waits of later ones.
_MAX_LABELLED = 40
#: A job that has been watched, or whose loader workers have lived, for this long is not setting up any more (s; own).
_SETUP_S = 120.0
#: Where no accelerator can be seen, workers of this age have had time to deliver their first batch (s).
_FIRST_BATCH_S = 3.0


class FollowedRank:
    """What is kept of one rank.

    Args:
        stacks: samples its Python stacks.
        since_ns: when the rank was read first.
    """

    def __init__(self, stacks: StackSampler, since_ns: int) -> None:
        self._stacks, self._since_ns = stacks, since_ns
        self._tracker = StallTracker()
        self._late = LateSamples()
        self._judged_ns: int | None = None
        self._labelled: deque[RankReading] = deque(maxlen=_MAX_LABELLED)
        # The newest readings with a stack: what they show holds on, and stacks become rare in a long run.
        self._seen_workers: dict[str, int] = {}
        self._cause: str | None = None
        self.readings: deque[RankReading] = deque(maxlen=MAX_READINGS)
        """Since training began, as far as the utilisation of their time is known."""
        self.begun = False
        """It has begun to train."""
        self.restarts = 0
        """See :class:`pipetune.sampler.job.rank.RankReader`."""

    @property
    def stalled_since_ns(self) -> int | None:
        """When the stall began that it is in; ``None``: it is in none."""
        return self._tracker.began_ns

    @property
    def newest(self) -> list[RankReading]:
        """The readings, and those whose utilisation is not known yet, with what was known when they were made."""
        return [*self.readings, *self._late.waiting]

    def take(self, reading: RankReading) -> tuple[RankReading, list[Stall]]:
        """Keep the next reading.

        Returns:
            The reading, with a stack if one was due, and the stalls that are known to have ended.
        """
        if reading.interval_s > 0:
            reading = self._with_stack(reading)
        if not self.begun and _has_begun(reading, (reading.t_ns - self._since_ns) / 1e9):
            self.begun = True
            self._stacks.refill()
        if not self.begun or reading.interval_s <= 0:
            return reading, []
        return reading, self._keep(self._late.add(reading))

    def end_stall(self, t_ns: int) -> list[Stall]:
        """Wait for nothing more, and end the stall that it is in, at ``t_ns``; the stalls that have ended."""
        ended = self._keep(self._late.rest())
        stall = self._tracker.end(t_ns, self._seen_workers, self._cause, self._labelled)
        return ended if stall is None else [*ended, stall]

    def window_since(self, opened_ns: int) -> int:
        """Begin of a window's readings: those that were not known yet when the one before was closed are part of it."""
        return opened_ns if self._judged_ns is None else min(opened_ns, self._judged_ns)

    def judge(self, since_ns: int, machine: Sequence[MachineReading]) -> Verdict | None:
        """The verdict over the readings after ``since_ns``; ``None``: there are none that cover any time.

        Args:
            since_ns: begin of the stretch.
            machine: readings of the machine in the stretch.
        """
        # Before anything is known, what was known when they were made has to do.
        readings = [reading for reading in self.readings or self._late.waiting if reading.t_ns > since_ns]
        if not readings:
            return None
        return judge(
            readings,
            # Readings of the machine from before the rank began do not concern it.
            [reading for reading in machine if reading.t_ns >= readings[0].t_ns],
            stack_problem=self._stacks.problem,
            worker_stacks=self._seen_workers,
            earlier=[reading for reading in self._labelled if reading.t_ns < readings[0].t_ns],
        )

    def close_window(self, verdict: Verdict) -> None:
        """Take the verdict over as the usual cause; what workers' stacks showed fades, half of it in each window."""
        self._cause = verdict.cause
        if self.readings:
            self._judged_ns = self.readings[-1].t_ns
        self._seen_workers = {name: count // 2 for name, count in self._seen_workers.items() if count > 1}

    def _keep(self, readings: list[RankReading]) -> list[Stall]:
        ended = []
        for reading in readings:
            self.readings.append(reading)
            if reading.stack is not None:
                self._labelled.append(reading)
            stall = self._tracker.add(reading, self._seen_workers, self._cause, self._labelled)
            ended += [] if stall is None else [stall]
        return ended

    def _with_stack(self, reading: RankReading) -> RankReading:
        stack = self._stacks.sample(reading, loses_time=loses_time(reading))
        for name, count in self._stacks.worker_activities.items():
            self._seen_workers[name] = self._seen_workers.get(name, 0) + count
        self._stacks.worker_activities.clear()
        return reading if stack is None else replace(reading, stack=stack)


def follow(reading: RankReading, stacks: Callable[[int], StackSampler] | None) -> FollowedRank:
    """Begin to follow the rank of a first reading.

    Args:
        reading: the first.
        stacks: makes a rank's stack sampler; ``None``: no stacks are taken.
    """
    return FollowedRank((stacks or _no_stacks)(reading.pid), reading.t_ns)


def stored_reading(machine: MachineReading, rank: RankReading) -> Reading:
    """A reading of a rank as the run folder keeps it, in the form of a sweep's readings.

    An emulated accelerator's busy share takes the place of a GPU's utilisation.
    """
    gpu = rank.gpu
    if gpu is None and rank.source == EMULATED and rank.busy_frac is not None:
        gpu = GpuReading(util_pct=100 * rank.busy_frac)
    return timeline_reading(
        machine, t_ns=rank.t_ns, interval_s=rank.interval_s, tree=rank.tree, gpu=gpu, tick_cost_s=machine.cost_s
    )


def not_started(pid: int, rank: int | None, seconds: float) -> Verdict:
    """The verdict of a rank that has not begun to train within ``seconds``."""
    return Verdict(
        rank=rank, pid=pid, seconds=seconds, source=LOADER_WAIT, util_frac=None, lost_frac=None, lost_ci95=None,
        cause=causes.NOT_STARTED, confidence="low", shares=(),
        sentence="no training seen yet: the accelerator has not been busy and no batch has been loaded", evidence=(),
        advice=None, missing=(), activities={}, workers=(), looks=0, stacks=0,
    )  # fmt: skip


def _has_begun(reading: RankReading, watched_s: float) -> bool:
    if reading.source != LOADER_WAIT:
        # An accelerator that is never busy is itself a finding, once the job cannot be setting up any more.
        old = watched_s >= _SETUP_S or (bool(reading.workers) and (reading.youngest_worker_s or 0.0) >= _SETUP_S)
        return reading.busy_frac is not None and (reading.busy_frac >= _BEGUN or old)
    trains = (act.LOADER_INLINE, act.MODEL, act.DEVICE_WAIT)
    # The first batch takes long: workers count once they had time to deliver it.
    youngest_s = reading.youngest_worker_s
    delivers = bool(reading.workers) and (youngest_s is None or youngest_s >= _FIRST_BATCH_S)
    return delivers or (reading.stack is not None and reading.stack.activity in trains)


def _no_stacks(pid: int) -> StackSampler:
    sampler = StackSampler(pid)
    sampler.given_up = True
    sampler.problem = "stacks: disabled by --no-stacks"
    return sampler
