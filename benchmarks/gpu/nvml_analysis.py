"""What a recording of NVML shows: per call its cost and failures, per value how often it is updated, and how late.

Under a load that is switched on and off (a square wave) two figures describe how late a value is: ``lag_s`` is the
shift at which it resembles the wave most, and contains half of the period that the value is averaged over; ``age_s`` of
samples, which have times of their own, is how old the newest one was when it came.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.nvml_recording import Answer, Recording, read_recording

#: The lag is searched for on this grid, up to this limit (s). A value that resembles the wave less than this has none.
_GRID_S, _MAX_LAG_S, _MIN_CORRELATION = 0.01, 3.0, 0.3
#: Of these calls, which count up, the rate is compared with the wave.
_COUNTERS = {"nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetFieldValues"}
#: Times between changes of up to this multiple of the shortest usual one are of one update.
_ONE_UPDATE = 1.5

#: When the load went on or off: ``time.monotonic_ns`` and whether it is on from then.
Wave = Sequence[tuple[int, bool]]
Series = tuple[list[int], list[float]]


def describe_recording(path: Path | str, wave: Wave | None = None) -> dict[str, Any]:
    """Describe a recording.

    Args:
        path: of the recording, packed or not.
        wave: when the load went on and off, ascending; ``None``: there was none.

    Returns:
        ``gpu`` (the recording's header), ``seconds``, ``answers`` (rows), ``clock_drift_us`` (how far the clock since
        1970 went ahead of the monotonic one from the first pair of clocks to the last), and ``calls``: per call with
        its arguments

        - ``count``, ``median_us``, ``p90_us``, ``max_us`` of all answers, and with a wave ``median_busy_us`` and
          ``median_idle_us``;
        - ``errors``: share of the answers by return code;
        - ``gap_s``: median time between two answers;
        - ``values``: per value ``distinct``, ``min``, ``max``, ``updates`` (changes), ``update_s`` (time between two
          updates; ``None``: fewer than four), and with a wave ``lag_s`` and ``correlation``;
        - of samples also ``sample_s`` (median time that one is about) and ``age_s`` (least, median and greatest age of
          the newest sample when it came; below zero: the driver's clock is ahead).

    Raises:
        OSError, ValueError: the file cannot be read, or is no recording.
    """
    recording = read_recording(Path(path))
    by_call: dict[str, list[Answer]] = defaultdict(list)
    for answer in recording.answers:
        by_call[_title(answer)].append(answer)
    edges_us = None if wave is None else [((t_ns - recording.header["began_ns"]) / 1000, on) for t_ns, on in wave]
    last_us = recording.answers[-1].t_us if recording.answers else 0
    first, last = recording.clocks_us[0], recording.clocks_us[-1]
    return {
        "gpu": recording.header,
        "seconds": last_us / 1e6,
        "answers": len(recording.answers),
        "clock_drift_us": (last[1] - first[1]) - (last[0] - first[0]),
        "calls": {title: describe_call(answers, recording, edges_us) for title, answers in sorted(by_call.items())},
    }


def describe_call(
    answers: Sequence[Answer], recording: Recording, edges_us: Sequence[tuple[float, bool]] | None
) -> dict[str, Any]:
    took_us = np.array([answer.took_us for answer in answers])
    codes = Counter(answer.code for answer in answers)
    found: dict[str, Any] = {
        "count": len(answers),
        "median_us": float(np.median(took_us)),
        "p90_us": float(np.percentile(took_us, 90)),
        "max_us": int(took_us.max()),
        "errors": {str(code): count / len(answers) for code, count in sorted(codes.items()) if code},
        "gap_s": _median(np.diff([answer.t_us for answer in answers])),
    }
    if edges_us:
        on = np.array([_is_on(edges_us, answer.t_us) for answer in answers])
        for name, chosen in (("median_busy_us", on == 1), ("median_idle_us", on == 0)):
            found[name] = float(np.median(took_us[chosen])) if chosen.any() else None
    call = answers[0].call
    succeeded = [answer for answer in answers if answer.code == 0]
    if call == "nvmlDeviceGetSamples":
        found |= describe_samples(succeeded, recording)
    series = list_series(call, succeeded, recording)
    counts = call in _COUNTERS
    found["values"] = {
        name: describe_values(times_us, values, edges_us, counts=counts, end_us=answers[-1].t_us)
        for name, (times_us, values) in series.items()
    }
    return found


def describe_samples(answers: Iterable[Answer], recording: Recording) -> dict[str, Any]:
    """How long the samples are, and how old the newest one was when it came (s)."""
    ages, stamps = [], set()
    for number, answer in enumerate(answers):
        stamps |= {stamp for stamp, _ in answer.value[1]}
        if number and answer.value[1]:  # the first answer is what had been kept before
            ages.append((recording.unix_us(answer.t_us) - max(stamp for stamp, _ in answer.value[1])) / 1e6)
    return {
        "samples": len(stamps),
        "sample_s": _median(np.diff(sorted(stamps))),
        "age_s": [min(ages), float(np.median(ages)), max(ages)] if ages else None,
    }


def list_series(call: str, answers: Iterable[Answer], recording: Recording) -> dict[str, Series]:
    """Per number in a call's answers, when it was read (us since the begin) and what it was.

    Samples are placed where their stamps say, by the clocks of the recording.
    """
    series: dict[str, Series] = defaultdict(lambda: ([], []))
    for answer in answers:
        for name, t_us, value in _numbers(call, answer, recording):
            if isinstance(value, (int, float)):
                series[name][0].append(t_us)
                series[name][1].append(float(value))
    return dict(series)


def _numbers(call: str, answer: Answer, recording: Recording) -> list[tuple[str, int, Any]]:
    """Name, time (us) and number; another kind of value is no number."""
    t_us, value = answer.t_us, answer.value
    if call == "nvmlDeviceGetSamples":
        ahead_us = recording.unix_us(t_us) - t_us
        return [("sample", stamp_us - ahead_us, number) for stamp_us, number in sorted(value[1])]
    if call == "nvmlDeviceGetFieldValues":
        return [(f"field {field}", t_us, number) for field, code, _, number in value if code == 0]
    if call == "nvmlGpmMetricsGet":
        return [(f"metric {metric}", t_us, number) for metric, code, number in value if code == 0]
    if "Process" in call:
        return [("processes", t_us, len(value))]
    if isinstance(value, dict):
        return [(name, t_us, number) for name, number in value.items()]
    return [("value", t_us, value[0] if isinstance(value, list) and value else value)]


def describe_values(
    times_us: Sequence[int],
    values: Sequence[float],
    edges_us: Sequence[tuple[float, bool]] | None,
    *,
    counts: bool,
    end_us: int,
) -> dict[str, Any]:
    """Range, updates and lag of one value; see :func:`describe_recording`."""
    t, v = np.array(times_us, dtype=float), np.array(values)
    changes = np.flatnonzero(np.diff(v)) + 1
    found: dict[str, Any] = {
        "distinct": len(np.unique(v)),
        "min": float(v.min()),
        "max": float(v.max()),
        "updates": len(changes),
        "update_s": _update_s(np.diff(t[changes])),
    }
    if edges_us and len(changes) > 1:
        if counts:
            t, v = t[changes][1:], np.diff(v[changes]) / np.maximum(1.0, np.diff(t[changes]))
        lag_s, correlation = find_lag(t, v, edges_us, end_us)
        found |= {"lag_s": lag_s, "correlation": correlation}
    return found


def find_lag(
    times_us: np.ndarray[Any, Any], values: np.ndarray[Any, Any], edges_us: Sequence[tuple[float, bool]], end_us: int
) -> tuple[float | None, float | None]:
    """The shift (s) at which a value resembles the wave most, and how much (correlation); ``None``: it does not."""
    step_us = 1e6 * _GRID_S
    grid_us = np.arange(max(times_us[0], edges_us[0][0] + 1e6 * _MAX_LAG_S), min(end_us, times_us[-1]), step_us)
    if len(grid_us) < 10 or not len(values):
        return None, None
    seen = values[np.searchsorted(times_us, grid_us, side="right") - 1]
    starts_us = np.array([t_us for t_us, _ in edges_us])
    states = np.array([float(on) for _, on in edges_us])

    def resemblance(lag_s: float) -> float:
        wave = states[np.searchsorted(starts_us, grid_us - 1e6 * lag_s, side="right") - 1]
        return float(np.corrcoef(seen, wave)[0, 1]) if wave.std() > 0 and seen.std() > 0 else 0.0

    lags_s = np.arange(0.0, _period_s(edges_us), _GRID_S)
    alike = [resemblance(lag_s) for lag_s in lags_s]
    best = int(np.argmax(alike))
    if alike[best] < _MIN_CORRELATION:
        return None, alike[best]
    return round(float(lags_s[best]), 3), round(alike[best], 3)


def _period_s(edges_us: Sequence[tuple[float, bool]]) -> float:
    """A lag is known but for whole periods of the wave, so that is how far one is searched for (s): the longest."""
    rises = [t_us for t_us, on in edges_us if on]
    period_s = float(np.max(np.diff(rises))) / 1e6 if len(rises) > 1 else _MAX_LAG_S
    return min(_MAX_LAG_S, period_s)


def _update_s(holds_us: np.ndarray[Any, Any]) -> float | None:
    """Time between two updates (s): the mean of the times between changes that are not of several updates at once."""
    if len(holds_us) < 3:
        return None
    shortest = float(np.percentile(holds_us, 10))
    return float(np.mean(holds_us[holds_us <= max(_ONE_UPDATE * shortest, shortest + 1000)])) / 1e6


def _is_on(edges_us: Sequence[tuple[float, bool]], t_us: float) -> int:
    """1: the load is on, 0: it is off, -1: before the first edge."""
    passed = [on for edge_us, on in edges_us if edge_us <= t_us]
    return int(passed[-1]) if passed else -1


def _median(values: Any) -> float | None:
    return float(np.median(values)) / 1e6 if len(values) else None


def _title(answer: Answer) -> str:
    """The call with its arguments, as ``nvmlDeviceGetClockInfo(1)``."""
    arguments = ", ".join(str(argument) for argument in answer.arguments)
    return f"{answer.call}({arguments})" if arguments else answer.call
