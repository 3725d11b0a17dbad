"""One rank of a watched job: its newest readings, the stall that it is in, and the verdict over a stretch of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from pipetune.diagnosis import causes
from pipetune.diagnosis.context import NO_OTHERS, OtherRanks, cores_used
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
SETUP_S = 120.0
#: Where no accelerator can be seen, workers of this age have had time to deliver their first batch (s).
_FIRST_BATCH_S = 3.0


class FollowedRank:
    """What is kept of one rank.

    Args:
        stacks: samples its Python stacks.
        since_ns: when the rank was read first.
        setup_s: where neither an accelerator nor a loader can be seen, a job whose stack shows something else than
            imports is taken to be setting up for this long (s), or until it is :data:`SETUP_S` old; with less than
            that, an older job needs no stack.
    """

    def __init__(self, stacks: StackSampler, since_ns: int, *, setup_s: float = SETUP_S) -> None:
        self._stacks, self._since_ns, self._setup_s = stacks, since_ns, setup_s
        self._before: deque[RankReading] = deque(maxlen=MAX_READINGS)
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
        if not self.begun and _has_begun(reading, (reading.t_ns - self._since_ns) / 1e9, self._setup_s):
            self.begun = True
            self._stacks.refill()
        if reading.interval_s <= 0:
            return reading, []
        if not self.begun:
            self._before.append(reading)
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

    def cores_since(self, since_ns: int) -> float | None:
        """Cores that it used after ``since_ns``, on average; ``None``: it was not read."""
        readings = [reading for reading in (*self._before, *self.newest) if reading.t_ns > since_ns]
        return cores_used(readings) if readings else None

    def judge(
        self, since_ns: int, machine: Sequence[MachineReading], other_ranks: OtherRanks = NO_OTHERS
    ) -> Verdict | None:
        """The verdict over the readings after ``since_ns``; ``None``: there are none that cover any time.

        Args:
            since_ns: begin of the stretch.
            machine: readings of the machine in the stretch.
            other_ranks: of the same job.
        """
        complete = [reading for reading in self.readings if reading.t_ns > since_ns]
        waiting = [reading for reading in self._late.waiting if reading.t_ns > since_ns]
        # While the utilisation of most is not known yet, what was known when they were made has to do.
        readings = complete if len(complete) >= len(waiting) else [*complete, *waiting]
        return self._judged(readings, machine, other_ranks) if readings else None

    def judge_unbegun(
        self, since_ns: int, machine: Sequence[MachineReading], other_ranks: OtherRanks = NO_OTHERS
    ) -> Verdict | None:
        """The verdict over readings of a job that has not been seen to train; ``None``: it is known that it does not.

        That is known where an accelerator can be read, or where modules are imported all the time.
        """
        readings = [reading for reading in self._before if reading.t_ns > since_ns]
        stacks = [reading.stack for reading in readings if reading.stack is not None]
        imports = bool(stacks) and all(stack.activity == act.IMPORT for stack in stacks)
        if not readings or imports or any(reading.source != LOADER_WAIT for reading in readings):
            return None
        return self._judged(readings, machine, other_ranks)

    def _judged(
        self, readings: Sequence[RankReading], machine: Sequence[MachineReading], other_ranks: OtherRanks
    ) -> Verdict | None:
        return judge(
            readings,
            # Readings of the machine from before the rank began do not concern it.
            [reading for reading in machine if reading.t_ns >= readings[0].t_ns],
            stack_problem=self._stacks.problem,
            worker_stacks=self._seen_workers,
            earlier=[reading for reading in self._labelled if reading.t_ns < readings[0].t_ns],
            other_ranks=other_ranks,
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


def follow(
    reading: RankReading, stacks: Callable[[int], StackSampler] | None, *, setup_s: float = SETUP_S
) -> FollowedRank:
    """Begin to follow the rank of a first reading.

    Args:
        reading: the first.
        stacks: makes a rank's stack sampler; ``None``: no stacks are taken.
        setup_s: see :class:`FollowedRank`.
    """
    return FollowedRank((stacks or _no_stacks)(reading.pid), reading.t_ns, setup_s=setup_s)


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


def _has_begun(reading: RankReading, watched_s: float, setup_s: float) -> bool:
    if reading.source != LOADER_WAIT:
        # An accelerator that is never busy is itself a finding, once the job cannot be setting up any more.
        old = watched_s >= SETUP_S or (bool(reading.workers) and (reading.youngest_worker_s or 0.0) >= SETUP_S)
        return reading.busy_frac is not None and (reading.busy_frac >= _BEGUN or old)
    # The first batch takes long: workers count once they had time to deliver it.
    youngest_s = reading.youngest_worker_s
    if reading.workers and (youngest_s is None or youngest_s >= _FIRST_BATCH_S):
        return True
    # Neither an accelerator nor a loader is in sight: a job that has lived long does by now whatever it does.
    old = (reading.age_s or 0.0) >= SETUP_S
    if reading.stack is None:
        return old and setup_s < SETUP_S
    shown = reading.stack.activity
    if shown in (act.LOADER_INLINE, act.MODEL, act.DEVICE_WAIT) or (shown == act.LOADER and not reading.workers):
        return True
    return shown != act.IMPORT and (old or watched_s >= setup_s)


def _no_stacks(pid: int) -> StackSampler:
    sampler = StackSampler(pid)
    sampler.given_up = True
    sampler.problem = "stacks: disabled by --no-stacks"
    return sampler
