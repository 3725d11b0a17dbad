"""How candidates, running and finished ones, are written in one line each while a sweep runs. Pure."""

from __future__ import annotations

from pipetune.candidates.describe import describe_outcome, describe_role
from pipetune.measure.harness import Live
from pipetune.records.sweep import Outcome
from pipetune.report.columns import format_interval
from pipetune.sweeping.observer import Event
from pipetune.units import format_rate

_PHASES = {
    "page cache": "reading the images into the page cache",
    "spawn": "starting a process",
    "open": "importing, opening",
    "first_batch": "waiting for the first batch",
    "warmup": "warming up",
    "timed": "measuring",
    "close": "ending",
    "check": "an image does not decode: trying all of them",
}
#: Steps to which a time is rounded (s), with the largest time for each.
_ROUNDED_S = ((20.0, 1), (120.0, 5), (600.0, 30), (float("inf"), 60))


def rounded(seconds: float) -> float:
    """A time left with no more digits than it is known to."""
    step = next(step for most, step in _ROUNDED_S if seconds <= most)
    return step * round(seconds / step)


def label(event: Event) -> str:
    """What is measured."""
    what = describe_role(event.role, event.candidate, other_batch=event.other_batch)
    return f"{what} (again)" if event.attempt > 1 else what


def live_text(live: Live, emulated: str) -> str:
    """Where the running measurement is."""
    parts = [_PHASES.get(live.phase, live.phase)]
    if live.images_done is not None:
        parts.append(f"{live.images_done:,} images")
    if live.samples_per_s is not None:
        parts.append(format_rate(live.samples_per_s))
    if live.idle_frac is not None:
        parts.append(f"{emulated}util {100 * (1 - live.idle_frac):.0f} %")
    if live.data_wait_frac is not None:
        parts.append(f"data wait {100 * live.data_wait_frac:.0f} %")
    return ", ".join(parts)


def outcome_line(outcome: Outcome, emulated: str = "") -> str:
    """A finished candidate; ``emulated`` marks figures of an emulated accelerator."""
    what = describe_outcome(outcome)
    again = " (again)" if outcome.attempt > 1 else ""
    m = outcome.measurement
    if m is None:
        failure = outcome.failure
        reason = f"{failure.kind}: {failure.message}" if failure else "no result"
        return f"✗ {what}{again}: {reason}"
    share = "" if m.goodput is None else f", goodput {100 * m.goodput:.0f} %"
    util = "" if m.gpu_util_pct is None else f", {emulated}util {m.gpu_util_pct:.0f} %"
    return f"✓ {what}{again}: {format_interval(m)}{share}{util}, data wait {100 * m.data_wait_frac:.0f} %"
