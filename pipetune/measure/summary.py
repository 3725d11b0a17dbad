"""Joins what the child timed and what the sampler read into one :class:`Measurement`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pipetune.measure.machine_speed import Speed
from pipetune.measure.phases import MIN_RATE_WINDOWS
from pipetune.measure.recording import Recording
from pipetune.records.observation import Reading
from pipetune.records.sweep import Measurement, StepTime
from pipetune.stats.busy_spans import busy_frac_between
from pipetune.stats.drift import DRIFT_LIMIT, relative_change
from pipetune.stats.intervals import ratio_interval
from pipetune.stats.noise import noise_of_run
from pipetune.stats.rates import rate_interval, window_durations


class TooShort(Exception):
    """The loader ended before enough windows were complete."""


def summarise(
    recording: Recording, *, accelerator_kind: str, ceiling: Measurement | None, run_noise: float
) -> Measurement:
    """The measurement of one child that sent a result.

    Args:
        recording: of a child that came to its end.
        accelerator_kind: ``cuda``, ``cpu`` or ``emulated``; decides whose utilisation is shown.
        ceiling: the max ingestion rate G, for the goodput; ``None`` when measuring it.
        run_noise: see :func:`pipetune.stats.rates.rate_interval`.

    Raises:
        TooShort: fewer than :data:`MIN_RATE_WINDOWS` windows.
    """
    result, timed = recording.result, recording.timed
    began_ns = recording.warmup[-1].t_end_ns if recording.warmup else 0
    durations = window_durations(timed, began_ns, result["window_batches"]) if result["window_batches"] else []
    if len(durations) < MIN_RATE_WINDOWS:
        raise TooShort(f"the loader ended after {len(durations)} of {MIN_RATE_WINDOWS} windows")
    # Only whole windows count, so that rate, interval and shares are of the same steps.
    timed = timed[: len(durations) * result["window_batches"]]
    samples = sum(step.samples for step in timed)
    timed_s = sum(durations)
    idle_frac = min(1.0, sum(step.idle_s for step in timed) / timed_s)
    # On the CPU the accelerator scatters as much as the loader does.
    noise = run_noise if accelerator_kind == "cpu" else noise_of_run(run_noise, idle_frac)
    rate, low, high = rate_interval(durations, samples / len(durations), noise)
    window = _Window(recording.readings, began_ns, timed[-1].t_end_ns)
    copies = [step.h2d_s for step in timed if step.h2d_s is not None]
    cores = window.tree_rate(lambda tree: tree.cpu_s)
    before = Speed(*result["speed_before"])
    after = recording.speed_after if recording.speed_after is not None else before

    def per_sample(per_second: float | None) -> float | None:
        return None if per_second is None else per_second / rate

    return Measurement(
        samples_per_s=rate,
        ci95=(low, high),
        goodput=None if ceiling is None else rate / ceiling.samples_per_s,
        goodput_ci95=None if ceiling is None else ratio_interval(rate, (low, high), ceiling),
        gpu_util_pct=_utilisation(accelerator_kind, window, idle_frac, recording),
        sm_active_pct=window.mean(lambda r: r.gpu.sm_active_pct if r.gpu else None),
        gpu_mem_bytes=window.greatest(lambda r: r.gpu.mem_used_bytes if r.gpu else None) or result["gpu_mem_bytes"],
        data_wait_frac=min(1.0, sum(step.data_wait_s for step in timed) / timed_s),
        accelerator_idle_frac=idle_frac,
        h2d_frac=sum(copies) / timed_s if copies else None,
        cpu_busy_pct=window.mean(lambda r: r.cpu_busy_pct),
        cpu_idle_pct=window.mean(lambda r: r.cpu_idle_pct),
        iowait_pct=window.mean(lambda r: r.cpu_iowait_pct),
        psi_cpu_some_pct=window.mean(lambda r: r.psi_cpu_some_pct),
        psi_io_some_pct=window.mean(lambda r: r.psi_io_some_pct),
        cores_used=cores,
        cpu_s_per_1000_samples=None if cores is None else 1000 * cores / rate,
        run_delay_frac=window.tree_rate(lambda tree: tree.run_delay_s),
        read_bytes_per_sample=per_sample(window.tree_rate(lambda tree: tree.read_bytes)),
        minor_faults_per_sample=per_sample(window.tree_rate(lambda tree: tree.minor_faults)),
        context_switches_per_sample=per_sample(window.tree_rate(lambda tree: tree.context_switches)),
        pss_bytes=result["pss_bytes"],
        open_s=recording.first_batch["open_s"],
        time_to_first_batch_s=recording.first_batch["time_to_first_batch_s"],
        steps=len(timed),
        samples=samples,
        timed_s=timed_s,
        windows=len(durations),
        warmup_batches=result["warmup_batches"],
        steady=result["steady"],
        machine_speed_before=before.per_second,
        machine_speed_after=after.per_second,
        machine_cpu_speed=(before.per_cpu_second + after.per_cpu_second) / 2,
        cache_resident_frac=recording.resident_frac,
        sampler_readings=len(window.readings),
        sampler_core_frac=window.cost(),
        warnings=(*recording.notes, *_warnings(result, before.per_second, after.per_second)),
        step_slower_frac=_step_slower(timed, ceiling, accelerator_kind),
        other_cores=sum(other.cores for other in recording.others),
        other_process=f"{recording.others[0].name} ({recording.others[0].pid})" if recording.others else None,
        versions=recording.hello.get("versions", {}),
    )


def _step_slower(timed: Sequence[StepTime], ceiling: Measurement | None, kind: str) -> float | None:
    """By which share a step took longer than without a loader; ``None`` for an emulated accelerator."""
    if ceiling is None or kind == "emulated":
        return None
    device_s = sum(step.compute_s + (step.h2d_s or 0.0) for step in timed)
    return device_s / sum(step.samples for step in timed) * ceiling.samples_per_s - 1


def _utilisation(kind: str, window: _Window, idle_frac: float, recording: Recording) -> float | None:
    if kind == "cuda":
        # NVML tells late: what was read in the phase is in part about the time before it.
        busy_frac = busy_frac_between(recording.busy_spans, window.began_ns, window.ended_ns)
        return window.mean(lambda r: r.gpu.util_pct if r.gpu else None) if busy_frac is None else 100 * busy_frac
    return 100 * (1 - idle_frac) if kind == "emulated" else None


def _warnings(result: dict[str, Any], before: float, after: float) -> list[str]:
    warnings = []
    if not result["steady"]:
        warnings.append(
            f"not steady after {result['warmup_batches']} warm-up batches: two successive windows still differed by "
            "more than 5 %; measure longer with --seconds"
        )
    change = relative_change(before, after)
    if abs(change) > DRIFT_LIMIT:
        warnings.append(
            f"the machine itself changed speed by {100 * change:+.0f} % during this candidate (fixed decode loop "
            "before and after); other load on the host? Repeat when it is quiet"
        )
    return warnings


class _Window:
    """The sampler's readings of the timed phase."""

    def __init__(self, readings: Sequence[Reading], began_ns: int, ended_ns: int) -> None:
        self.began_ns, self.ended_ns = began_ns, ended_ns
        self.readings = [r for r in readings if began_ns <= r.t_ns <= ended_ns]

    def mean(self, value: Callable[[Reading], float | None]) -> float | None:
        """Mean over time; ``None`` when no reading has the value."""
        known = [(v, r.interval_s) for r in self.readings if (v := value(r)) is not None]
        total = sum(weight for _, weight in known)
        return sum(v * weight for v, weight in known) / total if total > 0 else None

    def greatest(self, value: Callable[[Reading], int | None]) -> int | None:
        """The greatest value; ``None`` when no reading has it."""
        return max((v for r in self.readings if (v := value(r)) is not None), default=None)

    def tree_rate(self, value: Callable[[Any], float | None]) -> float | None:
        """Increase per second of a counter of the process tree, between its first and last known reading."""
        known = [(r.t_ns, v) for r in self.readings if r.tree is not None and (v := value(r.tree)) is not None]
        if len(known) < 2 or known[-1][0] == known[0][0]:
            return None
        return max(0.0, (known[-1][1] - known[0][1]) / ((known[-1][0] - known[0][0]) / 1e9))

    def cost(self) -> float:
        """The sampler's own CPU seconds per second."""
        total = sum(r.interval_s for r in self.readings)
        return sum(r.tick_cost_s for r in self.readings) / total if total > 0 else 0.0
