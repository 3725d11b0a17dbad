"""Joins what the child timed and what the sampler read into one :class:`Measurement`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from pipetune.diagnosis.causes import THROTTLED_FRAC
from pipetune.measure.gpu_figures import explain_unknown_utilisation, gpu_figures, nvml_batches, utilisation_pct
from pipetune.measure.machine_speed import Speed
from pipetune.measure.phases import EPOCH_PARTS, MIN_RATE_WINDOWS
from pipetune.measure.reading_window import ReadingWindow
from pipetune.measure.recording import Recording
from pipetune.records.set_up import SetUp
from pipetune.records.sweep import Measurement, StepTime, from_dict
from pipetune.stats.drift import DRIFT_LIMIT, change_within, relative_change
from pipetune.stats.intervals import Z95, Interval, ratio_interval
from pipetune.stats.noise import device_noise as usual_noise
from pipetune.stats.noise import noise_of_run
from pipetune.stats.rates import (
    interval_half,
    rate_interval,
    step_slower_frac,
    window_durations,
    window_edges,
    within_error,
)

#: An emulated step that is longer by less than this share is as long as without a loader.
_SAME_STEP = 0.02
#: Clocks that differ by less than this share are the same: they change in steps of 15 MHz, about 1 %.
_SAME_CLOCK = 0.02


class TooShort(Exception):
    """The loader ended before enough windows were complete."""


def summarise(
    recording: Recording, *, accelerator_kind: str, ceiling: Measurement | None, run_noise: float,
    device_noise: float | None = None, of_all: bool = True,
) -> Measurement:  # fmt: skip
    """The measurement of one child that sent a result.

    Args:
        recording: of a child that came to its end.
        accelerator_kind: ``cuda``, ``xpu``, ``cpu`` or ``emulated``; decides whose utilisation is shown.
        ceiling: the max ingestion rate G, for the goodput; ``None`` when measuring it.
        run_noise: see :func:`pipetune.stats.rates.rate_interval`.
        device_noise: see :attr:`pipetune.measure.conditions.Conditions.device_noise`.
        of_all: the recording's GPU is the only one, so that its clocks are worth a warning.

    Raises:
        TooShort: fewer than :data:`MIN_RATE_WINDOWS` windows.
    """
    result, timed = recording.result, recording.timed
    began_ns = recording.warmup[-1].t_end_ns if recording.warmup else 0
    size, parts = result["window_batches"], result.get("epoch_windows", 1)
    if not 1 <= parts <= EPOCH_PARTS:  # of a process that is not pipetune's own
        parts = 1
    durations = window_durations(timed, began_ns, size) if size >= 1 else []
    if len(durations) < MIN_RATE_WINDOWS:
        raise TooShort(f"the loader ended after {len(durations)} of {MIN_RATE_WINDOWS} windows")
    # Only whole windows count, so that rate, interval and shares are computed from the same steps.
    timed = timed[: round(len(durations) * size)]
    samples = sum(step.samples for step in timed)
    timed_s = sum(durations)
    idle_frac = min(1.0, sum(step.idle_s for step in timed) / timed_s)
    lost_frac = 0.0 if ceiling is None else max(0.0, 1 - samples / timed_s / ceiling.samples_per_s)
    # Ranks wait for each other without a loader, too, where accelerators differ.
    waiting_frac = min(1.0, idle_frac + min(lost_frac, sum(step.others_s for step in timed) / timed_s))
    slower = None if ceiling is None else step_slower_frac(timed, ceiling.samples_per_s)
    device_noise = usual_noise([], accelerator_kind) if device_noise is None else device_noise
    # On the CPU, the accelerator's rate scatters as much as the loader's. An emulated device is a little slower where
    # it normalises bytes, which does not scatter.
    felt = None if accelerator_kind == "emulated" and (slower or 0.0) < _SAME_STEP else slower
    noise = run_noise if accelerator_kind == "cpu" else noise_of_run(run_noise, device_noise, waiting_frac, felt)
    early = result.get("ended_early", False)
    rate, low, high = rate_interval(durations, samples / len(durations), noise, ended_early=early, parts=parts)
    whole = [sum(durations[n : n + parts]) for n in range(0, len(durations), parts)]
    window = ReadingWindow(recording.readings, began_ns, timed[-1].t_end_ns)
    utilisation = utilisation_pct(accelerator_kind, recording, (window.began_ns, window.ended_ns), idle_frac)
    by_nvml = accelerator_kind == "cuda"
    busy = nvml_batches(recording, window) if by_nvml else _busy_pct(timed, durations)
    copies = [step.h2d_s for step in timed if step.h2d_s is not None]
    step_cores = _step_cores(ceiling, rate)
    cores = _without(window.tree_rate(lambda tree: tree.cpu_s), step_cores)
    before = Speed(*result["speed_before"])
    after = recording.speed_after if recording.speed_after is not None else before

    gpu = gpu_figures(recording, (window.began_ns, window.ended_ns), rate, (low, high))

    def per_sample(per_second: float | None) -> float | None:
        return None if per_second is None else per_second / rate

    return Measurement(
        samples_per_s=rate,
        ci95=(low, high),
        goodput=None if ceiling is None else rate / ceiling.samples_per_s,
        goodput_ci95=None if ceiling is None else ratio_interval(rate, (low, high), ceiling),
        gpu_util_pct=utilisation,
        # A device that is always busy is that at whatever pace: its own scatter makes no difference.
        gpu_util_ci95=_utilisation_interval(
            utilisation, busy, noise_of_run(run_noise, 0.0, idle_frac), 1 if by_nvml else parts
        ),
        **{**gpu, "gpu_mem_bytes": gpu["gpu_mem_bytes"] or result["gpu_mem_bytes"]},
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
        warnings=(
            *recording.notes,
            *_warnings(result, whole, before.per_second, after.per_second),
            *(explain_unknown_utilisation(recording, window) if by_nvml and utilisation is None else ()),
            *(clock_warnings(gpu["gpu_clock_mhz"], gpu["gpu_slowed_pct"], ceiling) if of_all else ()),
        ),
        step_slower_frac=slower,
        other_cores=sum(other.cores for other in recording.others),
        other_process=f"{recording.others[0].name} ({recording.others[0].pid})" if recording.others else None,
        versions=recording.hello.get("versions", {}),
        step_cores=step_cores,
        copy_bytes_per_s=result.get("copy_bytes_per_s"),
        batch_shape=tuple(result["batch_shape"]) if "batch_shape" in result else None,
        ended_early=early,
        within_error_frac=within_error(durations, parts)[0],
        set_up=read_set_up(recording),
    )


def read_set_up(recording: Recording) -> SetUp | None:
    """How long one rank's set-up took; ``None``: it has not told."""
    stages = recording.hello.get("set_up")
    return None if stages is None else from_dict(SetUp, stages)


def _step_cores(ceiling: Measurement | None, rate: float) -> float | None:
    """Cores that training steps take at a rate (samples/s), without a loader."""
    per_1000 = None if ceiling is None else ceiling.cpu_s_per_1000_samples
    return None if per_1000 is None else per_1000 / 1000 * rate


def _without(cores: float | None, step_cores: float | None) -> float | None:
    # Never below zero: the step's share is another measurement's, with a scatter of its own.
    return None if cores is None else max(0.0, cores - (step_cores or 0.0))


def _busy_pct(timed: Sequence[StepTime], durations: Sequence[float]) -> list[float]:
    """Share of each window in which the accelerator was busy (%)."""
    edges = window_edges(len(timed), len(timed) / len(durations))
    idle = [sum(step.idle_s for step in timed[since:until]) for since, until in pairwise(edges)]
    return [100 * (1 - min(1.0, lost / span)) for lost, span in zip(idle, durations, strict=True)]


def _utilisation_interval(
    utilisation: float | None, values: Sequence[float], noise: float, parts: int = 1
) -> Interval | None:
    """Interval of a utilisation (%); ``None`` where there is none.

    Args:
        values: utilisation (%) of equal parts of the timed phase, in their order.
        noise: its relative standard deviation between runs.
        parts: so many of them are an epoch, see :func:`pipetune.stats.rates.within_error`.
    """
    if utilisation is None:
        return None
    if len(values) < MIN_RATE_WINDOWS:
        return 0.0, 100.0
    half = interval_half(values, noise, parts=parts) if fmean(values) > 0 else Z95 * noise
    return utilisation * max(0.0, 1 - half), min(100.0, utilisation * (1 + half))


def _warnings(result: dict[str, Any], durations: Sequence[float], before: float, after: float) -> list[str]:
    warnings = []
    if not result["steady"]:
        warnings.append(
            f"not steady after {result['warmup_batches']} warm-up batches: two successive windows still differed by "
            "more than 5 %; measure longer with --seconds"
        )
    still = change_within(durations)
    if still is not None:
        warnings.append(
            f"still changing: the last third is {100 * abs(still):.0f} % {'faster' if still > 0 else 'slower'} than "
            "the first; measure longer with --seconds"
        )
    change = relative_change(before, after)
    if abs(change) > DRIFT_LIMIT:
        warnings.append(
            f"the machine itself changed speed by {100 * change:+.0f} % during this candidate (fixed decode loop "
            "before and after); other load on the host? Repeat when it is quiet"
        )
    return warnings


def clock_warnings(clock_mhz: float | None, slowed_pct: float | None, ceiling: Measurement | None) -> Iterator[str]:
    """The GPU was not the one that the ceiling was measured on, or heat held it down."""
    beside = None if ceiling is None else ceiling.gpu_clock_mhz
    if clock_mhz is not None and beside:
        change = clock_mhz / beside - 1
        if abs(change) > _SAME_CLOCK:
            yield (
                f"the GPU's clock was {100 * change:+.0f} % off that of the ceiling's measurement ({clock_mhz:.0f} "
                f"instead of {beside:.0f} MHz), so that goodput is a share of what another clock would take"
            )
    if slowed_pct is not None and slowed_pct > 100 * THROTTLED_FRAC:
        yield (
            f"heat or the hardware itself lowered the GPU's clocks during {slowed_pct:.0f} % of the time; "
            "see nvidia-smi -q -d PERFORMANCE"
        )
