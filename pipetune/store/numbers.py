"""Numbers that a stored record may have, by their names: what is far beyond was not measured by anybody.

What is computed from a stored number (a ratio, a date, nanoseconds) must not end a report. So a record with a number
that no machine has is left out where it is read, as one with a text in its place is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from pipetune.records.sweep import Candidate, Goal, HostShare, Measurement, Outcome, RankShare

#: End of a field's name -> largest value, the first that fits. Instants stay whole numbers of 64 bits; dates are those
#: that pandas knows (until 2262); 30 years are no duration.
_MOST: tuple[tuple[str, float], ...] = (
    ("_ns", 2**62),
    ("unix_s", 9e9),
    ("_per_s", 1e15),
    ("_s", 1e9),
)
_MOST_OTHERS = 2**62
#: Smallest rate (samples/s): one sample in 30 years.
_LEAST_RATE = 1e-9
_MOST_COUNT = 1_000_000


def most_of(name: str) -> float:
    """The largest amount that a field of this name may have."""
    return next((most for end, most in _MOST if name.endswith(end)), _MOST_OTHERS)


def bad_number(name: str, value: Any) -> str | None:
    """What is wrong with a number that has this name; ``None``: nothing, or it is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return None if abs(value) <= most_of(name) else f"{name} is {str(value)[:20]}, more than anybody has measured"


def bad_record(record: Any) -> str | None:
    """What is wrong with a stored record, in it and in the records that it holds; ``None``: nothing.

    Its fields have their types already.
    """
    return next(filter(None, _problems(record)), None)


def _problems(record: Any) -> Any:
    rule = _RULES.get(type(record))
    for field in dataclasses.fields(record):
        yield from _within(field.name, getattr(record, field.name))
    if rule is not None:
        yield rule(record)


def _within(name: str, value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        yield from _problems(value)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _within(name, one)
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _within(str(key), one)
    else:
        yield bad_number(name, value)


def _candidate(found: Candidate) -> str | None:
    counts = {"num_workers": found.num_workers, "prefetch_depth": found.prefetch_depth, "batch_size": found.batch_size}
    counts |= {} if found.opencv_threads is None else {"opencv_threads": found.opencv_threads}
    least = {"batch_size": 1}
    wrong = [name for name, count in counts.items() if not least.get(name, 0) <= count <= _MOST_COUNT]
    return f"{wrong[0]} is {counts[wrong[0]]}" if wrong else None


def _measurement(found: Measurement) -> str | None:
    if found.samples_per_s < _LEAST_RATE:
        return f"samples_per_s is {found.samples_per_s}"
    for name in ("ci95", "goodput_ci95", "gpu_util_ci95"):
        interval = getattr(found, name)
        if interval is not None and interval[0] > interval[1]:
            return f"{name} begins behind its end"
    for name in ("steps", "samples", "windows", "warmup_batches", "timed_s"):
        if getattr(found, name) < 0:
            return f"{name} is {getattr(found, name)}"
    for name in ("goodput", "copy_bytes_per_s"):
        value = getattr(found, name)
        if value is not None and value < _LEAST_RATE:
            return f"{name} is {value}"
    if found.batch_shape is not None and (not found.batch_shape or min(found.batch_shape) < 1):
        return f"batch_shape is {list(found.batch_shape)}"
    return None


def _share(found: RankShare | HostShare) -> str | None:
    for name in ("samples_per_s", "goodput"):
        value = getattr(found, name)
        if value is not None and value < _LEAST_RATE:
            return f"{name} is {value}"
    return None


def _outcome(found: Outcome) -> str | None:
    if (found.measurement is None) == (found.failure is None):
        return "it needs a measurement or a failure, and not both"
    return "attempt or block is negative" if found.attempt < 0 or found.block < 0 else None


def _goal(found: Goal) -> str | None:
    return None if 0 < found.target <= 1 and math.isfinite(found.target) else f"target is {found.target}"


_RULES: dict[type[Any], Callable[[Any], str | None]] = {
    Candidate: _candidate,
    Measurement: _measurement,
    RankShare: _share,
    HostShare: _share,
    Outcome: _outcome,
    Goal: _goal,
}
