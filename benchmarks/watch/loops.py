"""The training loop of the jobs in ``jobs.py``, and the loaders that limit it.

An accelerator's rate follows from what one worker or the main thread achieves on this machine, which is measured first,
so a job has the same limit on a faster machine, too.
"""

from __future__ import annotations

import ctypes
import functools
import os
import queue
import random
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.watch import sources
from benchmarks.watch.sources import Disk, Files, Http, Memory, Plain, Samples, as_stored, decode_cv2, decode_pil
from pipetune.accelerator.emulated import EmulatedAccelerator
from pipetune.accelerator.timeline import TimelineWriter
from pipetune.datasets.open_dataset import open_dataset

PHOTOS = "synthetic:caltech256?n=600"
#: Per step two monotonic times (ns): when the batch was asked for, and when it arrived.
STEP = struct.Struct("<qq")
BATCH = 16
_PR_SET_NAME = 15


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job."""

    folder: Path
    seed: int

    def paths(self) -> list[str]:
        """Paths of the photographs, in this run's order."""
        found = open_dataset(PHOTOS, seed=0, limit_bytes=2**40, workers=2)
        paths = [image.path for image in found.images]
        random.Random(self.seed).shuffle(paths)
        return paths

    def about(self, factor: float) -> float:
        """The factor changed by up to a fifth, differently for each seed."""
        return factor * random.Random(self.seed).uniform(0.8, 1.2)


def seconds_of(work: Callable[[], Any], least_s: float = 0.6) -> float:
    """Time of one call on this machine: the mean over at least ``least_s``."""
    work()
    began_s, times = time.perf_counter(), 0
    while (took_s := time.perf_counter() - began_s) < least_s:
        work()
        times += 1
    return took_s / times


def sample_s(samples: Samples | Memory) -> float:
    """Time that one worker needs for a sample."""
    numbers = iter(range(10**7, 2 * 10**7))
    return seconds_of(lambda: samples[next(numbers) % len(samples)])


def loader(samples: Any, workers: int, batch: int = BATCH, **options: Any) -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(samples, batch_size=batch, num_workers=workers, **options)


def recorded(batches: Iterable[Any], run: Run) -> Iterator[Any]:
    """Yield the batches; when each was asked for and when it arrived goes into a file."""
    file = os.open(run.folder / f"steps-{os.environ.get('RANK', '0')}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    iterator = iter(batches)
    while True:
        asked_ns = time.monotonic_ns()
        batch = next(iterator)
        os.write(file, STEP.pack(asked_ns, time.monotonic_ns()))
        yield batch


def train(
    batches: Iterable[Any],
    run: Run,
    rate: float,
    *,
    min_step_s: float = 0.0,
    before: Callable[[Any], Any] | None = None,
    after: Callable[[Any], Any] | None = None,
) -> None:
    """The training loop of most jobs, on an accelerator of so many samples/s."""
    accelerator = EmulatedAccelerator(rate, timeline=TimelineWriter(), min_step_s=min_step_s)
    for batch in recorded(batches, run):
        if before is not None:
            before(batch)
        accelerator.submit(SimpleNamespace(images=batch))
        accelerator.finished()
        if after is not None:
            after(batch)


def rename(name: bytes, worker: int = 0) -> None:
    """Set the name that the kernel shows for this process or thread."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name, 0, 0, 0)


def decode(
    run: Run, *, workers: int, decoder: Callable[[bytes], Any] = decode_pil, faster: float = 3, **options: Any
) -> None:
    """``faster`` is the accelerator's rate over that of one worker; below 1 it is the limit itself."""
    samples = Samples((Files(run.paths()),), decoder)
    train(loader(samples, workers, **options), run, run.about(faster) / sample_s(samples))


def decode_without_accelerator(run: Run) -> None:
    samples = Samples((Files(run.paths()),), decode_pil)
    step_s = run.about(0.3) * BATCH * sample_s(samples)
    for _ in recorded(loader(samples, 1, worker_init_fn=functools.partial(rename, b"python")), run):
        time.sleep(step_s)


def decode_for_the_cpu(run: Run, *, workers: int = 1, repeats: float = 0.1) -> None:
    """Trains a small network on the CPU; ``repeats`` is the training's time over that of the loading, each alone."""
    import torch

    torch.set_num_threads(1)
    samples = Samples((Files(run.paths()),), decode_pil)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 8, stride=8), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(batch: Any) -> None:
        optimizer.zero_grad()
        model(batch.permute(0, 3, 1, 2).float() / 255).square().mean().backward()
        optimizer.step()

    one_s = seconds_of(lambda: step(torch.zeros(BATCH, sources.SIDE, sources.SIDE, 3, dtype=torch.uint8)))
    times = max(1, round(repeats * BATCH * sample_s(samples) / one_s))
    for batch in recorded(loader(samples, workers), run):
        for _ in range(times):
            step(batch)


def decode_in_threads(run: Run, *, threads: int) -> None:
    import torch

    samples = Samples((Files(run.paths()),), decode_cv2)
    rate = run.about(3) / sample_s(samples)
    batches: queue.Queue[Any] = queue.Queue(2 * threads)

    def load(number: int) -> None:
        rename(f"pt_thread_data_{number}".encode())
        for first in range(number * 10**6, 10**9, BATCH):
            batches.put(torch.from_numpy(np.stack([samples[first + i] for i in range(BATCH)])))

    for number in range(threads):
        threading.Thread(target=load, args=(number,), daemon=True).start()
    train(iter(batches.get, None), run, rate)


def decode_by_dali(run: Run) -> None:
    from nvidia.dali import fn, pipeline_def
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    paths = run.paths()

    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=None)
    def images() -> Any:
        encoded, _ = fn.readers.file(files=paths, random_shuffle=False)
        return fn.resize(fn.decoders.image(encoded, device="cpu"), size=(sources.SIDE, sources.SIDE))

    pipeline = images()
    pipeline.build()
    iterator = DALIGenericIterator([pipeline], ["images"], size=-1, prepare_first_batch=False)
    batch_s = seconds_of(lambda: next(iterator), least_s=1.5)
    train((outputs[0]["images"] for outputs in iterator), run, run.about(3) * BATCH / batch_s)


def from_disk(run: Run, *, workers: int, direct: bool) -> None:
    disk = Disk(sources.large_file(run.folder), direct=direct)
    train(loader(Samples((disk,), as_stored), workers, 8), run, run.about(500))


def from_network(run: Run, *, workers: int, http: bool) -> None:
    port, paths = sources.served_port(run.folder), run.paths()
    fetch = Http(port, paths) if http else Plain(port, paths)
    train(loader(Samples((fetch,), decode_pil), workers, 8), run, run.about(500))


def from_disk_and_decode(run: Run) -> None:
    files = Files(run.paths())
    one_s = sample_s(Samples((files,), decode_pil))
    # The limit is a mean over time: what is not read during decoding may be read later.
    pages = max(1, round(2 * one_s * sources.DISK_BYTES_PER_S / 4096))
    disk = Disk(sources.large_file(run.folder), size=4096 * pages)
    train(loader(Samples((disk, files), decode_pil), 1), run, run.about(3) / one_s)


def from_disk_and_network(run: Run) -> None:
    port, paths = sources.served_port(run.folder), run.paths()
    disk = Disk(sources.large_file(run.folder), size=1 << 17)
    size = round((1 << 16) / sources.DISK_BYTES_PER_S * sources.NETWORK_BYTES_PER_S)
    samples = Samples((Plain(port, paths, size), disk), lambda pixels: np.frombuffer(pixels, np.uint8))
    train(loader(samples, 1, 8), run, run.about(500))


def restarted_workers(run: Run) -> None:
    samples = Samples((Files(run.paths()),), decode_pil, length=4 * BATCH)
    again = loader(samples, 2, multiprocessing_context="spawn", persistent_workers=False)

    def epochs() -> Iterator[Any]:
        while True:
            yield from again

    train(epochs(), run, run.about(1) / sample_s(samples))
