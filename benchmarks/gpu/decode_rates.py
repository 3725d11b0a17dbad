"""The rates of candidates, alone and beside a training step: part of stage ``decode``.

Prints one JSON object for each candidate, in their order. The loaders are pipetune's own, as a sweep opens them; the
step is a sweep's as well. Workers that start together hand out their batches together, and go on doing so for a while:
a rate is that of whole rounds, in which each worker hands out one batch, after a round that is not timed. What has
queued up while nobody asked for batches is taken out before the rate beside the step is measured.
"""

from __future__ import annotations

import faulthandler
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

#: Batches that are not timed, at least, and the parts of a candidate's time: alone, beside the step; the rest opens and
#: closes.
_FIRST, _ALONE_FRAC, _BESIDE_FRAC = 4, 0.25, 0.35
#: Bounds of a candidate's time (s): those that come first are worth more than a glance at all.
_MIN_S, _MAX_S = 2.5, 6.0
#: A candidate that takes so much longer hangs (s): the first one includes cuDNN's choice of algorithms.
_HANGS_S = 20.0
_READ_S = 0.1


def main(device: str, asked: str, ends: float) -> None:
    """Measure the candidates, each within an equal share of the time until ``ends`` on ``time.monotonic``.

    One that hangs ends the process, also where it hangs in a library: whoever started it knows which one that was.
    """
    candidates = [from_dict(Candidate, data) for data in json.loads(asked)]
    index = int(device.partition(":")[2] or 0) if device.startswith("cuda") else 0
    images = open_images(dataset_uri(device.startswith("cuda"), 2000))
    with tempfile.TemporaryDirectory() as folder:
        workload = make_workload(images, Path(folder), accelerator_of_device(device, index), 1.0)
        accelerator = open_accelerator(workload)
        step_rate: float | None = None
        for number, candidate in enumerate(candidates):
            left_s = ends - time.monotonic()
            if number and left_s < _MIN_S:
                break
            share_s = min(_MAX_S, max(_MIN_S, left_s / (len(candidates) - number)))
            faulthandler.dump_traceback_later(share_s + _HANGS_S, exit=True)
            try:
                row = measure_candidate(candidate, workload, images, accelerator, device, share_s)
                step_rate = row["step_per_s"] = row["step_per_s"] or step_rate
            except Exception as error:  # whatever a decoder's library raises
                row = {"failure": f"{type(error).__name__}: {str(error)[:300]}"}
            print_json(**row)
    faulthandler.cancel_dump_traceback_later()


def measure_candidate(
    candidate: Candidate, workload: Workload, images: ImageSet, accelerator: Accelerator, device: str, share_s: float
) -> dict[str, Any]:
    """Rates of one candidate (images/s), and what NVML says beside the step."""
    began = time.monotonic()
    loader = open_loader(candidate, workload, images)
    try:
        stream = iter(loader)
        first = next(stream)
        ready_s = time.monotonic() - began
        in_round = max(1, candidate.num_workers)
        skip(stream, max(_FIRST, in_round) - 1)
        synchronise = make_synchronise(device)
        alone = count_rate(stream, _ALONE_FRAC * share_s, synchronise, in_round)
        accelerator.warm_up(tuple(first.images.shape))
        step = count_steps(itertools.repeat(accelerator.place(first)), accelerator, 0.1 * share_s)
        with_gpu: list[dict[str, Any]] = []
        skip(stream, in_round * max(1, candidate.prefetch_depth))
        with Readings(device, with_gpu):
            beside = count_steps(stream, accelerator, _BESIDE_FRAC * share_s, in_round)
    finally:
        loader.close()
    means = {
        name: compute_mean([row[name] for row in with_gpu])
        for name in ("jpeg_util_pct", "sm_active_pct", "util_pct", "power_w")
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


def skip(stream: Iterator[Batch], count: int) -> None:
    """Take batches out that nobody uses."""
    for _ in range(count):
        next(stream)


def count_rate(stream: Iterator[Batch], seconds: float, synchronise: Callable[[], None], in_round: int) -> float:
    """Images per second of a loader whose batches nobody uses, over whole rounds of ``in_round`` batches."""
    synchronise()
    began, count = time.monotonic(), 0
    while time.monotonic() - began < seconds or not count:
        count += sum(len(next(stream).images) for _ in range(in_round))
    synchronise()
    return count / (time.monotonic() - began)


def count_steps(batches: Iterator[Any], accelerator: Accelerator, seconds: float, in_round: int = 1) -> float:
    """Images per second of training steps on the batches, after the first ones, over whole rounds.

    It is that of steps that the device has finished, by the times at which it did: some more are on their way.
    """
    began_ns, took_s, count = None, 0.0, 0
    for number, step in enumerate(time_steps(batches, accelerator), 1 - _FIRST):
        if number == 0:
            began_ns = step.t_end_ns
        elif began_ns is not None:
            count, took_s = count + step.samples, (step.t_end_ns - began_ns) / 1e9
            if number % in_round == 0 and took_s >= seconds:
                break
    accelerator.drain()
    return count / took_s if took_s > 0 else 0.0


def make_synchronise(device: str) -> Callable[[], None]:
    """Waits for the device; does nothing for an emulated one."""
    if not device.startswith("cuda"):
        return lambda: None
    import torch

    return lambda: torch.cuda.synchronize(device)


def compute_mean(values: list[float | None]) -> float | None:
    """The mean of what was read; ``None``: nothing was."""
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers else None


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
