"""Stage ``decode``: images per second of each decoder that uses the GPU, alone and beside a training step.

What is tried comes from the registry: each backend that decodes on a CUDA device with its settings that only such a
device has, the same libraries on the CPU, and the fastest decoder of the CPU. A process for each backend; each
candidate is kept as soon as it is measured.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks import bench
from benchmarks.gpu.commands import MIN_S, NotDone, ProgramFailed, run_program
from benchmarks.gpu.leasing.findings import Findings
from benchmarks.gpu.workloads import (
    batch_size,
    cpu_relatives,
    device_candidates,
    fastest_cpu_backend,
    gpu_decoders,
    usable_cores,
)
from pipetune.records.sweep import to_dict
from pipetune.registry import Backend

_HEADINGS = ["candidate", "alone", "beside the step", "step alone", "JPEG engine %", "SM %", "W"]


def run_stage(findings: Findings) -> None:
    """Measure each backend's candidates within an equal share of the time."""
    backends = list_backends(findings)
    for number, backend in enumerate(backends):
        measure_backend(findings, backend, findings.remaining_s / (len(backends) - number))
    rows = [format_row(row) for row in findings.numbers.get("rates", ()) if "failure" not in row]
    if rows:
        findings.say(*bench.table(_HEADINGS, rows).splitlines())


def list_backends(findings: Findings) -> list[Backend]:
    """What can be used here: the fastest of the CPU, decoders on the GPU, and the same libraries on the CPU."""
    decoders = [*gpu_decoders(findings.is_cuda), *cpu_relatives(findings.is_cuda)]
    return list(dict.fromkeys([fastest_cpu_backend(), *decoders]))


def measure_backend(findings: Findings, backend: Backend, limit_s: float) -> None:
    """One process; where it crashes, the candidates after the one that crashed it get another."""
    workers, samples = max(1, min(16, usable_cores())), batch_size(findings.is_cuda)
    waiting = device_candidates(backend, workers, samples)
    if not findings.is_cuda:
        waiting = waiting[:1]
    ends_s = findings.remaining_s - limit_s

    def take(row: dict[str, Any]) -> None:
        candidate = waiting.pop(0)
        findings.append("rates", {"candidate": to_dict(candidate), "key": candidate.key, **row})
        if "failure" in row:
            findings.report_problem(f"{candidate.key}: {row['failure']}")

    while waiting and (left_s := findings.remaining_s - ends_s) >= MIN_S:
        asked = json.dumps([to_dict(candidate) for candidate in waiting])
        try:
            run_program(
                findings,
                "benchmarks.gpu.decode_rates",
                findings.device,
                asked,
                f"{left_s:.1f}",
                limit_s=left_s + 2,
                on_line=take,
            )
            break
        except NotDone as error:
            if not isinstance(error, ProgramFailed):
                break
            if not waiting:  # it measured them all, and failed at its end
                findings.report_problem(f"{backend.name}: {error}")
                break
            take({"failure": str(error)})
    for candidate in waiting:
        findings.report_unproven(candidate.key, "there was no time left for it")


def format_row(row: dict[str, Any]) -> list[str]:
    """A candidate's line of the table."""
    numbers = [
        row.get(name)
        for name in ("alone_per_s", "beside_per_s", "step_per_s", "jpeg_util_pct", "sm_active_pct", "power_w")
    ]
    return [row["key"], *("-" if number is None else f"{number:.0f}" for number in numbers)]
