"""The sentence of a verdict. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipetune.diagnosis import causes
from pipetune.diagnosis.attribution import Loss
from pipetune.diagnosis.context import Context
from pipetune.records.observation import LOADER_WAIT
from pipetune.units import whole_percent

#: Causes that the sentence about a whole run names: at most so many, from this share of the lost time on.
_MAX_NAMED, _MIN_NAMED = 4, 0.1
#: Further causes that the sentence about a window names.
_MAX_FURTHER = 2


def window_sentence(cause: str, loss: Loss, context: Context, readings: int) -> str:
    """How much of one window was lost, and to what.

    Args:
        cause: the headline.
        loss: of the window.
        context: of the window.
        readings: how many the window has.
    """
    if readings < causes.MIN_READINGS:
        return f"{readings} {'reading is' if readings == 1 else 'readings are'} too few for a verdict"
    if cause == causes.THROTTLED:
        share = whole_percent(context.gpu.slowed_frac or 0.0)
        return f"the accelerator is busy, but heat or its hardware holds its clocks down {share} of the time"
    lost = f"{whole_percent(loss.lost_frac)} of {_what(loss.source)}"
    if cause == causes.HEALTHY:
        remark = context.gpu.power_remark
        return f"healthy: {lost}; {causes.title_of(cause)}{f', {remark}' if remark else ''}"
    if cause != causes.UNDETERMINED:
        further = [(name, share) for name, share in loss.shares.items() if name != cause and share >= causes.MIN_SECOND]
        return f"{lost}, {_named([(cause, loss.shares[cause]), *further[:_MAX_FURTHER]])}"
    if loss.lost_frac < causes.HEALTHY_LOST:
        return "what the main thread does cannot be seen from outside"
    if not loss.proven:
        low, high = (100 * limit for limit in loss.idle_ci95)
        return (
            f"{lost}, but from {readings} readings it may be anything from {low:.0f} to {high:.0f} %: watch for longer"
        )
    return f"{lost}; the cause is undetermined"


def run_sentence(cause: str, source: str, lost_frac: float, shares: Mapping[str, float], seconds: float) -> str:
    """How much of a whole run was lost, and to what.

    Args:
        cause: the headline.
        source: what the lost time is read from.
        lost_frac: share of the time that was lost.
        shares: cause -> share of the lost time, largest first.
        seconds: how long the run was watched.
    """
    text = f"over {seconds:.0f} s, {whole_percent(lost_frac)} of {_what(source)}"
    named = [(name, share) for name, share in shares.items() if share >= _MIN_NAMED]
    if lost_frac < causes.HEALTHY_LOST or not named:
        return f"{text}; {causes.title_of(cause)}"
    return f"{text}, {_named(named[:_MAX_NAMED])}"


def _named(shares: Sequence[tuple[str, float]]) -> str:
    """``'90 % of that to decoding on the CPU, 10 % to reading from disk'``."""
    parts = [f"{whole_percent(share)} to {causes.title_of(name)}" for name, share in shares[1:]]
    (first, share), *_ = shares
    return ", ".join([f"{whole_percent(share)} of that to {causes.title_of(first)}", *parts])


def _what(source: str) -> str:
    if source == LOADER_WAIT:
        return "the main thread's time goes into other things than training"
    return "the accelerator's time is lost"
