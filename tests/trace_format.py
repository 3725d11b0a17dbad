"""Checks a trace against the Trace Event Format (Google's document of that name), as far as pipetune uses it."""

from __future__ import annotations

import json
import math
from typing import Any

_METADATA = {"process_name": "name", "process_sort_index": "sort_index", "thread_name": "name"}


def checked_trace(text: str) -> dict[str, Any]:
    """The object in ``text``; AssertionError where a viewer would refuse or misread it."""
    data: dict[str, Any] = json.loads(text, parse_constant=_refuse)
    assert data["displayTimeUnit"] in ("ms", "ns")
    assert isinstance(data["traceEvents"], list)
    rows: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in data["traceEvents"]:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert _is_number(event["ts"])
        assert isinstance(event.get("args", {}), dict)
        _CHECKS[event["ph"]](event)
        if event["ph"] == "X":
            rows.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in rows.values():
        _check_nesting(sorted(spans, key=lambda span: (span[0], -span[1])))
    return data


def _check_slice(event: dict[str, Any]) -> None:
    assert _is_number(event["dur"])
    assert event["dur"] >= 0
    assert isinstance(event["cat"], str)


def _check_counter(event: dict[str, Any]) -> None:
    assert event["args"]
    assert all(_is_number(value) for value in event["args"].values())


def _check_metadata(event: dict[str, Any]) -> None:
    wanted = _METADATA[event["name"]]
    assert set(event["args"]) == {wanted}
    assert isinstance(event["args"][wanted], int if wanted == "sort_index" else str)


_CHECKS = {"X": _check_slice, "C": _check_counter, "M": _check_metadata}


def _check_nesting(spans: list[tuple[float, float]]) -> None:
    """Complete events of one thread lie in each other or apart; up to the rounding of a nanosecond."""
    open_ends: list[float] = []
    for begin, end in spans:
        while open_ends and open_ends[-1] <= begin + 0.002:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1] + 0.002, f"slices overlap at {begin} us"
        open_ends.append(end)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")
