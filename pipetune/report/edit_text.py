"""What a person reads where no edit is proven to be worth it: to leave it as it is, and what may help. Pure."""

from __future__ import annotations

from pipetune.candidates.describe import describe
from pipetune.records.edit import LEANER, TOO_NOISY, Edit
from pipetune.report.line import Kind, Line
from pipetune.search import meets
from pipetune.search.pooled import UNTUNED_NAME
from pipetune.search.proof import MAX_LOSS, MIN_CORES, MIN_MEMORY_FRAC
from pipetune.search.ties import SAME_RATE
from pipetune.sweeping.result import SweepResult
from pipetune.units import format_duration, format_share

#: Longer than this (s) nobody measures to decide on an edit.
_LONG_S = 3600.0
#: Largest number that ``--blocks`` takes.
_MAX_BLOCKS = 20


def stays_headline(result: SweepResult) -> Line:
    """That the baseline stays as it is, and why; for :attr:`SweepResult.stays`."""
    assert result.edit is not None
    assert result.recommended is not None
    what = describe(result.recommended.candidate)
    if result.untuned_name == UNTUNED_NAME:
        leave = f"Stay with {UNTUNED_NAME} ({what})"
    else:
        leave = f"Leave {result.untuned_name} ({what})"
    if result.edit.verdict == TOO_NOISY:
        other = _describe_edit(result, result.edit)
        if _suffices(result):
            return Line(
                Kind.HEADLINE, f"{leave}: it reaches the target. Too noisy to tell whether {other} does as well."
            )
        doubt = "be sure that" if result.edit.gain_ci95[0] > 1 else "tell whether"
        return Line(Kind.HEADLINE, f"Too noisy to {doubt} {other} is faster. {leave}.")
    return Line(Kind.HEADLINE, f"{leave}: no other setting that was measured is proven to be worth a change.")


def may_help_line(result: SweepResult) -> Line:
    """What may help though it is not proven, and how long a measurement would tell; for :attr:`SweepResult.stays`."""
    edit = result.edit
    assert edit is not None
    low, high = edit.gain_ci95
    interval = f"{edit.gain:.2f} times {_than(result)} ({low:.2f} to {high:.2f})"
    other = _describe_edit(result, edit)
    saved = saving_text(edit)
    if edit.more_s is None and edit.verdict != TOO_NOISY and not saved:
        if high <= 1 + SAME_RATE:
            return Line(Kind.DETAIL, f"The nearest, {other}, is no faster: {interval}.")
        text = f"What may help: {other}, by {format_share(high - 1)} at most: {interval}."
        return Line(Kind.DETAIL, text)
    if _suffices(result) and not saved:
        text = f"{other[:1].upper()}{other[1:]} delivers {interval}, and saves too little to be worth an edit."
        return Line(Kind.DETAIL, text)
    if saved:
        text = f"What may help: {other}. It saves {saved}, and may lose more than {format_share(MAX_LOSS)}: {interval}."
    elif edit.gain <= 1:
        text = f"Nothing that was measured points to a gain; the nearest is {other}: {interval}."
    elif edit.verdict == TOO_NOISY:  # the end of such an interval says nothing
        text = f"What may help: {other}: {interval}."
    else:
        text = f"What may help: {other}, which may bring up to {format_share(high - 1)}: {interval}."
    if edit.verdict == TOO_NOISY and low > 1:
        text += " An interval as wide as that is too uncertain itself to prove a gain."
    return Line(Kind.DETAIL, f"{text} {_how_long(edit)}")


def _suffices(result: SweepResult) -> bool:
    """Whether the baseline reaches the target, so that another candidate could only save something."""
    own = result.recommended
    return own is not None and own.measurement is not None and meets(own.measurement, result.goal)


def saving_text(edit: Edit) -> str:
    """``'1.2 cores and 30 % of the memory'``, as far as it is worth an edit; empty: it is not."""
    parts = []
    if edit.saved_cores is not None and edit.saved_cores >= MIN_CORES:
        parts.append(f"{edit.saved_cores:.1f} cores")
    if edit.saved_memory_frac is not None and edit.saved_memory_frac >= MIN_MEMORY_FRAC:
        parts.append(f"{format_share(edit.saved_memory_frac)} of the memory")
    return " and ".join(parts)


def proven_saving(result: SweepResult) -> str:
    """``'; it saves 1.2 cores'`` where that is why the edit is recommended; empty: it is faster."""
    edit = result.edit
    if edit is None or edit.verdict != LEANER:
        return ""
    return f"; it saves {saving_text(edit)} and is proven to lose no more than {format_share(MAX_LOSS)}"


def _how_long(edit: Edit) -> str:
    if edit.more_s is None or edit.more_blocks is None:
        return "Other processes, or the machine itself, disturb the measurement: repeat it when the machine is quiet."
    if edit.more_s > _LONG_S:
        return "A measurement that tells would take more than an hour."
    how = f" (--resume with --blocks {edit.more_blocks})" if edit.more_blocks <= _MAX_BLOCKS else ""
    return f"About {format_duration(edit.more_s)} more of measuring would tell{how}."


def _than(result: SweepResult) -> str:
    return "the default" if result.untuned_name == UNTUNED_NAME else result.untuned_name


def _describe_edit(result: SweepResult, edit: Edit) -> str:
    known = {outcome.candidate.key: describe(outcome.candidate) for outcome in result.outcomes}
    return known.get(edit.key, edit.key)
