"""Stage ``probe``: what pipetune takes for granted of a device, tried in a few seconds each.

- Page-locked memory that forked processes write into: do they live, and does the device see what they wrote?
- NVML under a square wave of work: its pace, its lag, what each call costs (:mod:`benchmarks.gpu.nvml_recorder`).
- The seconds until a first step: context, model, warm-up; with and without an NVML handle held meanwhile, because the
  driver may take the device down between two candidates.
- Copy rates of page-locked, registered and pageable memory; how fast the device's clock drifts from the host's.

Each is a program of its own, so that one that crashes loses itself only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from benchmarks.bench import Skipped
from benchmarks.gpu.commands import NotDone, report, run_program
from benchmarks.gpu.leasing.findings import Findings
from benchmarks.gpu.probe_nvml import record_square_wave
from pipetune.machine.nvml.gpu import NvmlUnavailable, open_gpu

#: Longest times of the programs (s); each loads torch and CUDA.
_MEMORY_S, _START_S = 25.0, 20.0
_HELD, _NOT_HELD = "NVML held", "NVML not held"


def run_stage(findings: Findings) -> None:
    """Try all of it, what may crash a recommended loader first."""
    if not findings.is_cuda:
        raise Skipped("an emulated device has no memory, no driver and no clock")
    probe_memory(findings)
    record_square_wave(findings)
    for number, holds in enumerate(order := (False, True, False)):
        probe_start(findings, findings.remaining_s / (len(order) - number), holds=holds)
    summarise_starts(findings)


def probe_memory(findings: Findings) -> None:
    """Page-locked memory and copies."""
    try:
        run_program(
            findings,
            "benchmarks.gpu.probe_memory",
            findings.device,
            limit_s=_MEMORY_S,
            on_line=lambda found: take_memory(findings, found),
        )
    except NotDone as error:
        report(findings, "page-locked memory and copies", error)


def take_memory(findings: Findings, found: dict[str, Any]) -> None:
    """One answer of :mod:`benchmarks.gpu.probe_memory`."""
    findings.keep(found.pop("name"), found)
    if "child" in found:
        seen = "what it wrote" if found["device_sees_it"] else "SOMETHING ELSE"
        findings.say(
            f"memory registered {found['how']}: a forked writer {found['child']}, the device sees {seen}, "
            f"VmFlags {' '.join(found['vm_flags'])}"
        )
        if found["is_ours"] and (found["child"] != "lives" or not found["device_sees_it"]):
            findings.report_problem(
                f"a loader's page-locked memory: a forked writer {found['child']}, and the device sees {seen}"
            )
    elif "gb_per_s" in found:
        findings.say(f"copies to the device: {found['how']} {found['gb_per_s']:.1f} GB/s")


def probe_start(findings: Findings, limit_s: float, *, holds: bool) -> None:
    """A process that comes to its first step."""
    how = _HELD if holds else _NOT_HELD
    with _nvml_held(findings) if holds else contextlib.nullcontext():
        try:
            run_program(
                findings,
                "benchmarks.gpu.probe_start",
                findings.device,
                limit_s=min(_START_S, limit_s),
                on_line=lambda found: findings.append("starts", {"how": how, **found}),
            )
        except NotDone as error:
            report(findings, f"seconds until a first step, {how}", error)


def summarise_starts(findings: Findings) -> None:
    """One line for each start."""
    for start in findings.numbers.get("starts", ()):
        parts = ", ".join(f"{name.removesuffix('_s')} {value:.2f} s" for name, value in start.items() if name != "how")
        findings.say(f"{start['how']}: {parts}")


@contextlib.contextmanager
def _nvml_held(findings: Findings) -> Iterator[None]:
    try:
        gpu = open_gpu(uuid=findings.uuid)
    except NvmlUnavailable as error:
        findings.report_unproven("the start while NVML is held", str(error))
        yield
        return
    try:
        yield
    finally:
        gpu.close()
