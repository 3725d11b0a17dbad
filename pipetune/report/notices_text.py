"""What a person reads of a sweep before the ranking is trusted: what was skipped or failed, and warnings. Pure."""

from __future__ import annotations

from pipetune.candidates.describe import describe, describe_outcome
from pipetune.candidates.fit import LACKS_OPEN_FILES
from pipetune.diagnosis.causes import THROTTLED_FRAC
from pipetune.records.shortage import Shortage
from pipetune.records.sweep import Outcome
from pipetune.report.line import Kind, Line
from pipetune.stats.drift import DRIFT_LIMIT, relative_change
from pipetune.stats.noise import OFF_USUAL_LIMIT, off_usual_speed
from pipetune.sweeping.result import SweepResult
from pipetune.units import format_bytes


def notice_lines(result: SweepResult, *, verbose: bool = True) -> list[Line]:
    """What to know before the ranking is trusted: candidates that were skipped or failed, and warnings.

    Args:
        verbose: each warning; else one line for the machine's speed, which most of them are about.
    """
    warnings = [*_warnings(result), *_off_usual_speed(result)] if verbose else _machine_speed(result)
    return [Line(Kind.WARNING, text) for text in (*_skipped(result), *_failed(result), *warnings)]


def _machine_speed(result: SweepResult) -> list[str]:
    """During how many measurements the machine's speed was another one, and heat held the GPU down."""
    measured = [outcome.measurement for outcome in _measured(result) if outcome.measurement is not None]
    all_of_sweep = [outcome.measurement for outcome in result.outcomes]
    within = [relative_change(m.machine_speed_before, m.machine_speed_after) for m in measured]
    changes = [
        max((drift if abs(drift) > DRIFT_LIMIT else 0.0, off if abs(off) > OFF_USUAL_LIMIT else 0.0), key=abs)
        for drift, off in zip(within, (off_usual_speed(m, all_of_sweep) for m in measured), strict=True)
    ]
    disturbed = [change for change in changes if change]
    hot = sum((m.gpu_slowed_pct or 0.0) > 100 * THROTTLED_FRAC for m in measured)
    parts = []
    if disturbed:
        parts.append(
            f"the machine's speed changed in {len(disturbed)} of {len(measured)} measurements, by up to "
            f"{100 * max(map(abs, disturbed)):.0f} %: repeat it when no other load is on the host"
        )
    if hot:
        parts.append(f"heat or the hardware lowered the GPU's clocks in {hot} of {len(measured)} measurements")
    return [f"{'; '.join(parts)} (--verbose names them)"] if parts else []


def _failed(result: SweepResult) -> list[str]:
    return [
        f"{describe(outcome.candidate)}: failed in phase {outcome.failure.phase} ({outcome.failure.kind}): "
        f"{outcome.failure.message}" + (f"; {outcome.failure.hint}" if outcome.failure.hint else "")
        for outcome in result.ranking
        if outcome.failure
    ]


def _skipped(result: SweepResult) -> list[str]:
    """Candidates that do not fit on this machine: a line per resource that is short, with the smallest candidate."""
    lines = []
    for shortage in result.shortages:
        group = [(candidate, failure) for candidate, failure in result.does_not_fit if failure.kind == shortage.kind]
        candidate, failure = min(group, key=lambda pair: pair[0].num_workers * max(1, pair[0].prefetch_depth))
        others = f" (and {len(group) - 1} more{_most(shortage)})" if len(group) > 1 else ""
        lines.append(f"{describe(candidate)}{others}: skipped: {failure.message}; {shortage.remedy}")
    return lines


def _most(shortage: Shortage) -> str:
    """What the largest candidate needs of it; empty where they all need as much, or it is not known."""
    if shortage.most_needed is None or shortage.most_needed == shortage.least_needed:
        return ""
    is_memory = shortage.kind != LACKS_OPEN_FILES
    needed = format_bytes(shortage.most_needed) if is_memory else f"{shortage.most_needed} files"
    return f", which need up to {needed}"


def _warnings(result: SweepResult) -> list[str]:
    """Each distinct warning once, with the candidates that it concerns."""
    concerned: dict[str, list[str]] = {}
    for outcome in _measured(result):
        assert outcome.measurement is not None
        for warning in outcome.measurement.warnings:
            concerned.setdefault(warning, []).append(describe_outcome(outcome))
    return [f"{'; '.join(names)}: {warning}" for warning, names in concerned.items()]


def _off_usual_speed(result: SweepResult) -> list[str]:
    """Candidates during whose measurement the machine was faster or slower than usual."""
    measurements = [outcome.measurement for outcome in result.outcomes]
    off = []
    for outcome in _measured(result):
        assert outcome.measurement is not None
        change = off_usual_speed(outcome.measurement, measurements)
        if abs(change) > OFF_USUAL_LIMIT:
            off.append(f"{describe_outcome(outcome)} ({100 * change:+.0f} %)")
    text = f"measured while the machine ran at another speed than usual in this sweep: {'; '.join(off)}"
    return [text] if off else []


def _measured(result: SweepResult) -> list[Outcome]:
    """The ceiling and the ranking, without failures."""
    found = (*([result.ceiling] if result.ceiling else []), *result.ranking)
    return [outcome for outcome in found if outcome.measurement is not None]
