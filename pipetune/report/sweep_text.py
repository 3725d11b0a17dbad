"""What a person reads at the end of a sweep: the verdict in sentences, and the ranking as a table. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipetune.candidates.describe import describe
from pipetune.diagnosis.candidate import cores_for, diagnosis_of
from pipetune.diagnosis.causes import HEALTHY
from pipetune.records.sweep import Candidate, Failure, Measurement, Outcome
from pipetune.search import meets
from pipetune.stats.noise import OFF_USUAL_LIMIT, off_usual_speed
from pipetune.sweeping.result import SweepResult, deviation_of
from pipetune.units import format_bytes, format_duration, format_rate

if TYPE_CHECKING:
    from rich.table import Table


#: Characters that the table puts between two columns, and the columns that are always shown.
_BETWEEN_COLUMNS = 3
_LEAST_COLUMNS = 2
#: A step that takes longer by more than this share is worth a sentence.
_SLOWER = 0.05
#: Ties that are named.
_TIES = 3


def pixels_of(candidate: Candidate) -> str:
    """How near its pixels are to Pillow's: ``=`` or ``38 dB`` (peak signal-to-noise ratio, at the worst crop scale)."""
    found = deviation_of(candidate)
    return "=" if found is None else f"{found['psnr_db']:.0f} dB"


def format_interval(m: Measurement) -> str:
    """``'1,234/s ±3 %'``."""
    half = (m.ci95[1] - m.ci95[0]) / 2 / m.samples_per_s
    return f"{format_rate(m.samples_per_s)} ±{_percent(100 * half)}"


def verdict(result: SweepResult) -> list[str]:
    """The result in sentences, most important last; each is one line."""
    lines = []
    ceiling = result.ceiling.measurement if result.ceiling else None
    if ceiling is not None:
        model = f" of {result.workload['model']}" if result.accelerator.kind != "emulated" else ""
        lines.append(
            f"{result.accelerator.name} takes {format_rate(ceiling.samples_per_s)}{model} when never kept waiting."
        )
    if result.baseline is not None and result.baseline.measurement is not None:
        lines.append(f"PyTorch's default ({describe(result.baseline.candidate)}) {_feeds(result, result.baseline)}")
    if result.status == "failed":
        lines.append(f"FAILED: {result.message}.")
    elif result.recommended is None or result.recommended.measurement is None:
        lines.append("Nothing was measured yet.")
    elif meets(result.recommended.measurement, result.goal):
        lines += _met(result, result.recommended, result.recommended.measurement)
    else:
        lines += _missed(result, result.recommended, result.recommended.measurement)
    if result.status == "interrupted":
        lines.append("INTERRUPTED: the search had not come to its end.")
    return lines


def _feeds(result: SweepResult, outcome: Outcome) -> str:
    m = outcome.measurement
    assert m is not None  # callers have looked
    diagnosis = diagnosis_of(outcome, result.usable_cores)
    because = f"; {diagnosis.sentence}" if diagnosis else ""
    return f"feeds it {format_interval(m)}, {_share(m)} of that{because}."


def _met(result: SweepResult, outcome: Outcome, m: Measurement) -> list[str]:
    lines = [
        f"Recommended: {describe(outcome.candidate)} feeds it {format_interval(m)}, {_share(m)} of that"
        f"{_gain(result)}; it uses {_cost(m)}."
    ]
    return lines + _how_sure(result)


def _how_sure(result: SweepResult) -> list[str]:
    lines = []
    m = result.recommended.measurement if result.recommended else None
    if m is not None and (m.step_slower_frac or 0) > _SLOWER:
        share = _percent(100 * (m.step_slower_frac or 0))
        lines.append(f"Beside its workers a training step takes {share} longer, which is in its rate.")
    if result.doubts:
        lines.append(f"Not certain: {'; '.join(result.doubts)}.")
    if result.ties:
        shown = ", ".join(result.ties[:_TIES])
        more = f" and {len(result.ties) - _TIES} more" if len(result.ties) > _TIES else ""
        lines.append(f"It cannot be told from {shown}{more}; it is the cheapest of them.")
    return lines


def _missed(result: SweepResult, outcome: Outcome, m: Measurement) -> list[str]:
    nvml = result.goal.metric == "nvml"
    reached = f"{_percent(m.gpu_util_pct)} GPU utilisation" if nvml else f"{_share(m)} of that"
    so_far = "No candidate reaches" if result.complete else "None of the candidates measured so far reaches"
    lines = [
        f"{so_far} the target {'GPU utilisation' if nvml else 'share'} of "
        f"{_percent(100 * result.goal.target)}. "
        f"The nearest, {describe(outcome.candidate)}, feeds it {format_interval(m)}, {reached}{_gain(result)}."
    ]
    diagnosis = diagnosis_of(outcome, result.usable_cores)
    if diagnosis and diagnosis.cause != HEALTHY:  # a target beyond what counts as fed
        lines.append(f"Why it falls short: {diagnosis.sentence} ({'; '.join(diagnosis.evidence)}).")
    needed = cores_for(m, result.goal.target * m.samples_per_s / m.goodput) if m.goodput else None
    if result.complete and needed is not None and needed > result.usable_cores:
        lines.append(
            f"What would have to change: at the target this decoder needs about {needed:.1f} cores, "
            f"{result.usable_cores:g} are usable. More cores, a cheaper decoder, smaller or pre-resized images, "
            "or decoding on the GPU."
        )
    return lines + _how_sure(result)


def _gain(result: SweepResult) -> str:
    if result.speedup is None or result.speedup_ci95 is None or result.recommended is result.baseline:
        return ""
    low, high = result.speedup_ci95
    return f", {result.speedup:.2f}x the default ({low:.2f}..{high:.2f})"


def _cost(m: Measurement) -> str:
    parts = [] if m.cores_used is None else [f"{m.cores_used:.1f} cores"]
    parts += [] if m.pss_bytes is None else [format_bytes(m.pss_bytes)]
    return " and ".join(parts) or "an unknown amount of CPU"


def _share(m: Measurement) -> str:
    return "-" if m.goodput is None else _percent(100 * m.goodput)


def _percent(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f} %" if 0 < value < 10 else f"{value:.0f} %"


def ranking_table(result: SweepResult, width: int) -> Table:
    """One row per candidate, fastest first. Columns that do not fit into ``width`` characters are left out whole."""
    from rich import box
    from rich.table import Table

    measured = [(outcome, outcome.measurement) for outcome in result.ranking if outcome.measurement]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    rows: list[list[str]] = [[] for _ in measured]
    used = 0
    for number, (heading, cell) in enumerate(_columns(result)):
        cells = [cell(result, outcome, m) for outcome, m in measured]
        used += max(map(len, (heading, *cells))) + _BETWEEN_COLUMNS
        if used > width + _BETWEEN_COLUMNS and number >= _LEAST_COLUMNS:
            break
        table.add_column(heading, justify="left" if number == 0 else "right", no_wrap=True, overflow="ellipsis")
        for row, text in zip(rows, cells, strict=True):
            row.append(text)
    for (outcome, _), row in zip(measured, rows, strict=True):
        table.add_row(*row, style="bold" if outcome is result.recommended else None)
    return table


def failure_lines(result: SweepResult) -> list[str]:
    """One line per candidate that failed."""
    return [
        f"{outcome.candidate.key} failed ({outcome.failure.kind}, {outcome.failure.phase}): {outcome.failure.message}"
        + (f"; {outcome.failure.hint}" if outcome.failure.hint else "")
        for outcome in result.ranking
        if outcome.failure
    ]


def skipped_lines(result: SweepResult) -> list[str]:
    """Candidates that do not fit on this machine: one line per thing that is lacking, with the smallest of them."""
    groups: dict[str, list[tuple[Candidate, Failure]]] = {}
    for candidate, failure in result.does_not_fit:
        groups.setdefault(failure.kind, []).append((candidate, failure))
    lines = []
    for group in groups.values():
        candidate, failure = min(group, key=lambda pair: pair[0].num_workers * max(1, pair[0].prefetch_depth))
        others = f" (and {len(group) - 1} more)" if len(group) > 1 else ""
        lines.append(f"{candidate.key}{others} skipped: {failure.message}; {failure.hint}")
    return lines


def path_lines(result: SweepResult) -> list[str]:
    """How the search went: each measurement in its order, what came of it and why it was made."""
    lines = []
    for outcome in result.outcomes:
        m = outcome.measurement
        found = (
            f"{format_interval(m)}, {_share(m)}" if m else f"failed ({outcome.failure.kind if outcome.failure else ''})"
        )
        again = " again" if outcome.attempt > 1 else f" in block {outcome.block}" if outcome.block else ""
        why = f" ({outcome.why})" if outcome.why else ""
        lines.append(f"{outcome.candidate.key}{again}: {found}{why}")
    return lines


def warning_lines(result: SweepResult) -> list[str]:
    """Each distinct warning once, with the candidates that it concerns."""
    concerned: dict[str, list[str]] = {}
    measurements = [outcome.measurement for outcome in result.outcomes]
    for outcome in (*([result.ceiling] if result.ceiling else []), *result.ranking):
        if outcome.measurement is None:
            continue
        name = "max ingestion rate" if outcome.role == "ceiling" else outcome.candidate.key
        own = list(outcome.measurement.warnings)
        off = off_usual_speed(outcome.measurement, measurements)
        if abs(off) > OFF_USUAL_LIMIT:
            own.append(f"measured while the machine was {100 * off:+.0f} % off its usual speed in this sweep")
        for warning in own:
            concerned.setdefault(warning, []).append(name)
    return [f"{', '.join(keys)}: {warning}" for warning, keys in concerned.items()]


def _columns(result: SweepResult) -> list[_Column]:
    """Heading and cell of each column, most important first."""
    emulated = "EMULATED " if result.accelerator.kind == "emulated" else ""
    return [
        ("candidate", _mark),
        ("rate", lambda _, o, m: format_interval(m)),
        ("goodput", lambda _, o, m: _share(m)),
        (f"{emulated}util", lambda _, o, m: _percent(m.gpu_util_pct)),
        ("data wait", lambda _, o, m: _percent(100 * m.data_wait_frac)),
        ("cores", lambda _, o, m: "-" if m.cores_used is None else f"{m.cores_used:.1f}"),
        ("CPU idle", lambda _, o, m: _percent(m.cpu_idle_pct)),
        ("pixels", lambda _, o, m: pixels_of(o.candidate)),
        ("memory", lambda _, o, m: "-" if m.pss_bytes is None else format_bytes(m.pss_bytes)),
        ("first batch", lambda _, o, m: format_duration(m.time_to_first_batch_s)),
        ("iowait", lambda _, o, m: _percent(m.iowait_pct)),
    ]


def _mark(result: SweepResult, outcome: Outcome, m: Measurement) -> str:
    if outcome is result.recommended:
        sign = ">" if meets(m, result.goal) else "?"
    else:
        sign = "*" if outcome.role == "baseline" else " "
    return f"{sign} {describe(outcome.candidate)}"


if TYPE_CHECKING:
    from collections.abc import Callable

    _Column = tuple[str, Callable[[SweepResult, Outcome, Measurement], str]]
