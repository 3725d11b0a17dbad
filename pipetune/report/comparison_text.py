"""Two compared runs in words. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipetune.candidates.describe import describe
from pipetune.candidates.varied import word
from pipetune.explaining.facts import PARTS
from pipetune.records.sweep import Candidate
from pipetune.report.line import Kind, Line
from pipetune.report.run_name import name_of
from pipetune.runs.comparison import Comparison, Difference
from pipetune.runs.run import EXPLAIN, WATCH, Run
from pipetune.units import format_rate

#: Up to so many candidates are named; more are counted per backend.
_MAX_NAMED = 2
#: What the rows of a comparison are, where they are no candidates.
_OF_KIND = {WATCH: "ranks", EXPLAIN: "parts"}


def comparison_lines(found: Comparison, before: Run, after: Run) -> Iterator[Line]:
    """What :func:`pipetune.runs.comparison.compare` found, one line each.

    The lines of kind ``HEADLINE`` are the differences beyond the intervals.

    Args:
        found: from these two runs.
    """
    for stored in (before, after):
        yield from (Line(Kind.WARNING, f"! {stored.path}: {problem}") for problem in stored.problems)
    for change in found.changes:
        values = (_value(change.name, value) for value in (change.before, change.after))
        yield Line(Kind.CONTEXT, f"{change.part}: {change.name} {' -> '.join(values)}")
    if found.other_work and found.differences:
        work = ", ".join(found.other_work)
        yield Line(
            Kind.WARNING, f"! the two did not do the same work ({work}), which alone can make the rates differ"
        )  # fmt: skip
    if not found.changes:
        yield Line(Kind.CONTEXT, "configuration and machine are the same")
    candidates = {outcome.candidate.key: outcome.candidate for run in (before, after) for outcome in run.outcomes}
    for difference in found.differences:
        yield Line(Kind.HEADLINE if difference.outside else Kind.DETAIL, _compared(difference, found.unit, candidates))
    unshared = [
        f"{_counted(names, candidates, run.kind)} only in {name_of(run)}"
        for names, run in ((found.only_before, before), (found.only_after, after))
        if names
    ]
    if unshared:
        yield Line(Kind.DETAIL, f"not in both: {'; '.join(unshared)}")
    first, second = (key and _name(key, candidates) for key in found.recommended)
    if first != second:
        yield Line(Kind.HEADLINE, f"recommended: {first or 'nothing'} -> {second or 'nothing'}")
    elif first is not None:
        yield Line(Kind.DETAIL, f"recommended in both: {first}")
    if not found.differences:
        yield Line(Kind.DETAIL, f"they have no measured {_OF_KIND.get(before.kind, 'candidates')[:-1]} in common")


def _counted(names: Sequence[str], candidates: Mapping[str, Candidate], kind: str) -> str:
    """``'12 candidates (pillow 8, opencv 4)'``, or their names where they are few."""
    if len(names) <= _MAX_NAMED:
        return " and ".join(f"({_name(name, candidates)})" for name in names)
    backends = Counter(candidates[name].backend for name in names if name in candidates)
    kinds = ", ".join(f"{backend} {count}" for backend, count in backends.most_common())
    return f"{len(names)} candidates ({kinds})" if kinds else f"{len(names)} {_OF_KIND.get(kind, 'candidates')}"


def _name(name: str, candidates: Mapping[str, Candidate]) -> str:
    return describe(candidates[name]) if name in candidates else PARTS.get(name, name)


def _compared(found: Difference, unit: str, candidates: Mapping[str, Candidate]) -> str:
    show = _rate if unit == "samples/s" else _share
    numbers = f"{show(found.before, found.before_ci95)} -> {show(found.after, found.after_ci95)}"
    ratio = "" if unit == "samples/s" else " lost"
    if found.ratio is not None and found.ratio_ci95 is not None:
        ratio = f", {found.ratio:.2f}x ({found.ratio_ci95[0]:.2f}..{found.ratio_ci95[1]:.2f})"
    verdict = "no difference beyond the intervals"
    if found.outside:
        verdict = ("better" if found.better else "worse") + ", outside both intervals"
    return f"{_name(found.name, candidates)}: {numbers}{ratio}: {verdict}"


def _rate(value: float, ci95: tuple[float, float]) -> str:
    return f"{format_rate(value)} ({format_rate(ci95[0], '')}..{format_rate(ci95[1], '')})"


def _share(value: float, ci95: tuple[float, float]) -> str:
    return f"{100 * value:.0f} % ({100 * ci95[0]:.0f}..{100 * ci95[1]:.0f})"


def _value(name: str, value: Any) -> str:
    """The value of an option as it is written on the command line."""
    if value is None:
        return "-"
    if name == "fix" and isinstance(value, tuple):
        value = [f"{setting}={word(chosen)}" for setting, chosen in value]
    return (",".join(map(str, value)) or "none") if isinstance(value, (list, tuple)) else str(value)
