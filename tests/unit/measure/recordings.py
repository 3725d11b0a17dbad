"""What a child has sent and the sampler has read, made up, and its summary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipetune.measure.machine_speed import Speed
from pipetune.measure.recording import Recording
from pipetune.measure.summary import summarise
from pipetune.records.observation import Reading, TreeReading
from pipetune.records.sweep import Measurement, StepTime
from tests.fakes import measurement

S = 10**9


def step(number: int, batch_s: float = 0.1, wait_s: float = 0.04) -> StepTime:
    end = round((number + 1) * batch_s * 1e9)
    return StepTime(
        t_start_ns=end - 10**7, data_wait_s=wait_s, h2d_s=None, compute_s=batch_s - 0.03, idle_s=0.03, t_end_ns=end,
        samples=10,
    )  # fmt: skip


def reading(number: int, **changes: Any) -> Reading:
    tree = TreeReading(
        processes=3, cpu_s=0.15 * number, run_delay_s=0.01 * number, minor_faults=100 * number,
        context_switches=20 * number, read_bytes=1000 * number, rss_bytes=1, in_disk_sleep=0,
    )  # fmt: skip
    base = Reading(
        t_ns=number * 10**8, interval_s=0.1, cpu_busy_pct=70.0, cpu_idle_pct=29.0, cpu_iowait_pct=1.0,
        psi_cpu_some_pct=5.0, psi_io_some_pct=0.0, psi_memory_some_pct=0.0, tree=tree, gpu=None, tick_cost_s=0.0005,
    )  # fmt: skip
    return replace(base, **changes)


def recording(timed: int = 60, speed_after: float | None = 201.0, **result: Any) -> Recording:
    after = None if speed_after is None else Speed(per_second=speed_after, per_cpu_second=102.0)
    values = {
        "warmup_batches": 10, "steady": True, "window_batches": 5, "pss_bytes": 123, "gpu_mem_bytes": None,
        "speed_before": [200.0, 100.0],
    }  # fmt: skip
    return Recording(
        warmup=[step(n) for n in range(10)], timed=[step(n) for n in range(10, 10 + timed)],
        readings=[reading(n) for n in range(200)], result={**values, **result},
        speed_after=after, first_batch={"open_s": 0.2, "time_to_first_batch_s": 0.9},
        hello={"versions": {"torch": "2"}},
    )  # fmt: skip


def summary(
    record: Recording, kind: str = "emulated", ceiling: float | None = 125.0, step_cpu_s: float | None = None
) -> Measurement:
    whole = None
    if ceiling is not None:
        interval = (0.97 * ceiling, 1.03 * ceiling)
        whole = measurement(samples_per_s=ceiling, ci95=interval, cpu_s_per_1000_samples=step_cpu_s)
    return summarise(record, accelerator_kind=kind, ceiling=whole, run_noise=0.0)
