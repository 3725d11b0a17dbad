"""Why the accelerator was idle: measurements in, a :class:`Diagnosis` out. Pure; every threshold has its source.

iowait is never used: proc(5) calls it unreliable, and it vanishes when other tasks keep the CPU busy. Waiting for
storage is read from pressure stall information and the bytes that really came from the disk.
"""

from __future__ import annotations

import math

from pipetune.records.sweep import Candidate, Diagnosis, Measurement, Outcome

#: Causes.
ACCELERATOR_BOUND = "accelerator_bound"
NO_WORKERS = "no_workers"
TOO_FEW_WORKERS = "too_few_workers"
CPU_BOUND = "cpu_bound"
OTHER_LOAD = "other_load"
CONTENTION = "contention"
DISK_BOUND = "disk_bound"
UNDETERMINED = "undetermined"

#: Below this share of lost time a pipeline is not input bound (TensorFlow Profiler's input-pipeline analyzer: 5 %).
NOT_INPUT_BOUND = 0.05
#: At and above this share it is highly input bound (the same source: 20 %).
HIGHLY_INPUT_BOUND = 0.20
#: All usable cores count as busy from here on. Softened from SageMaker Debugger's 90 % of one core: it is a mean over
#: all of them here.
CORES_BUSY_PCT = 88.0
#: A loader with less than this share of the usable cores, on a busy machine, is short of cores because of others.
OWN_SHARE = 0.75
#: Loader workers count as saturated when together they use this share of one core each.
WORKERS_BUSY_FRAC = 0.80
#: Storage is the cause when some task waited for it this share of the time (our own; 50 % was seen with two readers).
DISK_PSI_PCT = 20.0
#: … and the loader itself reads at least a page per sample from it; the pressure alone may be somebody else's.
DISK_BYTES = 4096


def diagnose(candidate: Candidate, measurement: Measurement, usable_cores: float) -> Diagnosis:
    """The main cause of the accelerator's idle time under one candidate.

    Args:
        usable_cores: cores after affinity and cgroup quota.
    """
    m = measurement
    lost = _lost(m)
    evidence = _evidence(candidate, m, usable_cores)
    severity = "highly input bound" if lost >= HIGHLY_INPUT_BOUND else "input bound"
    if lost < NOT_INPUT_BOUND:
        sentence = "the accelerator is the limit: the loader keeps it fed"
        return _diagnosis(ACCELERATOR_BOUND, lost, sentence, evidence, None)
    from_disk = m.read_bytes_per_sample or 0
    if m.psi_io_some_pct is not None and m.psi_io_some_pct >= DISK_PSI_PCT and from_disk >= DISK_BYTES:
        sentence = f"{severity}: loader workers wait for storage"
        return _diagnosis(DISK_BOUND, lost, sentence, evidence, "keep the images on a faster disk or in memory")
    if m.cpu_busy_pct is None or m.cores_used is None:
        missing = ("CPU time of the machine and of the loader (/proc was not readable)",)
        return _diagnosis(UNDETERMINED, lost, f"{severity}: the cause is open", evidence, None, missing)
    own_share = m.cores_used / usable_cores
    # The machine's load is that of all its cores; it can be compared only where this process may use those, too.
    others = m.cpu_busy_pct / 100 * usable_cores - m.cores_used
    if m.cpu_busy_pct >= CORES_BUSY_PCT and own_share < OWN_SHARE:
        sentence = f"{severity}: other processes keep {others:.1f} of {usable_cores:g} usable cores busy"
        return _diagnosis(OTHER_LOAD, lost, sentence, evidence, "measure again when they are gone")
    if m.data_wait_frac < NOT_INPUT_BOUND and m.accelerator_idle_frac < NOT_INPUT_BOUND:
        copying = "" if m.h2d_frac is None else f"; copying batches takes {100 * m.h2d_frac:.0f} % of its time"
        sentence = f"the accelerator never waits, but works more slowly beside this loader{copying}"
        return _diagnosis(CONTENTION, lost, sentence, evidence, None)
    # Before "all cores busy": without workers torch's own threads spin on the other cores between two operations.
    if candidate.num_workers == 0 and usable_cores > 1:
        sentence = f"{severity}: the training process decodes by itself, one image after the other"
        return _diagnosis(NO_WORKERS, lost, sentence, evidence, _workers_advice(candidate, m, usable_cores))
    if 100 * own_share >= CORES_BUSY_PCT:
        sentence = f"{severity}: all {usable_cores:g} usable cores are busy decoding"
        return _diagnosis(CPU_BOUND, lost, sentence, evidence, _cores_advice(m, usable_cores))
    if m.cores_used >= WORKERS_BUSY_FRAC * candidate.num_workers and usable_cores > candidate.num_workers:
        sentence = f"{severity}: the {candidate.num_workers} loader worker(s) are busy while cores stand idle"
        return _diagnosis(TOO_FEW_WORKERS, lost, sentence, evidence, _workers_advice(candidate, m, usable_cores))
    sentence = f"{severity}: neither cores nor storage explain the wait; moving batches between processes may"
    missing = ("stacks of the training process and its workers",)
    return _diagnosis(UNDETERMINED, lost, sentence, evidence, None, missing)


def cores_for(measurement: Measurement, samples_per_s: float) -> float | None:
    """Cores that this backend would need to deliver a rate, from its CPU time per sample as measured.

    An underestimate where more workers get in each other's way; ``None`` when CPU time was not measured.
    """
    per_sample = measurement.cpu_s_per_1000_samples
    return None if per_sample is None else per_sample / 1000 * samples_per_s


def _lost(m: Measurement) -> float:
    """Share of the accelerator's time lost; from the ceiling where there is one, else from its idle time."""
    return max(0.0, 1 - m.goodput) if m.goodput is not None else m.accelerator_idle_frac


def _evidence(candidate: Candidate, m: Measurement, usable_cores: float) -> tuple[str, ...]:
    lines = [f"the training loop waits for data {100 * m.data_wait_frac:.0f} % of the time"]
    if m.cores_used is not None:
        lines.append(f"loading uses {m.cores_used:.1f} of {usable_cores:g} usable cores")
    busy = m.cores_used is not None and 100 * m.cores_used / usable_cores >= CORES_BUSY_PCT
    if m.cpu_idle_pct is not None and not busy:  # under a CPU quota the machine idles while we may not use it
        lines.append(f"CPU idle {m.cpu_idle_pct:.0f} %")
    if m.psi_io_some_pct is not None:
        lines.append(f"tasks wait for storage {m.psi_io_some_pct:.0f} % of the time (PSI)")
    if m.read_bytes_per_sample is not None:
        lines.append(f"{m.read_bytes_per_sample / 1024:.1f} KiB read from disk per sample")
    return tuple(lines)


def _workers_advice(candidate: Candidate, m: Measurement, usable_cores: float) -> str | None:
    needed = None if m.goodput is None else cores_for(m, m.samples_per_s / max(m.goodput, 1e-9))
    if needed is None:
        return None
    wanted = max(candidate.num_workers + 1, math.ceil(needed))
    text = f"num_workers {candidate.num_workers} -> {wanted}: full rate takes {needed:.1f} cores' worth of decoding"
    if needed > usable_cores:
        text += f", more than the {usable_cores:g} there are: a cheaper decoder is needed too"
    return text


def _cores_advice(m: Measurement, usable_cores: float) -> str | None:
    needed = None if m.goodput is None else cores_for(m, m.samples_per_s / max(m.goodput, 1e-9))
    if needed is None:
        return None
    return f"full rate takes about {needed:.1f} cores with this decoder, {usable_cores:g} are usable"


def _diagnosis(
    cause: str, lost: float, sentence: str, evidence: tuple[str, ...], advice: str | None, missing: tuple[str, ...] = ()
) -> Diagnosis:
    return Diagnosis(cause=cause, lost_frac=lost, sentence=sentence, evidence=evidence, advice=advice, missing=missing)


def diagnosis_of(outcome: Outcome, usable_cores: float) -> Diagnosis | None:
    """Why the accelerator was idle under this candidate; ``None`` when it was not measured."""
    if outcome.measurement is None:
        return None
    return diagnose(outcome.candidate, outcome.measurement, usable_cores)
