"""Means over a window of everything but the loss itself: the machine, the job, its loader workers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from statistics import fmean

from pipetune.diagnosis.gpu import GpuContext
from pipetune.diagnosis.loader_time import fetches_in_poll, parts_of
from pipetune.records.observation import DISK, NETWORK, MachineReading, RankReading
from pipetune.sampler.stacks import activity as act
from pipetune.stats.intervals import mean


@dataclass(frozen=True, slots=True)
class OtherRanks:
    """The other training processes of the job on this machine."""

    count: int = 0
    cores: float = 0.0
    """What they and their workers use together."""


NO_OTHERS = OtherRanks()


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The machine, the job and its loader workers: means over a window; ``None``: not measured."""

    cores: float
    counted_cores: float
    """Those that the shares of busy and idle time are of: under a quota more than may be used."""
    quota_cores: float | None
    cpu_busy_pct: float | None
    cpu_idle_pct: float | None
    cpu_iowait_pct: float | None
    psi_cpu_pct: float | None
    psi_io_pct: float | None
    psi_scope: str | None
    throttled_frac: float | None
    """Share of the time in which a CPU quota stopped the job."""
    gpu: GpuContext
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
    """Mean over the workers: share of the time in which they ran, waited for a core, or waited for disk or network."""
    job_cores: float
    """Cores used by the training process and its workers; of several ranks, by this one."""
    main_cpu_frac: float
    worker_stacks: dict[str, int]
    python_where: str | None
    """The frame that most stacks of the main thread show while it runs the training script's own Python."""
    other_ranks: OtherRanks = NO_OTHERS
    packed: str | None = None
    """What the packed files are called that the loader reads; ``None``: none has been seen."""

    @property
    def cores_of_rank(self) -> float:
        """The usable cores, shared out evenly among the job's ranks."""
        return self.cores / (1 + self.other_ranks.count)

    @staticmethod
    def of(
        readings: Sequence[RankReading], machine: Sequence[MachineReading], worker_stacks: Mapping[str, int],
        other_ranks: OtherRanks = NO_OTHERS,
    ) -> Context:  # fmt: skip
        """Summarise a window; ``readings`` must not be empty."""
        seconds = sum(reading.interval_s for reading in readings)
        tasks = [(task, reading) for reading in readings for task in reading.workers]
        parts = [parts_of(task) for task, _ in tasks]
        readers = [task for task, _ in tasks] or [reading.main for reading in readings]
        read = [task.read_bytes for task in readers if task.read_bytes is not None]
        received = [reading.net_rx_bytes for reading in machine if reading.net_rx_bytes is not None]
        wall = sum(reading.interval_s for reading in machine)
        received_per_s = sum(received) / wall if received and wall else None
        asleep = [
            rest if task.wait in (DISK, NETWORK) or fetches_in_poll(reading, task, received_per_s) else 0.0
            for (task, reading), (_, _, rest) in zip(tasks, parts, strict=True)
        ]
        last = machine[-1] if machine else None
        return Context(
            cores=last.cores if last else 1.0,
            counted_cores=(last.counted_cores or last.cores) if last else 1.0,
            quota_cores=last.quota_cores if last else None,
            cpu_busy_pct=mean(reading.cpu_busy_pct for reading in machine),
            cpu_idle_pct=mean(reading.cpu_idle_pct for reading in machine),
            cpu_iowait_pct=mean(reading.cpu_iowait_pct for reading in machine),
            psi_cpu_pct=mean(reading.psi_cpu_some_pct for reading in machine),
            psi_io_pct=mean(reading.psi_io_some_pct for reading in machine),
            psi_scope=last.psi_scope if last else None,
            throttled_frac=mean(reading.throttled_frac for reading in machine),
            gpu=GpuContext.of(readings),
            received_per_s=received_per_s,
            read_per_s=sum(read) / seconds if read else None,
            worker_count=len(readings[-1].workers) or max(len(reading.workers) for reading in readings),
            worker_kind=next((reading.worker_kind for reading in reversed(readings) if reading.worker_kind), None),
            worker_cpu_frac=mean(task.cpu_frac for task, _ in tasks) or 0.0,
            worker_delay_frac=mean(delay for _, delay, _ in parts) or 0.0,
            worker_busy_frac=mean(
                cpu + delay + out for (cpu, delay, _), out in zip(parts, asleep, strict=True)
            ) or 0.0,
            job_cores=cores_used(readings),
            main_cpu_frac=mean(reading.main.cpu_frac for reading in readings) or 0.0,
            worker_stacks=dict(worker_stacks),
            python_where=_most_common(
                reading.stack.where
                for reading in readings
                if reading.stack is not None and reading.stack.activity == act.PYTHON
            ),
            other_ranks=other_ranks,
            packed=next((reading.packed for reading in reversed(readings) if reading.packed), None),
        )  # fmt: skip


def cores_used(readings: Sequence[RankReading]) -> float:
    """Cores used by a training process and its workers: the mean of its readings, which must not be empty."""
    return fmean(
        reading.process_cpu_frac
        + (fsum(task.cpu_frac for task in reading.workers) if reading.worker_kind == "process" else 0.0)
        for reading in readings
    )


def _most_common(names: Iterable[str]) -> str | None:
    counted = Counter(names).most_common(1)
    return counted[0][0] if counted else None
