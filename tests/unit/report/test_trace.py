from __future__ import annotations

import json
from typing import Any

import pytest

from pipetune.report.trace import TracedTimeline, trace_lines
from pipetune.runs.stalls import stalls_of_steps
from pipetune.store.columns import columns_of
from tests.run_folders import BEGAN_NS, readings, steps
from tests.trace_format import checked_trace


def trace(*names: str, **changes: Any) -> dict[str, Any]:
    columns = columns_of(readings(3, **changes), steps(4))
    stalls = stalls_of_steps(columns.steps, "no_workers")
    timelines = [
        TracedTimeline(name=name, readings=columns.readings, steps=columns.steps, stalls=stalls) for name in names
    ]
    return checked_trace("\n".join(trace_lines(timelines, {"run": "<here>"})))


def slices(data: dict[str, Any], tid: int) -> list[dict[str, Any]]:
    return [event for event in data["traceEvents"] if event["ph"] == "X" and event["tid"] == tid]


def test_it_is_valid_and_begins_at_zero() -> None:
    data = trace("default", "tuned")

    times = [event["ts"] for event in data["traceEvents"] if event["ph"] != "M"]
    assert min(times) == 0
    assert data["otherData"] == {"run": "<here>"}
    names = {e["pid"]: e["args"]["name"] for e in data["traceEvents"] if e["name"] == "process_name"}
    assert names == {1: "default", 2: "tuned"}


def test_steps_waits_and_stalls_are_where_they_happened() -> None:
    data = trace("default")

    first_wait, first_step, first_stall = (slices(data, tid)[0] for tid in (1, 2, 3))
    assert (first_wait["ts"], first_wait["dur"]) == (0, pytest.approx(40_000))
    assert (first_step["ts"], first_step["dur"]) == (pytest.approx(40_000), pytest.approx(60_000))
    assert (first_stall["ts"], first_stall["dur"]) == (pytest.approx(100_000), pytest.approx(40_000))
    assert first_stall["name"] == "stall: no_workers"
    assert sum(event["dur"] for event in slices(data, 3)) == pytest.approx(3 * 40_000)
    assert [event["args"]["samples"] for event in slices(data, 2)] == [64.0] * 4


def test_copies_come_before_their_steps() -> None:
    columns = columns_of((), steps(2))
    columns.steps["h2d_s"][:] = 0.01
    nothing = {name: [] for name in ("t_start_ns", "t_end_ns", "lost_s", "cause")}
    traced = TracedTimeline(name="x", readings=columns.readings, steps=columns.steps, stalls=nothing)
    data = checked_trace("\n".join(trace_lines([traced], {})))

    copy, step = slices(data, 2)[:2]
    assert copy["name"] == "copy to the device"
    assert copy["ts"] + copy["dur"] == pytest.approx(step["ts"])


def test_waiting_for_other_ranks_is_a_slice_after_the_step() -> None:
    columns = columns_of((), steps(2))
    columns.steps["others_s"][1] = 0.02
    nothing = {name: [] for name in ("t_start_ns", "t_end_ns", "lost_s", "cause")}
    traced = TracedTimeline(name="x", readings=columns.readings, steps=columns.steps, stalls=nothing)
    data = checked_trace("\n".join(trace_lines([traced], {})))

    first, wait, step = slices(data, 2)
    assert [event["name"] for event in (first, wait, step)] == ["step", "wait for other ranks", "step"]
    assert step["ts"] + step["dur"] == pytest.approx(wait["ts"])
    assert wait["dur"] == pytest.approx(20_000)


def test_steps_that_lack_a_number_are_left_out() -> None:
    columns = columns_of((), steps(3))
    columns.steps["compute_s"][1] = columns.steps["data_wait_s"][2] = columns.steps["samples"][0] = float("nan")
    stalls = stalls_of_steps(columns.steps, "x")
    traced = TracedTimeline(name="x", readings=columns.readings, steps=columns.steps, stalls=stalls)
    data = checked_trace("\n".join(trace_lines([traced], {})))

    assert [len(slices(data, tid)) for tid in (1, 2, 3)] == [2, 2, 1]
    assert slices(data, 2)[0]["args"]["samples"] is None


def test_what_was_not_measured_has_no_counter() -> None:
    counters = {event["name"] for event in trace("x")["traceEvents"] if event["ph"] == "C"}
    assert counters == {"CPU (%)", "pressure, PSI some (%)"}
    few = [event for event in trace("x", cpu_iowait_pct=None)["traceEvents"] if event["name"] == "CPU (%)"]
    assert few[0]["args"] == {"busy": 50.0}
    assert few[0]["ts"] == pytest.approx((readings(1)[0].t_ns - BEGAN_NS) / 1000)


def test_nothing_is_a_valid_trace_too() -> None:
    assert checked_trace("\n".join(trace_lines([], {})))["traceEvents"] == []


def test_names_are_text() -> None:
    data = trace('"},{"ph":"X"')
    assert json.dumps(data)
    assert data["traceEvents"][0]["args"]["name"] == '"},{"ph":"X"'
