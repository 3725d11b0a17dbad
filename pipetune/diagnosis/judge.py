"""One rank, one window: readings in, a :class:`pipetune.records.watch.Verdict` out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipetune.diagnosis import causes
from pipetune.diagnosis.advice import advice_for
from pipetune.diagnosis.attribution import Loss, attribute_loss, headline
from pipetune.diagnosis.context import NO_OTHERS, Context, OtherRanks
from pipetune.diagnosis.evidence import evidence_of, missing_signals
from pipetune.diagnosis.loader_time import parts_of
from pipetune.diagnosis.own_threads import with_own_threads
from pipetune.diagnosis.sentences import window_sentence
from pipetune.records.evidence import SignalValue
from pipetune.records.observation import LOADER_WAIT, MachineReading, RankReading, TaskReading
from pipetune.records.watch import CauseShare, Verdict, WorkerSummary
from pipetune.sampler.stacks import activity as act
from pipetune.stats.intervals import wilson


def judge(
    readings: Sequence[RankReading],
    machine: Sequence[MachineReading],
    *,
    stack_problem: str | None = None,
    worker_stacks: Mapping[str, int] | None = None,
    earlier: Sequence[RankReading] = (),
    other_ranks: OtherRanks = NO_OTHERS,
) -> Verdict | None:
    """The verdict of one rank's readings; ``None``: none of them covers any time.

    Args:
        readings: of one rank, in the order of time.
        machine: readings of the machine at the same time.
        stack_problem: why there are no stacks.
        worker_stacks: activity of the loader workers, by their stacks → number of stacks.
        earlier: readings of the same rank from before this window; their stacks show what a wait means.
        other_ranks: of the same job, on the same cores.
    """
    readings = [reading for reading in readings if reading.interval_s > 0]
    machine = [reading for reading in machine if reading.interval_s > 0]
    if not readings:
        return None
    context = Context.of(readings, machine, worker_stacks or {}, other_ranks)
    loss = attribute_loss(readings, received_per_s=context.received_per_s, worker_stacks=worker_stacks, earlier=earlier)
    if loss.activities.get(act.LOADER):
        readings = with_own_threads(readings)
        context = Context.of(readings, machine, worker_stacks or {}, other_ranks)
    cause = _headline(loss, len(readings), context)
    shares, stacks = loss.cause_shares(), sum(reading.stack is not None for reading in readings)
    facts, missing = evidence_of(loss, readings, context), missing_signals(loss, readings, context, stack_problem)
    return Verdict(
        rank=readings[-1].rank,
        pid=readings[-1].pid,
        seconds=loss.seconds,
        source=loss.source,
        util_frac=loss.util_frac,
        lost_frac=loss.lost_frac,
        lost_ci95=loss.lost_ci95,
        cause=cause,
        confidence=_confidence(cause, shares, loss, context, stacks),
        shares=shares if loss.lost_frac >= causes.HEALTHY_LOST else (),
        sentence="; ".join(
            filter(None, (window_sentence(cause, loss, context, len(readings)), context.gpu.share_remark))
        ),
        evidence=tuple(fact.text for fact in facts),
        signals=tuple(SignalValue(signal=fact.signal, value=fact.value) for fact in facts),
        advice=advice_for(cause, loss, context),
        missing=tuple(signal.text for signal in missing),
        missing_signals=tuple(signal.signal for signal in missing),
        activities=loss.activities,
        workers=_summaries(readings),
        looks=len(readings),
        stacks=stacks,
    )


def _headline(loss: Loss, readings: int, context: Context) -> str:
    if readings < causes.MIN_READINGS:
        return causes.UNDETERMINED
    if loss.lost_frac < causes.HEALTHY_LOST:
        if loss.unclear_frac > causes.MAX_UNDETERMINED:
            return causes.UNDETERMINED
        return causes.THROTTLED if context.gpu.is_slowed else causes.HEALTHY
    return headline(loss.shares) if loss.proven else causes.UNDETERMINED


def _confidence(cause: str, shares: Sequence[CauseShare], loss: Loss, context: Context, stacks: int) -> str:
    """``high``: the intervals of the first two causes do not overlap, and disk pressure, where known, agrees."""
    if cause == causes.UNDETERMINED or (cause == causes.MAIN_PYTHON and not stacks):
        # Without a stack, a main thread on a core may be copying, launching kernels or spinning until the GPU is done.
        return "low"
    if cause in (causes.HEALTHY, causes.THROTTLED):
        if context.gpu.share_is_unknown:  # it may be the others that keep the accelerator busy
            return "low"
        return "high" if loss.source != LOADER_WAIT and loss.idle_ci95[1] < 2 * causes.HEALTHY_LOST else "medium"
    first = next(share for share in shares if share.cause == cause)
    # With only one cause seen, another may have been missed by chance.
    second = max((share.ci95[1] for share in shares if share.cause != cause), default=wilson(0.0, loss.readings)[1])
    apart = first.ci95[0] > second
    if cause == causes.DISK and context.psi_io_pct is not None and context.psi_io_pct < causes.SURE_DISK_PSI_PCT:
        return "low"
    if apart:
        return "high"
    return "medium" if first.share >= 0.5 else "low"


def _summaries(readings: Sequence[RankReading]) -> tuple[WorkerSummary, ...]:
    """Summaries of the workers that are alive at the last reading."""
    found = []
    by_pid: dict[int, list[TaskReading]] = {task.pid: [] for task in readings[-1].workers}
    for reading in readings:
        for other in reading.workers:
            if other.pid in by_pid:
                by_pid[other.pid].append(other)
    for task in readings[-1].workers:
        own = by_pid[task.pid]
        parts = [parts_of(other) for other in own]
        waits: dict[str, float] = {}
        for other, (_, _, rest) in zip(own, parts, strict=True):
            waits[other.wait] = waits.get(other.wait, 0.0) + rest / len(own)
        known = task.run_delay_frac is not None
        found.append(
            WorkerSummary(
                pid=task.pid,
                cpu_frac=sum(other.cpu_frac for other in own) / len(own),
                run_delay_frac=sum(delay for _, delay, _ in parts) / len(own) if known else None,
                waits={
                    name: share for name, share in sorted(waits.items(), key=lambda item: -item[1]) if share > 0.005
                },
                state=task.state,
                wchan=task.wchan,
            )
        )
    return tuple(found)
