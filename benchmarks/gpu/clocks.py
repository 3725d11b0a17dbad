"""A part of the GPU suite: does the device keep its pace? Clock, power and rate of a model under full load.

The same batch, which lies on the device already, trains a ResNet-50 without a pause, and once a second NVML is asked
for clock, power and what lowers the clocks. A sweep says that a device "became slower" where its rate falls by more
than 2 %. That is no fault; it is stated here so that one knows how much of it to expect.
"""

from __future__ import annotations

import itertools
import time
from statistics import median
from typing import Any

from benchmarks import bench
from pipetune.machine.nvml.gpu import NvmlUnavailable, open_gpu
from pipetune.records.observation import GpuReading

_BATCH, _EDGE = 64, 224
#: Seconds under load, with --quick and without.
_SECONDS = (15, 60)


def clocks(device: str, quick: bool) -> dict[str, Any]:
    """Rate (samples/s), SM clock (MHz) and power (W) of each second under load."""
    if not device.startswith("cuda"):
        raise bench.Skipped("an emulated device has no clock")
    import torch

    from pipetune.accelerator.torch_accelerator import TorchAccelerator
    from pipetune.accelerator.train_step import Batch
    from pipetune.child.time_steps import time_steps

    index = int(device.partition(":")[2] or 0)
    accelerator = TorchAccelerator("resnet50", "auto", torch.device("cuda", index))
    shape = (_BATCH, 3, _EDGE, _EDGE)
    accelerator.warm_up(shape)
    batch = accelerator.place(Batch(torch.randn(shape), torch.zeros(_BATCH, dtype=torch.int64)))
    problems = []
    try:
        gpu = open_gpu(uuid=str(torch.cuda.get_device_properties(index).uuid))
    except NvmlUnavailable as error:
        gpu = None
        problems.append(f"NVML cannot be read: {error}")
    rows: list[dict[str, Any]] = []
    began = asked = time.monotonic()
    samples = 0
    for step in time_steps(itertools.repeat(batch), accelerator):
        samples += step.samples
        now = time.monotonic()
        if now - asked < 1.0:
            continue
        reading = gpu.read() if gpu is not None else GpuReading()
        rows.append({
            "second": round(now - began), "samples_per_s": samples / (now - asked),
            "sm_clock_mhz": reading.sm_clock_mhz, "power_w": reading.power_w,
            "slowed_pct": reading.slowed_pct, "power_capped_pct": reading.power_capped_pct,
        })  # fmt: skip
        asked, samples = now, 0
        if now - began > _SECONDS[not quick]:
            break
    if gpu is not None:
        gpu.close()
    if rows and gpu is not None and all(row["sm_clock_mhz"] is None for row in rows):
        problems.append("NVML gives no SM clock")
    tenth = max(1, len(rows) // 10)
    rates = [row["samples_per_s"] for row in rows]
    change = median(rates[-tenth:]) / median(rates[:tenth]) - 1
    lines = [f"rate {100 * change:+.1f} % from the first to the last tenth of {rows[-1]['second']} s under load"]
    for row in (rows[0], rows[-1]):
        lines.append(
            f"after {row['second']} s: {row['samples_per_s']:.0f}/s, {row['sm_clock_mhz']} MHz, {row['power_w']} W"
        )
    return {"rows": rows, "rate_change": change, "lines": lines, "problems": problems}
