"""Of stage ``decode``: the rates of one backend's candidates, alone and beside a training step.

Prints one JSON object for each candidate, in their order. The loaders are pipetune's own, as a sweep opens them; the
step is a sweep's as well. Rates are of whole batches within a span of time, after the first batches, which fill queues.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.gpu.commands import print_json
from benchmarks.gpu.workloads import accelerator_of_device, dataset_uri, make_workload, open_images
from pipetune.accelerator.contract import Accelerator
from pipetune.accelerator.open_accelerator import open_accelerator
from pipetune.child.time_steps import time_steps
from pipetune.datasets.index import ImageSet
from pipetune.loaders.contract import Batch
from pipetune.loaders.open_loader import open_loader
from pipetune.machine.nvml.gpu import Gpu, NvmlUnavailable, open_gpu
from pipetune.records.sweep import Candidate, Workload, from_dict

#: Batches that are not timed, and the parts of a candidate's time: alone, beside the step; the rest opens and closes.
_FIRST, _ALONE_FRAC, _BESIDE_FRAC = 4, 0.25, 0.35
_MAX_S = 6.0
_READ_S = 0.1


def main(device: str, asked: str, seconds: float) -> None:
    """Measure the candidates, each within an equal share of the time."""
    ends = time.monotonic() + 0.9 * seconds
    candidates = [from_dict(Candidate, data) for data in json.loads(asked)]
    index = int(device.partition(":")[2] or 0) if device.startswith("cuda") else 0
    images = open_images(dataset_uri(device.startswith("cuda"), 2000))
    with tempfile.TemporaryDirectory() as folder:
        workload = make_workload(images, Path(folder), accelerator_of_device(device, index), 1.0)
        accelerator = open_accelerator(workload)
        step_rate: float | None = None
        for number, candidate in enumerate(candidates):
            share_s = min(_MAX_S, (ends - time.monotonic()) / (len(candidates) - number))
            try:
                row = measure_candidate(candidate, workload, images, accelerator, device, share_s)
                step_rate = row["step_per_s"] = row["step_per_s"] or step_rate
            except Exception as error:  # whatever a decoder's library raises
                row = {"failure": f"{type(error).__name__}: {str(error)[:300]}"}
            print_json(**row)


def measure_candidate(
    candidate: Candidate, workload: Workload, images: ImageSet, accelerator: Accelerator, device: str, share_s: float
) -> dict[str, Any]:
    """Rates of one candidate (images/s), and what NVML says beside the step."""
    began = time.monotonic()
    loader = open_loader(candidate, workload, images)
    try:
        stream = iter(loader)
        first = [next(stream) for _ in range(_FIRST)][-1]
        ready_s = time.monotonic() - began
        synchronise = make_synchronise(device)
        alone = count_rate(stream, _ALONE_FRAC * share_s, synchronise)
        accelerator.warm_up(tuple(first.images.shape))
        step = count_steps(itertools.repeat(accelerator.place(first)), accelerator, 0.1 * share_s)
        with_gpu: list[dict[str, Any]] = []
        with Readings(device, with_gpu):
            beside = count_steps(stream, accelerator, _BESIDE_FRAC * share_s)
    finally:
        loader.close()
    means = {
        name: mean_of([row[name] for row in with_gpu])
        for name in ("jpeg_util_pct", "sm_active_pct", "util_pct", "power_w", "mem_used_bytes")
    }
    return {
        "alone_per_s": alone,
        "beside_per_s": beside,
        "step_per_s": step,
        "ready_s": ready_s,
        **means,
        "on_device": first.images.device.type,
        "readings": len(with_gpu),
    }


def count_rate(stream: Iterator[Batch], seconds: float, synchronise: Callable[[], None]) -> float:
    """Images per second of a loader whose batches nobody uses."""
    synchronise()
    began, count = time.monotonic(), 0
    while time.monotonic() - began < seconds or not count:
        count += len(next(stream).images)
    synchronise()
    return count / (time.monotonic() - began)


def count_steps(batches: Iterator[Any], accelerator: Accelerator, seconds: float) -> float:
    """Images per second of training steps on the batches, after the first ones."""
    began, count = None, 0
    for number, step in enumerate(time_steps(batches, accelerator)):
        if number == _FIRST:
            began = time.monotonic()
        elif began is not None:
            count += step.samples
            if time.monotonic() - began >= seconds:
                break
    accelerator.drain()
    return count / (time.monotonic() - began) if began is not None else 0.0


def make_synchronise(device: str) -> Callable[[], None]:
    """Waits for the device; does nothing for an emulated one."""
    if not device.startswith("cuda"):
        return lambda: None
    import torch

    return lambda: torch.cuda.synchronize(device)


def mean_of(values: list[float | None]) -> float | None:
    """The mean of what was read; ``None``: nothing was."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


class Readings:
    """NVML's readings while a block runs, in a thread."""

    def __init__(self, device: str, rows: list[dict[str, Any]]) -> None:
        self._rows = rows
        self._gpu: Gpu | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        if device.startswith("cuda"):
            import torch

            try:
                self._gpu = open_gpu(uuid=str(torch.cuda.get_device_properties(device).uuid))
            except NvmlUnavailable:
                self._gpu = None

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join(timeout=5)
        if self._gpu is not None:
            self._gpu.close()

    def _read(self) -> None:
        while self._gpu is not None and not self._ended.wait(_READ_S):
            self._rows.append(asdict(self._gpu.read()))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
