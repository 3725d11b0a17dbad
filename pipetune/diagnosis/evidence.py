"""The numbers behind a verdict, and the signals that were unavailable. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pipetune.diagnosis import causes
from pipetune.diagnosis.attribution import Loss
from pipetune.diagnosis.context import Context
from pipetune.diagnosis.gpu import GpuContext
from pipetune.records.evidence import Signal
from pipetune.records.observation import LOADER_WAIT, RankReading
from pipetune.sampler.stacks import activity as act
from pipetune.stats.intervals import mean
from pipetune.units import format_bytes, whole_percent

#: Activities of the main thread are listed from this share on, at most so many of them.
_MIN_SHARE, _MAX_ACTIVITIES = 0.05, 4
#: A smaller rate (bytes per second) is not listed.
_MIN_BYTES_PER_S = 1024


class Fact(NamedTuple):
    """One line of evidence."""

    signal: Signal
    value: float
    """The number behind the line, in the unit that :class:`Signal` says."""
    text: str


class Missing(NamedTuple):
    """A signal that was unavailable."""

    signal: Signal
    text: str
    """Why, and what would make it available."""


def evidence_of(loss: Loss, readings: Sequence[RankReading], context: Context) -> tuple[Fact, ...]:
    """What was measured, one fact per line, the most telling first."""
    return (
        *_of_main_thread(loss, readings, context),
        *_of_workers(readings, context),
        *_of_gpu(context.gpu),
        *_of_machine(context),
    )


def _of_main_thread(loss: Loss, readings: Sequence[RankReading], c: Context) -> Iterator[Fact]:
    doing = [f"{name} {whole_percent(share)}" for name, share in loss.activities.items() if share >= _MIN_SHARE]
    if doing:
        text = (
            f"main thread: {', '.join(doing[:_MAX_ACTIVITIES])} of the time; on a core {whole_percent(c.main_cpu_frac)}"
        )
        yield Fact(Signal.MAIN_THREAD, c.main_cpu_frac, text)
    shown = Counter(
        (reading.stack.activity, reading.stack.where)
        for reading in readings
        if reading.stack is not None and reading.stack.activity != act.DEVICE_WAIT
    )
    if shown:
        ((activity, where), count) = shown.most_common(1)[0]
        text = f"stacks: {count} of {shown.total()} show the same: {activity}, in {where}"
        yield Fact(Signal.STACKS, count, text)


def _of_workers(readings: Sequence[RankReading], c: Context) -> Iterator[Fact]:
    if not c.worker_count:
        yield Fact(Signal.WORKERS, 0, f"no loader workers{_computing(readings)}")
        return
    one = c.worker_count == 1
    kind = ("thread" if one else "threads") if c.worker_kind == "thread" else ("process" if one else "processes")
    text = (
        f"{c.worker_count} loader worker {kind}{'' if one else ', each'} on a core {whole_percent(c.worker_cpu_frac)} "
        f"of the time, waiting for a core {whole_percent(c.worker_delay_frac)}{_sleeps(readings)}"
    )
    yield Fact(Signal.WORKERS, c.worker_count, text)
    if c.worker_stacks:
        total = sum(c.worker_stacks.values())
        ordered = sorted(c.worker_stacks.items(), key=lambda item: -item[1])
        shown = ", ".join(f"{name} ({count})" for name, count in ordered)
        yield Fact(Signal.WORKER_STACKS, total, f"{total} stacks of workers: {shown}")


def _of_gpu(gpu: GpuContext) -> Iterator[Fact]:
    if gpu.is_shared and gpu.others_frac is not None:
        text = f"on this GPU as well: {', '.join(gpu.sharers)}, {whole_percent(gpu.others_frac)} of the time"
        yield Fact(Signal.GPU_SHARING, gpu.others_frac, text)
    if gpu.clock_frac is not None and (gpu.is_slowed or gpu.is_power_capped):
        limit = "" if gpu.power_limit_w is None else f" of {gpu.power_limit_w:.0f} W"
        reasons = [("slowed by heat or its hardware", gpu.slowed_frac)] if gpu.is_slowed else []
        reasons += [(f"at its power limit{limit}", gpu.power_capped_frac)] if gpu.is_power_capped else []
        named = ", ".join(f"{reason} {whole_percent(share or 0.0)} of the time" for reason, share in reasons)
        yield Fact(
            Signal.GPU_CLOCK, gpu.clock_frac, f"GPU clock: {whole_percent(gpu.clock_frac)} of the highest; {named}"
        )


def _of_machine(c: Context) -> Iterator[Fact]:
    if c.cpu_busy_pct is not None:
        text = (
            f"CPU busy {c.cpu_busy_pct:.0f} %, idle {c.cpu_idle_pct or 0:.0f} %, iowait {c.cpu_iowait_pct or 0:.0f} %; "
            f"{'this rank' if c.other_ranks.count else 'the job'} uses {c.job_cores:.1f} of {c.cores:g} cores"
        )
        if c.other_ranks.count:
            count = c.other_ranks.count
            text += f", the other {f'{count} ranks' if count > 1 else 'rank'} {c.other_ranks.cores:.1f}"
        yield Fact(Signal.CPU, c.cpu_busy_pct, text)
    if c.psi_io_pct is not None:
        text = (
            f"pressure (PSI, {c.psi_scope}): tasks wait for storage {c.psi_io_pct:.0f} % of the time, for a core "
            f"{c.psi_cpu_pct or 0:.0f} %"
        )
        yield Fact(Signal.PRESSURE, c.psi_io_pct, text)
    if c.throttled_frac is not None:
        text = f"CPU quota of {c.quota_cores:g} cores: it stops the job {whole_percent(c.throttled_frac)} of the time"
        yield Fact(Signal.CPU_QUOTA, c.throttled_frac, text)
    if c.read_per_s is not None and c.read_per_s >= _MIN_BYTES_PER_S:
        yield Fact(Signal.DISK, c.read_per_s, f"the loader reads {format_bytes(round(c.read_per_s))}/s from disk")
    if c.received_per_s is not None and c.received_per_s >= _MIN_BYTES_PER_S:
        text = f"{format_bytes(round(c.received_per_s))}/s received over the network"
        yield Fact(Signal.NETWORK, c.received_per_s, text)


def missing_signals(
    loss: Loss, readings: Sequence[RankReading], context: Context, stack_problem: str | None
) -> tuple[Missing, ...]:
    """Signals that would have made the verdict more certain, each with how to make it available."""
    return tuple(_missing(loss, readings, context, stack_problem))


def _missing(
    loss: Loss, readings: Sequence[RankReading], context: Context, stack_problem: str | None
) -> Iterator[Missing]:
    if loss.source == LOADER_WAIT:
        text = (
            "the accelerator: no GPU of this job can be read; what the main thread does instead of training is used "
            "for its idle time"
        )
        yield Missing(Signal.ACCELERATOR, text)
    if context.gpu.share_is_unknown:
        text = (
            f"the job's share of the GPU: {', '.join(context.gpu.sharers)} may compute on it, too, and NVML does not "
            "tell the shares of processes here; all that the GPU does counts as the job's"
        )
        yield Missing(Signal.GPU_SHARING, text)
    if not any(reading.stack for reading in readings) and loss.lost_frac >= causes.HEALTHY_LOST and stack_problem:
        yield Missing(Signal.STACKS, stack_problem)
    if context.psi_io_pct is None:
        text = "pressure (PSI): this kernel or container does not show /proc/pressure; boot with psi=1"
        yield Missing(Signal.PRESSURE, text)
    if any(reading.main.run_delay_frac is None for reading in readings):
        text = "time waiting for a core: this kernel keeps no schedstat (CONFIG_SCHED_INFO)"
        yield Missing(Signal.RUN_DELAY, text)
    asleep = [task for reading in readings for task in reading.workers if task.state in ("S", "D")]
    if asleep and all(task.wchan is None for task in asleep):
        yield Missing(Signal.WAIT_CHANNEL, "what workers sleep in: the kernel hides /proc/PID/wchan")


def _computing(readings: Sequence[RankReading]) -> str:
    """The threads of the process that compute beside the main one."""
    found = [(len(reading.threads), sum(task.cpu_frac for task in reading.threads)) for reading in readings]
    count = max(number for number, _ in found)
    if not count:
        return ""
    cores = mean(used for number, used in found if number) or 0.0
    return f"; {count} other {'thread' if count == 1 else 'threads'} of the process on {cores:.1f} cores"


def _sleeps(readings: Sequence[RankReading]) -> str:
    """The kernel function in which the workers sleep most often."""
    names: Counter[str] = Counter()
    total = 0
    for reading in readings:
        for task in reading.workers:
            total += 1
            if task.wchan is not None and task.state != "R":
                names[task.wchan] += 1
    if not names:
        return ""
    name, count = names.most_common(1)[0]
    return f"; asleep in {name} in {whole_percent(count / total)} of the readings"
