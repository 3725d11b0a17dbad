"""Reads a fake GPU in a process of its own: the request is JSON in the first argument, the answer JSON on stdout.

Time is a number here. A recording is made by it (``record``: its path), and replayed by it (``replay_now``: the file
that tells the fake library the time).
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu.nvml_recorder import describe_gpu
from benchmarks.gpu.nvml_recording import RecordedBinding, RecordingWriter
from pipetune.errors import PipetuneError
from pipetune.machine.nvml import gpu as nvml

#: Where both clocks begin: the monotonic one, and the one since 1970 (ns).
BEGAN_NS, BEGAN_UNIX_NS = 1_000 * 10**9, 1_500 * 10**9
#: Pauses that a scenario asks for are longer than this (s); what a busy machine adds to a call rarely is.
_PAUSE_S = 0.015


class _Timer:
    """Sees scripted pauses and nothing else, so that how often a call is made depends on the scenario alone."""

    def __init__(self) -> None:
        self._real_s, self._now_s = time.perf_counter(), 0.0

    def __call__(self) -> float:
        passed_s, self._real_s = time.perf_counter() - self._real_s, time.perf_counter()
        self._now_s += passed_s if passed_s >= _PAUSE_S else 1e-6
        return self._now_s


def main(request: dict[str, Any]) -> dict[str, Any]:
    try:
        if request.get("list"):
            return {"gpus": [dataclasses.asdict(gpu) for gpu in nvml.list_gpus()]}
        return _read(request)
    except PipetuneError as error:
        reason = error.reason if isinstance(error, nvml.NvmlUnavailable) else None
        return {"message": error.message, "reason": reason, "hint": error.hint, "exit_code": error.exit_code}


def _read(request: dict[str, Any]) -> dict[str, Any]:
    now_ns = BEGAN_NS
    replay_now = request.get("replay_now")
    if replay_now:
        Path(replay_now).write_text("0")
    clocks = {"clock": lambda: now_ns, "unix": lambda: now_ns - BEGAN_NS + BEGAN_UNIX_NS}
    writer = None
    if request.get("record"):
        library = nvml.start_nvml()
        handle = library.nvmlDeviceGetHandleByIndex(0)
        about = describe_gpu(library, handle)
        writer = RecordingWriter(Path(request["record"]), about, **clocks)
        binding = RecordedBinding(library, writer, clocks["clock"])
        gpu = nvml.Gpu(binding, handle, uuid=about["uuid"], timer=_Timer(), cpu_timer=lambda: 0.0, **clocks)
    else:
        gpu = nvml.open_gpu(**request["open"], timer=_Timer(), cpu_timer=lambda: 0.0, **clocks)
    readings, fracs = [], []
    for _ in range(request["count"]):
        readings.append(dataclasses.asdict(gpu.read()))
        fracs.append(gpu.process_fracs() if request["processes"] else None)
        now_ns += round(request["every_s"] * 1e9)
        if replay_now:
            Path(replay_now).write_text(f"{(now_ns - BEGAN_NS) // 1000}")
    seen = {
        "readings": readings,
        "lost": gpu.lost,
        "unsupported": sorted(gpu.unsupported),
        "fracs": fracs,
        "spans": [dataclasses.astuple(span) for span in gpu.busy_spans(0)],
        "name": gpu.name,
        "uuid": gpu.uuid,
        "driver_version": gpu.driver_version,
        "cost_s": gpu.call_cost_s(),
    }
    gpu.close()
    gpu.close()
    if writer is not None:
        writer.close()
    return {**seen, "after_close": dataclasses.asdict(gpu.read())}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
