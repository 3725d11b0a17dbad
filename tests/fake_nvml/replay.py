"""Turns a recording of NVML into a scenario of the fake one: each call answers what it answered at that moment.

The recording is of :mod:`benchmarks.gpu.nvml_recording`; ``replay.h`` documents the files that this module writes.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.gpu.nvml_recording import Answer, Recording, read_recording

_NOT_FOUND = 6
#: ``nvmlValueType_t`` of a field value that is an unsigned int.
_UNSIGNED_INT = 1


def replay_scenario(path: Path, folder: Path, *, speed: float = 1.0, durations: bool = False) -> str:
    """The text of a scenario that replays a recording.

    Args:
        path: the recording.
        folder: of the files that the scenario names; exists already.
        speed: how much faster than it was recorded.
        durations: each call takes as long as it took then.
    """
    recording = read_recording(path)
    rows: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for answer in recording.answers:
        for name, step in _steps(answer, recording):
            delay = f"{answer.took_us / 1000:g}~" if durations and name == answer.call else ""
            rows[name].append((answer.t_us, delay + step))
    header = recording.header
    lines = [
        f"{name} {header[key]}"
        for name, key in (("name", "name"), ("uuid", "uuid"), ("driver", "driver"), ("cuda", "cuda"))
        if header.get(key)
    ]
    lines += [f"replay_speed {speed:g}", *(f"memory {total}" for total in _memory_totals(recording)[:1])]
    for name, steps in sorted(rows.items()):
        file = folder / f"{name.replace(':', '_')}.replay"
        file.write_text("".join(f"{t_us} {step}\n" for t_us, step in _changes(name, steps)))
        lines.append(f"{name} replay:{file}")
    return "\n".join(lines) + "\n"


def _changes(name: str, steps: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Without the rows that say the same as the row before; each row of samples counts."""
    if name == "nvmlDeviceGetSamples":
        return [step for step in steps if step[1].rpartition("~")[2] != "-"]
    return [step for number, step in enumerate(steps) if not number or step[1] != steps[number - 1][1]]


def _steps(answer: Answer, recording: Recording) -> list[tuple[str, str]]:
    """The lines of a scenario that an answer belongs to, and what it says there."""
    call, value = answer.call, answer.value
    name = {
        "nvmlDeviceGetProcessUtilization": "process_use",
        "nvmlDeviceGetComputeRunningProcesses_v3": "processes",
        "nvmlDeviceGetComputeRunningProcesses_v2": "",
        "nvmlDeviceGetClockInfo": f"{call}.{answer.arguments[0] if answer.arguments else 0}",
        "nvmlDeviceGetMaxClockInfo": f"{call}.{answer.arguments[0] if answer.arguments else 0}",
    }.get(call, call)
    if not name or call.startswith("nvmlSystem") or call in _NOT_SCRIPTED:
        return []
    if call == "nvmlDeviceGetSamples" and answer.code == _NOT_FOUND:
        return [(name, "-")]
    if call == "nvmlDeviceGetFieldValues":
        # A failure of the call itself has a line, which counts for all fields; so has its end.
        fields = [
            (f"field.{field}{':u32' if kind == _UNSIGNED_INT else ''}", f"!{code}" if code else str(number))
            for field, code, kind, number in value or ()
        ]
        return [(name, f"!{answer.code}" if answer.code else "0"), *fields]
    if call == "nvmlGpmMetricsGet":
        return [(f"metric.{metric}", f"!{code}" if code else f"{number:g}") for metric, code, number in value or ()]
    return [(name, f"!{answer.code}" if answer.code else _text(call, value, recording, answer.t_us))]


#: Calls that the fake answers by other lines, or for which it has none.
_NOT_SCRIPTED = {
    "nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetIndex", "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetMaxMigDeviceCount", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree",
    "nvmlShutdown", "nvmlInit",
}  # fmt: skip


def _text(call: str, value: Any, recording: Recording, t_us: int) -> str:
    if call == "nvmlDeviceGetSamples":
        began_us = recording.unix_us(t_us) - t_us
        return ",".join(f"{stamp_us - began_us}={number:g}" for stamp_us, number in value[1]) or "-"
    if call == "nvmlDeviceGetProcessUtilization":
        return ",".join(f"{use['pid']}={use['smUtil']}" for use in value) or "-"
    if call == "nvmlDeviceGetComputeRunningProcesses_v3":
        return ",".join(str(process["pid"]) for process in value) or "-"
    for key in ("gpu", "used", "isSupportedDevice"):
        if isinstance(value, dict) and key in value:
            return str(value[key])
    if isinstance(value, list):
        return str(value[0]) if value else "0"
    return "0" if value is None else str(value)


def _memory_totals(recording: Recording) -> list[int]:
    return [
        answer.value["total"]
        for answer in recording.answers
        if answer.call == "nvmlDeviceGetMemoryInfo" and answer.value is not None
    ]
