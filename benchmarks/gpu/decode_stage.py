"""Stage ``decode``: images per second of each decoder that uses the GPU, alone and beside a training step.

What is tried comes from the registry: each backend that decodes on a CUDA device with its settings that only such a
device has, the same libraries on the CPU, and the fastest decoder of the CPU. All share one process, because importing
torch, opening the device and choosing cuDNN's algorithms may take ten seconds; each candidate is kept as soon as it is
measured.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Sequence
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
from pipetune.records.sweep import Candidate, to_dict

#: The process should have measured so much before it is asked to end (s), and never more than this share of its time.
_END_S, _END_FRAC = 4.5, 0.3

_HEADINGS = ["candidate", "alone", "beside the step", "step alone", "JPEG engine %", "SM %", "W"]


def run_stage(findings: Findings) -> None:
    """Measure all candidates in one process; where it crashes, those that are left get another."""
    waiting = list_candidates(findings.is_cuda)
    crashed: set[str] = set()

    def take(row: dict[str, Any]) -> None:
        candidate = waiting.pop(0)
        findings.append("rates", {"candidate": to_dict(candidate), "key": candidate.key, **row})
        if "failure" in row:
            findings.report_problem(f"{candidate.key}: {row['failure']}")

    while waiting and findings.remaining_s >= MIN_S:
        backend = waiting[0].backend
        try:
            measure_rates(findings, waiting, take)
            break
        except NotDone as error:
            if not isinstance(error, ProgramFailed):
                break
            if not waiting:  # it measured them all, and failed at its end
                findings.report_problem(f"{backend}: {error}")
                break
            crashed.add(waiting[0].backend)
            take({"failure": str(error)})
            waiting.sort(key=lambda candidate: candidate.backend in crashed)
    for candidate in waiting:
        findings.report_unproven(candidate.key, "there was no time left for it")
    rows = [format_row(row) for row in findings.numbers.get("rates", ()) if "failure" not in row]
    if rows:
        findings.say(*bench.table(_HEADINGS, rows).splitlines())


def measure_rates(findings: Findings, candidates: Sequence[Candidate], take: Callable[[dict[str, Any]], None]) -> None:
    """A process that measures the candidates in their order.

    Raises:
        NotDone: it did not end in time, or failed.
    """
    left_s = findings.remaining_s
    run_program(
        findings,
        "benchmarks.gpu.decode_rates",
        findings.device,
        json.dumps([to_dict(candidate) for candidate in candidates]),
        f"{time.monotonic() + left_s - min(_END_S, _END_FRAC * left_s):.1f}",
        limit_s=left_s,
        on_line=take,
    )


def list_candidates(is_cuda: bool) -> list[Candidate]:
    """What can be used here: first every backend with its defaults, then each setting that only a GPU has.

    The fastest backend of the CPU comes first, then the decoders on the GPU, then the same libraries on the CPU.
    """
    backends = dict.fromkeys([fastest_cpu_backend(), *gpu_decoders(is_cuda), *cpu_relatives(is_cuda)])
    workers, samples = max(1, min(16, usable_cores())), batch_size(is_cuda)
    lists = [device_candidates(backend, workers, samples)[: None if is_cuda else 1] for backend in backends]
    return [candidate for row in itertools.zip_longest(*lists) for candidate in row if candidate is not None]


def format_row(row: dict[str, Any]) -> list[str]:
    """A candidate's line of the table."""
    numbers = [
        row.get(name)
        for name in ("alone_per_s", "beside_per_s", "step_per_s", "jpeg_util_pct", "sm_active_pct", "power_w")
    ]
    return [row["key"], *("-" if number is None else f"{number:.0f}" for number in numbers)]
