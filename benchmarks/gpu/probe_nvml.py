"""Of stage ``probe``: what NVML, and pipetune's reading of it, say while work comes and goes.

Another process plays a square wave of work (:mod:`benchmarks.gpu.square_wave`), a second one records every raw answer
of NVML (:mod:`benchmarks.gpu.nvml_recorder`) but GPM's, which has one reader. Beside them pipetune's own reading is
taken as its sampler takes it, with all of its calls recorded, and once, while the device works, NVML's lists of
processes.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.gpu.commands import NotDone, report, run_program
from benchmarks.gpu.leasing.findings import Findings
from benchmarks.gpu.nvml_analysis import describe_recording, find_lag
from benchmarks.gpu.nvml_cost import find_gpu
from benchmarks.gpu.nvml_recorder import open_recorded_gpu, record_beside
from pipetune.machine.nvml.gpu import Gpu, NvmlUnavailable
from pipetune.machine.nvml.processes import gpus_of_process, list_gpu_uses

#: Length of the wave, at most this share of the stage's time; its period, and the time between two readings (s).
WAVE_S, WAVE_FRAC, PERIOD_S, INTERVAL_S = 10.0, 0.2, 1.0, 0.1
#: The program's start: torch and CUDA (s).
_START_S = 15.0
_TITLE = "NVML beside a square wave of work"
#: So many processes are looked up.
_MAX_PROCESSES = 8


def record_square_wave(findings: Findings) -> None:
    """Play the wave; keep the recording, what it shows, pipetune's readings, their lag and the lists of processes."""
    try:
        uuid = find_gpu(findings.uuid)
    except NvmlUnavailable as error:
        findings.report_unproven(_TITLE, str(error))
        return
    recording = findings.folder / "nvml.txt"
    edges: list[tuple[int, bool]] = []
    with contextlib.ExitStack() as held:
        gpu = held.enter_context(open_recorded_gpu(findings.folder / "nvml_own.txt", uuid=uuid))
        try:
            held.enter_context(record_beside(recording, uuid=uuid, gpm=False))
        except RuntimeError as error:
            findings.report_unproven("the raw answers of NVML", str(error))
        try:
            play_and_read(findings, gpu, edges)
        except NotDone as error:
            report(findings, _TITLE, error)
    if not edges:
        return
    judge_lag(findings, edges)
    if recording.exists():
        keep_recording(findings, describe_recording(recording, edges))


def play_and_read(findings: Findings, gpu: Gpu, edges: list[tuple[int, bool]]) -> None:
    """Read until the wave has ended, whose edges are filled in.

    Raises:
        NotDone: the wave failed.
    """
    ended = threading.Event()

    def take(line: dict[str, Any]) -> None:
        if line["kind"] == "edge":
            edges.append((line["monotonic_ns"], line["busy"]))
        else:
            findings.keep(line.pop("kind"), line)

    readings: list[dict[str, Any]] = []
    reader = threading.Thread(target=read_until, args=(gpu, ended, readings, edges, findings), daemon=True)
    reader.start()
    wave_s = min(WAVE_S, WAVE_FRAC * findings.cap_s)
    try:
        run_program(
            findings,
            "benchmarks.gpu.square_wave",
            findings.device,
            f"{wave_s:.1f}",
            str(PERIOD_S),
            limit_s=_START_S + wave_s,
            on_line=take,
        )
    finally:
        ended.set()
        reader.join(timeout=5)
        findings.keep("edges", edges)
        findings.keep("readings", readings)
        findings.keep("unsupported", sorted(gpu.unsupported))


def read_until(
    gpu: Gpu, ended: threading.Event, readings: list[dict[str, Any]], edges: Sequence[Any], findings: Findings
) -> None:
    """Read at the sampler's pace; once, while the device works, which processes NVML sees."""
    has_listed = False
    while not ended.wait(INTERVAL_S):
        readings.append({"t_ns": time.monotonic_ns(), **asdict(gpu.read())})
        if not has_listed and len(edges) > 2:
            has_listed = True
            findings.keep("processes", describe_processes(gpu))


def describe_processes(gpu: Gpu) -> dict[str, Any]:
    """What NVML says of processes: their numbers are the host's, which may not be those of this machine's /proc."""
    began = time.perf_counter()
    fracs = gpu.process_fracs()
    took_s = time.perf_counter() - began
    try:
        uses = list_gpu_uses()
    except NvmlUnavailable as error:
        return {"problem": str(error)}
    pids = [pid for use in uses for pid in use.pids or ()][:_MAX_PROCESSES]
    return {
        "fracs": None if fracs is None else {str(pid): frac for pid, frac in fracs.items()},
        "fracs_took_s": took_s,
        "uses": [{"index": use.index, "pids": use.pids, "slices": len(use.slices)} for use in uses],
        "matches": {str(pid): asdict(gpus_of_process(pid, uses)) for pid in pids},
    }


def judge_lag(findings: Findings, edges: Sequence[tuple[int, bool]]) -> None:
    """Whether pipetune's utilisation follows the work, and how late."""
    rows = [(row["t_ns"], row["util_pct"]) for row in findings.numbers["readings"] if row["util_pct"] is not None]
    if len(rows) < 2:
        findings.report_problem("pipetune read no utilisation of a GPU that works")
        return
    began_ns = edges[0][0]
    edges_us = [((t_ns - began_ns) / 1e3, is_on) for t_ns, is_on in edges]
    times_us = np.array([(t_ns - began_ns) / 1e3 for t_ns, _ in rows])
    lag_s, correlation = find_lag(times_us, np.array([pct for _, pct in rows]), edges_us, int(times_us[-1]))
    span_s = (rows[-1][0] - rows[0][0]) / 1e9
    changes = sum(before[1] != after[1] for before, after in itertools.pairwise(rows))
    findings.keep("util_pct", {"lag_s": lag_s, "correlation": correlation, "changes_per_s": changes / span_s})
    if lag_s is None:
        findings.report_unproven("NVML's utilisation follows the work", f"it fits the wave at no lag ({correlation})")
    else:
        findings.say(
            f"pipetune's utilisation: {changes / span_s:.1f} new values/s, {lag_s:.2f} s late ({correlation:.2f})"
        )
    if (drift := findings.numbers.get("drift")) is not None:
        findings.say(f"the device's clock drifts by {drift['ppm']:.0f} ppm in {drift['host_s']:.1f} s")


def keep_recording(findings: Findings, description: dict[str, Any]) -> None:
    """What the recording shows of each call; the recording itself comes back packed."""
    findings.keep("recording", description)
    for title, call in description["calls"].items():
        values = "; ".join(
            f"{name} new every {value['update_s']:.3f} s, {value['lag_s']:.2f} s late"
            for name, value in call["values"].items()
            if value.get("update_s") is not None and value.get("lag_s") is not None
        )
        findings.say(f"{title}: {call['median_us']:.0f} us{', ' + values if values else ''}")
