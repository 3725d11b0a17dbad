"""The numbers behind a verdict, and the signals that were not to be had. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipetune.diagnosis import causes
from pipetune.diagnosis.attribution import Loss
from pipetune.diagnosis.loader_time import fetches_in_poll, parts_of
from pipetune.records.watch import DISK, LOADER_WAIT, NETWORK, MachineReading, RankReading
from pipetune.sampler.stacks import activity as act
from pipetune.stats.intervals import mean
from pipetune.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Means over a window of what surrounds the lost time; ``None``: not measured."""

    cores: float
    quota_cores: float | None
    cpu_busy_pct: float | None
    cpu_idle_pct: float | None
    cpu_iowait_pct: float | None
    psi_cpu_pct: float | None
    psi_io_pct: float | None
    psi_scope: str | None
    throttled_frac: float | None
    """Share of the time in which a CPU quota stopped the job."""
    gpu_throttled_frac: float | None
    received_per_s: float | None
    read_per_s: float | None
    """Bytes per second that the loader workers (or the main thread) fetched from block devices."""
    worker_count: int
    """Workers at the last reading."""
    worker_kind: str | None
    worker_cpu_frac: float
    """Mean over the workers: share of a core used."""
    worker_delay_frac: float
    worker_busy_frac: float
    """Mean over the workers: share of the time that they worked, waited for a core or for data from outside."""
    job_cores: float
    """Cores used by the training process and its workers."""
    main_cpu_frac: float
    worker_stacks: dict[str, int]
    python_where: str | None
    """The frame in which most stacks found the main thread in Python of its own."""

    @staticmethod
    def of(
        readings: Sequence[RankReading], machine: Sequence[MachineReading], worker_stacks: Mapping[str, int]
    ) -> Context:
        """Sum up a window; ``readings`` is not empty."""
        seconds = sum(reading.interval_s for reading in readings)
        tasks = [(task, reading) for reading in readings for task in reading.workers]
        parts = [parts_of(task) for task, _ in tasks]
        job = [
            reading.process_cpu_frac
            + (sum(task.cpu_frac for task in reading.workers) if reading.worker_kind == "process" else 0.0)
            for reading in readings
        ]
        readers = [task for task, _ in tasks] or [reading.main for reading in readings]
        read = [task.read_bytes for task in readers if task.read_bytes is not None]
        received = [reading.net_rx_bytes for reading in machine if reading.net_rx_bytes is not None]
        wall = sum(reading.interval_s for reading in machine)
        received_per_s = sum(received) / wall if received and wall else None
        asleep = [
            rest if task.wait in (DISK, NETWORK) or fetches_in_poll(reading, task, received_per_s) else 0.0
            for (task, reading), (_, _, rest) in zip(tasks, parts, strict=True)
        ]
        throttled = [
            reading.gpu.throttled_pct
            for reading in readings
            if reading.gpu is not None and reading.gpu.throttled_pct is not None
        ]
        last = machine[-1] if machine else None
        return Context(
            cores=last.cores if last else 1.0,
            quota_cores=last.quota_cores if last else None,
            cpu_busy_pct=mean(reading.cpu_busy_pct for reading in machine),
            cpu_idle_pct=mean(reading.cpu_idle_pct for reading in machine),
            cpu_iowait_pct=mean(reading.cpu_iowait_pct for reading in machine),
            psi_cpu_pct=mean(reading.psi_cpu_some_pct for reading in machine),
            psi_io_pct=mean(reading.psi_io_some_pct for reading in machine),
            psi_scope=last.psi_scope if last else None,
            throttled_frac=mean(reading.throttled_frac for reading in machine),
            gpu_throttled_frac=sum(throttled) / len(throttled) / 100 if throttled else None,
            received_per_s=received_per_s,
            read_per_s=sum(read) / seconds if read else None,
            worker_count=len(readings[-1].workers) or max(len(reading.workers) for reading in readings),
            worker_kind=next((reading.worker_kind for reading in reversed(readings) if reading.worker_kind), None),
            worker_cpu_frac=mean(task.cpu_frac for task, _ in tasks) or 0.0,
            worker_delay_frac=mean(delay for _, delay, _ in parts) or 0.0,
            worker_busy_frac=mean(
                cpu + delay + out for (cpu, delay, _), out in zip(parts, asleep, strict=True)
            ) or 0.0,
            job_cores=sum(job) / len(job),
            main_cpu_frac=mean(reading.main.cpu_frac for reading in readings) or 0.0,
            worker_stacks=dict(worker_stacks),
            python_where=_most_common(
                reading.stack.where
                for reading in readings
                if reading.stack is not None and reading.stack.activity == act.PYTHON
            ),
        )  # fmt: skip


def evidence_of(loss: Loss, readings: Sequence[RankReading], context: Context) -> tuple[str, ...]:
    """What was seen, one fact per line, the most telling first."""
    c = context
    lines = []
    doing = [f"{name} {100 * share:.0f} %" for name, share in loss.activities.items() if share >= 0.05]
    if doing:
        lines.append("main thread: " + ", ".join(doing[:4]) + f" (on a core {100 * c.main_cpu_frac:.0f} %)")
    wheres = Counter(
        f"{reading.stack.activity}: {reading.stack.where}"
        for reading in readings
        if reading.stack is not None and reading.stack.activity != act.DEVICE_WAIT
    )
    if wheres:
        where, count = wheres.most_common(1)[0]
        lines.append(f"seen most often, {count} of {wheres.total()} stacks: {where}")
    if c.worker_count:
        one = c.worker_count == 1
        kind = ("thread" if one else "threads") if c.worker_kind == "thread" else ("process" if one else "processes")
        lines.append(
            f"{c.worker_count} loader worker {kind}: {100 * c.worker_cpu_frac:.0f} % on a core, "
            f"{100 * c.worker_delay_frac:.0f} % waiting for one, each" + _sleeps(readings)
        )
    else:
        lines.append("no loader workers")
    if c.worker_stacks:
        total = sum(c.worker_stacks.values())
        said = sorted(c.worker_stacks.items(), key=lambda item: -item[1])
        lines.append(f"{total} stacks of workers: " + ", ".join(f"{name} {count}" for name, count in said))
    if c.cpu_busy_pct is not None:
        lines.append(
            f"CPU busy {c.cpu_busy_pct:.0f} %, idle {c.cpu_idle_pct or 0:.0f} %, iowait {c.cpu_iowait_pct or 0:.0f} %; "
            f"the job uses {c.job_cores:.1f} of {c.cores:g} cores"
        )
    if c.psi_io_pct is not None:
        lines.append(
            f"pressure of the {c.psi_scope}: io {c.psi_io_pct:.0f} %, cpu {c.psi_cpu_pct or 0:.0f} % of the time"
        )
    if c.throttled_frac is not None:
        lines.append(f"CPU quota {c.quota_cores:g} cores: stopped {100 * c.throttled_frac:.0f} % of the time")
    if c.read_per_s is not None and c.read_per_s >= 1024:
        lines.append(f"{format_bytes(round(c.read_per_s))}/s read from disk by the loader")
    if c.received_per_s is not None and c.received_per_s >= 1024:
        lines.append(f"{format_bytes(round(c.received_per_s))}/s received over the network")
    return tuple(lines)


def missing_signals(
    loss: Loss, readings: Sequence[RankReading], context: Context, stack_problem: str | None
) -> tuple[str, ...]:
    """What would have made the verdict surer, each with what would give it."""
    lines = []
    if loss.source == LOADER_WAIT:
        lines.append(
            "the accelerator: no GPU of this job can be read, so waiting for the loader stands in for idle time"
        )
    if not any(reading.stack for reading in readings) and loss.lost_frac >= causes.HEALTHY_LOST and stack_problem:
        lines.append(stack_problem)
    if context.psi_io_pct is None:
        lines.append("pressure (PSI): this kernel or container does not show /proc/pressure; boot with psi=1")
    if any(reading.main.run_delay_frac is None for reading in readings):
        lines.append("time waiting for a core: this kernel keeps no schedstat (CONFIG_SCHED_INFO)")
    asleep = [task for reading in readings for task in reading.workers if task.state in ("S", "D")]
    if asleep and all(task.wchan is None for task in asleep):
        lines.append("what workers sleep in: the kernel hides /proc/PID/wchan")
    return tuple(lines)


def _sleeps(readings: Sequence[RankReading]) -> str:
    """What the workers sleep in most, in the kernel's own words."""
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
    return f"; asleep in {name} at {100 * count / total:.0f} % of the readings"


def _most_common(names: Iterable[str]) -> str | None:
    counted = Counter(names).most_common(1)
    return counted[0][0] if counted else None
