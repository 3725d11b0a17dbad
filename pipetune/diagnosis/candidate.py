"""Why the accelerator lost time under one candidate of a sweep: a measurement in, a :class:`Diagnosis` out. Pure.

iowait is never used: proc(5) calls it unreliable, and it disappears when other tasks keep the CPU busy. Waiting for
storage is judged by pressure stall information and by the bytes that really came from the disk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pipetune.augmentation.recipes import DEVICE
from pipetune.diagnosis import causes
from pipetune.records.sweep import Candidate, Diagnosis, Measurement, Outcome
from pipetune.registry import USER
from pipetune.stats.noise import restarting_frac, waiting_frac
from pipetune.units import format_share

#: From this many cores on, what the training step takes is stated beside what loading takes.
_STEP_CORES = 0.05
#: A share of the time below which the accelerator is said never to wait: it is printed as 0 %.
_NEVER_WAITS = 0.005
#: From this share of waiting on, no accelerator is said to wait hardly ever, however near its rate is to the ceiling.
_SEEN_WAITING = 2 * causes.HEALTHY_LOST
#: What is missing where nothing of /proc could be read.
_NO_CPU_TIME = ("CPU time of the machine and of the loader (/proc was not readable)",)


def diagnose(
    candidate: Candidate, measurement: Measurement, usable_cores: float, counted_cores: float | None = None,
    movable_recipe: str | None = None, target: float | None = None,
) -> Diagnosis:  # fmt: skip
    """The main cause of the accelerator's lost time under one candidate.

    Args:
        candidate: what was measured.
        measurement: of that candidate.
        usable_cores: cores after affinity and cgroup quota.
        counted_cores: those whose load was measured, which a quota leaves as they are; ``None``: as many.
        movable_recipe: what the workers do to images and the device may do as well, in words; ``None``: nothing.
        target: share of the max ingestion rate that is enough; ``None``: none was set.
    """
    m = measurement
    counted = counted_cores or usable_cores
    ranks = max(1, len(m.ranks))
    lost = _lost(m)
    evidence = _evidence(m, usable_cores)
    severity = _severity(m, target)
    if lost < causes.HEALTHY_LOST:
        return _diagnosis(causes.HEALTHY, lost, _describe_healthy(m), evidence)
    if restarting_frac(m) >= lost / 2:
        begins = "each epoch begins with a wait for its first batch" if candidate.keep_workers else (
            "workers start anew with each epoch"
        )  # fmt: skip
        sentence = f"{severity}: {begins}, which takes {format_share(restarting_frac(m))} of it"
        return _diagnosis(causes.WORKER_START, lost, sentence, evidence, causes.CAUSES[causes.WORKER_START].advice)
    from_disk = m.read_bytes_per_sample or 0
    if m.psi_io_some_pct is not None and m.psi_io_some_pct >= causes.DISK_PSI_PCT and from_disk >= causes.DISK_BYTES:
        return _diagnosis(causes.DISK, lost, f"{severity}: loader workers wait for storage", evidence)
    if m.cpu_busy_pct is None or m.cores_used is None:
        sentence = f"{severity}: the cause is undetermined"
        return _diagnosis(causes.UNDETERMINED, lost, sentence, evidence, missing=_NO_CPU_TIME)
    own_cores = m.cores_used + (m.step_cores or 0.0)
    own_share = own_cores / usable_cores
    # Under a quota the load is that of more cores than may be used: what counts is how many of them are left.
    others = m.cpu_busy_pct / 100 * counted - own_cores
    left = (1 - m.cpu_busy_pct / 100) * counted
    if left <= (1 - causes.CORES_BUSY_PCT / 100) * usable_cores and own_share < causes.OWN_SHARE:
        kind = "usable cores" if counted == usable_cores else "cores"
        sentence = f"{severity}: other processes keep {others:.1f} of {counted:g} {kind} busy"
        return _diagnosis(
            causes.CPU_STARVED, lost, sentence, evidence, "measure again when no other process uses the cores"
        )
    never_waits = m.data_wait_frac < causes.HEALTHY_LOST and waiting_frac(m) < causes.HEALTHY_LOST
    if never_waits or _slowed(m) >= lost / 2:
        copying, hardly = m.h2d_frac or 0.0, _hardly_waits(m)
        if never_waits and copying >= lost / 2:
            sentence = f"{hardly} for a batch, but copying batches takes {100 * copying:.0f} % of its time"
            return _diagnosis(causes.H2D_COPY, lost, sentence, evidence)
        slower = f"take {format_share(m.step_slower_frac)} longer" if m.step_slower_frac else "are slower"
        waits = f"{hardly}, but its" if never_waits else f"{severity}: the accelerator's"
        if candidate.transforms_on == DEVICE:
            sentence = f"{waits} steps {slower}, because it augments the images first"
            return _diagnosis(causes.AUGMENTING, lost, sentence, evidence)
        sentence = f"{waits} steps {slower} while this loader runs, because both compete for the CPU"
        return _diagnosis(causes.CONTENTION, lost, sentence, evidence)
    is_own = candidate.loader == USER  # whose samples need not be images: nothing is known of what it does
    sample = "sample" if is_own else "image"
    advice = _or_move(_workers_advice(candidate, m, usable_cores), movable_recipe)
    # Checked before "all cores busy": without workers, torch's own threads spin on the other cores between operations.
    if candidate.num_workers == 0 and usable_cores > ranks:
        who = "the training process" if ranks == 1 else "each training process"
        sentence = f"{severity}: {who} {'loads' if is_own else 'decodes'} by itself, one {sample} after the other"
        return _diagnosis(causes.NO_WORKERS, lost, sentence, evidence, advice)
    if 100 * own_share >= causes.CORES_BUSY_PCT:
        sentence = f"{severity}: all {usable_cores:g} usable cores are busy {'loading' if is_own else 'decoding'}"
        if (m.step_cores or 0) >= _STEP_CORES:
            sentence = (
                f"{severity}: all {usable_cores:g} usable cores are busy, {m.cores_used:.1f} with loading and "
                f"{m.step_cores:.1f} with the training step"
            )
        advice = _or_move(_cores_advice(candidate, m, usable_cores), movable_recipe)
        return _diagnosis(causes.CPU_DECODE, lost, sentence, evidence, advice)
    all_workers = ranks * candidate.num_workers
    if all_workers and m.cores_used >= causes.WORKERS_BUSY_FRAC * all_workers and usable_cores > all_workers:
        workers = "the loader worker is" if all_workers == 1 else f"all {all_workers} workers are"
        sentence = f"{severity}: {workers} busy while other cores are idle"
        return _diagnosis(causes.CPU_DECODE, lost, sentence, evidence, advice)
    sentence = f"{severity}: neither cores nor storage explain the wait; moving batches between processes may"
    missing = ("stacks of the training process and its workers",)
    return _diagnosis(causes.UNDETERMINED, lost, sentence, evidence, missing=missing)


def cores_for(measurement: Measurement, samples_per_s: float) -> float | None:
    """Cores that this backend would need to deliver a rate, from its CPU time per sample as measured.

    An underestimate where workers slow each other down; ``None`` when CPU time was not measured.
    """
    per_sample = measurement.cpu_s_per_1000_samples
    return None if per_sample is None else per_sample / 1000 * samples_per_s


def _lost(m: Measurement) -> float:
    """Share of the accelerator's time lost; from the ceiling where there is one, else from its idle time."""
    return max(0.0, 1 - m.goodput) if m.goodput is not None else waiting_frac(m)


def _describe_healthy(m: Measurement) -> str:
    waits = waiting_frac(m)
    if m.goodput is None or waits < _SEEN_WAITING:
        return "the accelerator is the limit: it hardly ever waits for a batch"
    return (
        f"the accelerator waits {format_share(waits)} of the time, yet it is as fast as without waiting: its max "
        "ingestion rate may have been measured too low"
    )


def _severity(m: Measurement, target: float | None) -> str:
    """How much the accelerator waits for its input, in words, by the wait that was measured."""
    if target is not None and m.goodput is not None and m.goodput >= target:
        return "enough for the target; why it is no faster"
    waits = min(_lost(m), max(m.data_wait_frac, waiting_frac(m)))
    return "highly input bound" if waits >= causes.HIGH_LOST else "input bound"


def _hardly_waits(m: Measurement) -> str:
    waits = max(m.data_wait_frac, waiting_frac(m))
    return "the accelerator never waits" if waits < _NEVER_WAITS else (
        f"the accelerator hardly waits ({format_share(waits)} of the time)"
    )  # fmt: skip


def _slowed(m: Measurement) -> float:
    """Share of the time (0..1) that steps took longer than they do without a loader."""
    slower = max(0.0, m.step_slower_frac or 0.0)
    return (1 - waiting_frac(m) - (m.h2d_frac or 0.0)) * slower / (1 + slower)


def _evidence(m: Measurement, usable_cores: float) -> tuple[str, ...]:
    loops = "the training loop waits" if not m.ranks else "training loops wait"
    lines = [f"{loops} for data {100 * m.data_wait_frac:.0f} % of the time"]
    if m.others_wait_frac is not None:
        lines.append(f"accelerators wait for other ranks {100 * m.others_wait_frac:.0f} % of the time")
    if m.cores_used is not None:
        step = f", the training step {m.step_cores:.1f}" if (m.step_cores or 0) >= _STEP_CORES else ""
        lines.append(f"loading uses {m.cores_used:.1f} of {usable_cores:g} usable cores{step}")
    cores = (m.cores_used or 0.0) + (m.step_cores or 0.0)
    busy = m.cores_used is not None and 100 * cores / usable_cores >= causes.CORES_BUSY_PCT
    if m.cpu_idle_pct is not None and not busy:  # under a CPU quota the machine idles while the job may not use it
        lines.append(f"CPU idle {m.cpu_idle_pct:.0f} %")
    if m.psi_io_some_pct is not None:
        lines.append(f"tasks wait for storage {m.psi_io_some_pct:.0f} % of the time (PSI)")
    if m.read_bytes_per_sample is not None:
        lines.append(f"{m.read_bytes_per_sample / 1024:.1f} KiB read from disk per sample")
    return tuple(lines)


def _workers_advice(candidate: Candidate, m: Measurement, usable_cores: float) -> str | None:
    needed = _cores_at_full_rate(m)
    if needed is None:
        return None
    ranks = max(1, len(m.ranks))
    wanted = max(candidate.num_workers + 1, math.ceil(needed / ranks))
    each = "" if ranks == 1 else " in each rank"
    is_own = candidate.loader == USER
    doing = "loading" if is_own else "decoding"
    text = f"num_workers {candidate.num_workers} -> {wanted}{each}: the full rate takes {needed:.1f} cores for {doing}"
    if needed > usable_cores:
        what = "less CPU time per sample" if is_own else "a decoder with less CPU time per image"
        text += f", more than the {usable_cores:g} usable ones: it needs {what}, too"
    return text


def _cores_advice(candidate: Candidate, m: Measurement, usable_cores: float) -> str | None:
    needed = _cores_at_full_rate(m)
    if needed is None:
        return None
    usable = f"{usable_cores:g} are usable"
    if (m.step_cores or 0) >= _STEP_CORES and m.goodput:
        usable += f", of which the training step takes {(m.step_cores or 0) / m.goodput:.1f}"
    what = "loader" if candidate.loader == USER else "decoder"
    return f"the full rate takes about {needed:.1f} cores with this {what}, {usable}"


def _or_move(advice: str | None, recipe: str | None) -> str | None:
    """The advice, and that the device may augment where the workers do."""
    move = None if recipe is None else f"{recipe} on the device (transforms_on=device) would relieve the workers"
    return "; ".join(filter(None, (advice, move))) or None


def _cores_at_full_rate(m: Measurement) -> float | None:
    full = m.full_samples_per_s
    return None if full is None else cores_for(m, full)


def _diagnosis(
    cause: str,
    lost: float,
    sentence: str,
    evidence: tuple[str, ...],
    advice: str | None = None,
    missing: tuple[str, ...] = (),
) -> Diagnosis:
    """A diagnosis; without ``advice`` it has the general advice of its cause."""
    advice = causes.CAUSES[cause].advice if advice is None else advice
    return Diagnosis(cause=cause, lost_frac=lost, sentence=sentence, evidence=evidence, advice=advice, missing=missing)


def diagnosis_of(
    outcome: Outcome, usable_cores: float, counted_cores: float | None = None, movable_recipe: str | None = None,
    target: float | None = None,
) -> Diagnosis | None:  # fmt: skip
    """Why the accelerator was idle under this candidate; ``None`` when it was not measured."""
    if outcome.measurement is None:
        return None
    return diagnose(outcome.candidate, outcome.measurement, usable_cores, counted_cores, movable_recipe, target)


def counted_cores_of(host: Mapping[str, Any]) -> float | None:
    """Cores whose load is measured on a host, as its record has them; ``None``: it does not say."""
    cores = host.get("cores_affinity")
    return float(len(cores)) if isinstance(cores, (list, tuple)) and cores else None
