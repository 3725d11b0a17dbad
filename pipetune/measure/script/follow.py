"""Follows one measurement in a script that runs: asks for it, takes in what is sent, reads the machine meanwhile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from pipetune.machine.nvml.held import HeldGpus
from pipetune.measure import failures
from pipetune.measure.conditions import Conditions, Live
from pipetune.measure.phases import OVERTIME
from pipetune.measure.recording import Recording
from pipetune.measure.sampled_gpu import open_sampled_gpu
from pipetune.measure.script.arrivals import Arrivals
from pipetune.measure.script.ended import explain_end, explain_hung, explain_several
from pipetune.measure.script.gaps import busy_without, readings_without
from pipetune.measure.script.joined import CHECKPOINT, SCRIPT_ENDED
from pipetune.measure.script.paused import present_speed, settle, tree_pss
from pipetune.measure.script.session import ScriptSession
from pipetune.records.sweep import Failure
from pipetune.sampler.loop import LEFT_BEHIND, Sampler
from pipetune.sampler.other_processes import busiest_others, cpu_times

#: Time that a measurement may take besides warm-up and timed phase: workers that start, and what they import (s).
_ALLOWANCE_S = 60.0
#: A loop that was outside of its epochs for less than this was not held up by them (s).
_HARDLY_OUTSIDE_S = 0.1


def follow_measurement(
    session: ScriptSession, request: Mapping[str, Any], conditions: Conditions, recording: Recording, *,
    gpu_uuid: str | None, gpus: HeldGpus, setup_s: float, on_live: Callable[[Live], None],
) -> Failure | None:  # fmt: skip
    """Have every rank measure what is asked for; whatever was sent is in the recording, also of a script that ends.

    Args:
        request: see :meth:`pipetune.hook.relay.Relay.measure_from_start`; sent unless the script measures it already.
        setup_s: longest time that the script may be busy between its epochs (s).
    """
    assert session.pid is not None
    measures = bool(session.ready) and all((peer.ready or {}).get("measures") for peer in session.ready)
    if not measures:
        settle(session.pid)
    before = conditions.speed_before or present_speed()
    others, since = cpu_times(), time.monotonic()
    gpu = None if gpu_uuid is None else open_sampled_gpu(gpu_uuid, gpus, recording)
    sampler = Sampler(session.pid, gpu, cores=conditions.cores, interval_s=conditions.interval_s)
    sampler.start()
    session.told_failure = False
    state = Arrivals(session, recording, on_live)
    _begin(session, state, {} if measures else request)
    workload = conditions.workload
    limit_s = conditions.timeout_s or (_ALLOWANCE_S + 2 * (workload.warmup_limit_s + OVERTIME * workload.seconds))
    try:
        reason = _wait(session, state, limit_s, setup_s)
    finally:
        if not sampler.stop():
            recording.notes.append(LEFT_BEHIND)
        elif gpu is not None and (note := recording.keep_gpu(gpu, conditions.interval_s)) is not None:
            recording.notes.append(note)
        recording.readings = sampler.readings
    recording.result = {
        "epoch_starts": [], "apart": [], "gpu_mem_bytes": None, **recording.result, "speed_before": before,
        "pss_bytes": (None if session.process_ended else tree_pss(session.pid)) or state.pss_bytes,
    }  # fmt: skip
    several = explain_several(session.trainings, state.phase) if session.trainings > 1 else None
    failure = several or state.failure or _why_none(session, state, reason, limit_s)
    if failure is not None and failure.kind not in (SCRIPT_ENDED, CHECKPOINT):
        return failure
    if not session.process_ended:
        settle(session.pid)
    recording.speed_after = present_speed()
    with contextlib.suppress(OSError):
        recording.others = busiest_others(others, time.monotonic() - since)
    if failure is not None:
        return failure
    apart = recording.result["apart"]
    recording.readings = readings_without(recording.readings, apart)
    recording.busy_spans = busy_without(recording.busy_spans, apart)
    return None


def _begin(session: ScriptSession, state: Arrivals, request: Mapping[str, Any]) -> None:
    """Send what is asked for; without any, take in what has come of what the script measures already."""
    if request:
        for peer in session.ready:
            session.send(peer, "measure", **request)
    else:
        for peer, message in session.early:
            state.on_message(peer, message)
    session.early.clear()


def _why_none(session: ScriptSession, state: Arrivals, reason: str | None, limit_s: float) -> Failure | None:
    """Why a measurement has no result; ``None``: it has one."""
    if state.has_result and reason != "lost":
        return None
    if reason == "stopped":
        return failures.stopped(state.phase)
    if reason == "limit":
        return explain_hung(session, state.phase, limit_s)
    return explain_end(session, state.phase)


def _wait(session: ScriptSession, state: Arrivals, limit_s: float, setup_s: float) -> str | None:
    """Wait for the measurement; the time between epochs does not count, up to a limit of its own."""
    granted_s, left_s = 0.0, limit_s
    while True:
        reason = session.wait(
            lambda: state.done or session.unguarded or session.trainings > 1, left_s, state.on_message
        )
        outside_s = state.outside_s
        if reason != "limit" or not outside_s - granted_s > _HARDLY_OUTSIDE_S or outside_s > setup_s:
            return reason
        granted_s, left_s = outside_s, outside_s - granted_s
