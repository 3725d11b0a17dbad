"""Stage ``clocks``: does the device keep its pace? Clock, power and rate of a model under full load.

The same batch, which lies on the device already, trains a model without a pause, and once a second NVML is asked
for clock, power and what lowers the clocks. A sweep says that a device "became slower" where its rate falls by more
than 2 %. That is no fault; it is stated here so that one knows how much of it to expect.
"""

from __future__ import annotations

import itertools
import time
from statistics import median
from typing import Any

from benchmarks import bench
from benchmarks.gpu.leasing.findings import Findings
from benchmarks.gpu.workloads import IMAGE_SIZE, MODEL, batch_size
from pipetune.machine.nvml.gpu import NvmlUnavailable, open_gpu
from pipetune.records.observation import GpuReading


def run_stage(findings: Findings) -> None:
    """Rate (samples/s), SM clock (MHz) and power (W) of each second under load, until the stage's time is over."""
    if not findings.is_cuda:
        raise bench.Skipped("an emulated device has no clock")
    import torch

    from pipetune.accelerator.torch_accelerator import TorchAccelerator
    from pipetune.accelerator.train_step import Batch
    from pipetune.child.time_steps import time_steps

    index = findings.index
    accelerator = TorchAccelerator(MODEL, "auto", torch.device("cuda", index))
    shape = (batch_size(is_cuda=True), 3, IMAGE_SIZE, IMAGE_SIZE)
    accelerator.warm_up(shape)
    batch = accelerator.place(Batch(torch.randn(shape), torch.zeros(shape[0], dtype=torch.int64)))
    try:
        gpu = open_gpu(uuid=str(torch.cuda.get_device_properties(index).uuid))
    except NvmlUnavailable as error:
        gpu = None
        findings.report_problem(f"NVML cannot be read: {error}")
    began = asked = time.monotonic()
    samples = 0
    for step in time_steps(itertools.repeat(batch), accelerator):
        samples += step.samples
        now = time.monotonic()
        if now - asked < 1.0:
            continue
        reading = gpu.read() if gpu is not None else GpuReading()
        findings.append(
            "rows",
            {
                "second": round(now - began),
                "samples_per_s": samples / (now - asked),
                "sm_clock_mhz": reading.sm_clock_mhz,
                "power_w": reading.power_w,
                "slowed_pct": reading.slowed_pct,
                "power_capped_pct": reading.power_capped_pct,
            },
        )
        asked, samples = now, 0
        if findings.remaining_s < 1:
            break
    if gpu is not None:
        gpu.close()
    summarise(findings, findings.numbers.get("rows", []), has_gpu=gpu is not None)


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
