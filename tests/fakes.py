"""Stand-ins for clocks, batches and outcomes that several tests share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pipetune.records.sweep import Candidate, Failure, Measurement, Outcome


class Clock:
    """Monotonic nanoseconds that pass only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_ns = 10**9

    def __call__(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


@dataclass
class Batch:
    """The part of a batch that an accelerator uses."""

    samples: int

    @property
    def images(self) -> range:
        return range(self.samples)


_MEASUREMENT = Measurement(
    samples_per_s=1000.0, ci95=(980.0, 1020.0), goodput=0.8, goodput_ci95=(0.78, 0.82), gpu_util_pct=80.0,
    sm_active_pct=None, gpu_mem_bytes=None, data_wait_frac=0.2, accelerator_idle_frac=0.2, h2d_frac=None,
    cpu_busy_pct=50.0, cpu_idle_pct=50.0, iowait_pct=0.0,
    psi_cpu_some_pct=1.0, psi_io_some_pct=0.0, cores_used=1.0, cpu_s_per_1000_samples=1.0, run_delay_frac=0.0,
    read_bytes_per_sample=0.0, minor_faults_per_sample=3.0, context_switches_per_sample=1.0, pss_bytes=2**29,
    open_s=0.1, time_to_first_batch_s=0.4, steps=60, samples=3840, timed_s=4.0, windows=12, warmup_batches=10,
    steady=True, machine_speed_before=200.0, machine_speed_after=200.0, cache_resident_frac=1.0, sampler_readings=40,
    sampler_core_frac=0.005,
)  # fmt: skip


def measurement(**changes: Any) -> Measurement:
    return replace(_MEASUREMENT, **changes)


def outcome(
    backend: str = "opencv", workers: int = 2, prefetch: int = 2, *, rate: float = 1000.0, ceiling: float = 1250.0,
    role: str = "candidate", failure: Failure | None = None, pin_memory: bool = False, attempt: int = 1, **changes: Any,
) -> Outcome:  # fmt: skip
    candidate = Candidate(
        backend=backend, num_workers=workers, prefetch_depth=prefetch if workers else 0, batch_size=64,
        pin_memory=pin_memory,
    )  # fmt: skip
    values = {
        "samples_per_s": rate, "ci95": (0.98 * rate, 1.02 * rate), "goodput": min(1.0, rate / ceiling),
        "goodput_ci95": (0.98 * rate / ceiling, 1.02 * rate / ceiling),
        "gpu_util_pct": 100 * min(1.0, rate / ceiling), **changes,
    }  # fmt: skip
    return Outcome(
        candidate=candidate, role=role, attempt=attempt, started_unix_s=1.0e9, wall_s=10.0,
        measurement=None if failure else measurement(**values), failure=failure,
    )  # fmt: skip
