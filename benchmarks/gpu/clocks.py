"""Stage ``clocks``: does the device keep its pace, and what would a compiled model reach?

The same batch, which lies on the device already, trains a model without a pause, and once a second NVML is asked
for clock, power and what lowers the clocks. A sweep says that a device "became slower" where its rate falls by more
than 2 %. That is no fault; it is stated here so that one knows how much of it to expect. Then the same model is
compiled by torch.compile: a pipeline that feeds the eager step may starve the compiled one (``pipetune sweep
--compile``). Compiling takes most of the stage's time, and comes last.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks import bench
from benchmarks.gpu.leasing.findings import Findings
from benchmarks.gpu.workloads import IMAGE_SIZE, IS_SMALL, MODEL, batch_size
from pipetune.accelerator.compiler import require_compiler
from pipetune.errors import PipetuneError
from pipetune.machine.nvml.gpu import NvmlUnavailable, open_gpu
from pipetune.records.observation import GpuReading

if TYPE_CHECKING:
    from pipetune.accelerator.torch_accelerator import TorchAccelerator

#: Of the stage's time, for the model as it is, where one that is compiled follows; with the start of the process.
_EAGER_FRAC = 0.4
#: Time of the compiled model (s).
_COMPILED_S = 4.0
_COMPILED = f"the rate of a compiled {MODEL}"


def run_stage(findings: Findings) -> None:
    """Rate (samples/s), SM clock (MHz) and power (W) of each second under load, then the rate of the compiled model."""
    if not findings.is_cuda:
        raise bench.Skipped("an emulated device has no clock")
    import torch

    why_not = find_obstacle()
    eager_s = findings.remaining_s * (1.0 if why_not is not None else _EAGER_FRAC) - 1
    began = time.monotonic()
    accelerator = open_warm(findings, compiled=False)
    try:
        gpu = open_gpu(uuid=str(torch.cuda.get_device_properties(findings.index).uuid))
    except NvmlUnavailable as error:
        gpu = None
        findings.report_problem(f"NVML cannot be read: {error}")
    for row in train(accelerator, began + eager_s - time.monotonic()):
        reading = gpu.read() if gpu is not None else GpuReading()
        findings.append(
            "rows",
            {
                **row,
                "sm_clock_mhz": reading.sm_clock_mhz,
                "power_w": reading.power_w,
                "slowed_pct": reading.slowed_pct,
                "power_capped_pct": reading.power_capped_pct,
            },
        )
    if gpu is not None:
        gpu.close()
    rows = findings.numbers.get("rows", [])
    summarise(findings, rows, has_gpu=gpu is not None)
    del accelerator  # its memory is the next one's
    if why_not is not None:
        findings.report_unproven(_COMPILED, why_not)
    elif rows:
        measure_compiled(findings, median(row["samples_per_s"] for row in rows))


def find_obstacle() -> str | None:
    """Why no model can be compiled here."""
    if IS_SMALL:
        return "the models and batches are small (--small)"
    try:
        require_compiler("cuda", os.environ)
    except PipetuneError as error:
        return str(error)
    return None


def open_warm(findings: Findings, *, compiled: bool) -> TorchAccelerator:
    """The device with the model, after its first steps; imports torch.

    Raises:
        PipetuneError: the model cannot be compiled.
    """
    import torch

    from pipetune.accelerator.torch_accelerator import TorchAccelerator

    accelerator = TorchAccelerator(MODEL, "auto", torch.device("cuda", findings.index), compiled=compiled)
    accelerator.warm_up((batch_size(is_cuda=True), 3, IMAGE_SIZE, IMAGE_SIZE))
    return accelerator


def train(accelerator: TorchAccelerator, seconds: float) -> Iterator[dict[str, Any]]:
    """Train on one batch without a pause; the rate of each second."""
    import torch

    from pipetune.accelerator.train_step import Batch
    from pipetune.child.time_steps import time_steps

    samples = batch_size(is_cuda=True)
    images = torch.randn(samples, 3, IMAGE_SIZE, IMAGE_SIZE)
    batch = accelerator.place(Batch(images, torch.zeros(samples, dtype=torch.int64)))
    began = asked = time.monotonic()
    count = 0
    for step in time_steps(itertools.repeat(batch), accelerator):
        count += step.samples
        now = time.monotonic()
        if now - asked >= 1.0:
            yield {"second": round(now - began), "samples_per_s": count / (now - asked)}
            asked, count = time.monotonic(), 0
        if now - began >= seconds:
            break
    accelerator.drain()


def measure_compiled(findings: Findings, eager_per_s: float) -> None:
    """The ceiling of those who compile their models: by how much it is higher, and how long compiling takes."""
    began = time.monotonic()
    try:
        accelerator = open_warm(findings, compiled=True)
    except PipetuneError as error:
        findings.report_unproven(_COMPILED, str(error))
        return
    compile_s = time.monotonic() - began
    rates = [row["samples_per_s"] for row in train(accelerator, min(_COMPILED_S, findings.remaining_s))]
    if not rates:
        findings.keep("compiled", {"compile_s": compile_s})
        findings.report_unproven(_COMPILED, f"there was no time left after it was compiled in {compile_s:.0f} s")
        return
    row = {"compile_s": compile_s, "samples_per_s": median(rates), "speedup": median(rates) / eager_per_s}
    findings.keep("compiled", row)
    findings.say(
        f"compiled within {compile_s:.0f} s: {row['samples_per_s']:.0f}/s, {row['speedup']:.2f} times the eager rate"
    )


def summarise(findings: Findings, rows: list[dict[str, Any]], *, has_gpu: bool) -> None:
    """By how much the rate changed under load."""
    if not rows:
        findings.report_unproven("the pace under load", "no second of it was measured")
        return
    if has_gpu and all(row["sm_clock_mhz"] is None for row in rows):
        findings.report_problem("NVML gives no SM clock")
    tenth = max(1, len(rows) // 10)
    rates = [row["samples_per_s"] for row in rows]
    change = median(rates[-tenth:]) / median(rates[:tenth]) - 1
    findings.keep("rate_change", change)
    findings.say(f"rate {100 * change:+.1f} % from the first to the last tenth of {rows[-1]['second']} s under load")
    for row in (rows[0], rows[-1]):
        findings.say(
            f"after {row['second']} s: {row['samples_per_s']:.0f}/s, {row['sm_clock_mhz']} MHz, {row['power_w']} W"
        )
