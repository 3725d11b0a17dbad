"""What limits the training loop in the jobs of ``jobs.py``, apart from the loader."""

from __future__ import annotations

import json
import logging
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.watch.loops import BATCH, Run, loader, sample_s, seconds_of, train
from benchmarks.watch.sources import SIDE, Files, Memory, Samples, decode_pil

_SMALL = (64, 64, 3)


def augment(batch: Any) -> list[list[int]]:
    """Brightness and noise in plain Python, as a first version has them."""
    draw = random.Random(0)
    images = [image.reshape(-1).tolist() for image in batch]
    return [[min(255, int(value * 1.1) + draw.randrange(8)) for value in image[::4]] for image in images]


def python_augments(run: Run) -> None:
    batches = loader(Memory(_SMALL), 2)
    one_s = seconds_of(lambda: augment(np.zeros((BATCH, *_SMALL), np.uint8)))
    train(batches, run, run.about(4) * BATCH / one_s, before=augment)


def python_augments_beside_decoding(run: Run) -> None:
    samples = Samples((Files(run.paths()),), decode_pil)
    one_s = sample_s(samples)
    share = 0.6 * BATCH * one_s / seconds_of(lambda: augment(np.zeros((1, *_SMALL), np.uint8)))
    few = np.zeros((max(1, round(share)), *_SMALL), np.uint8)
    train(loader(samples, 1), run, run.about(4) / one_s, before=lambda batch: augment(few))


class Metrics:
    """Counts a confusion matrix and writes a line of log per sample, in Python."""

    def __init__(self, folder: Path) -> None:
        self._log = logging.getLogger("train")
        self._log.addHandler(logging.FileHandler(folder / "train.log"))
        self._log.setLevel(logging.INFO)
        self._counts: dict[tuple[int, int], int] = {}

    def update(self, batch: Any) -> None:
        """After each step."""
        for number in range(20 * len(batch)):
            scores = [(number * 31 + klass * 17) % 101 / 101 for klass in range(100)]
            total = sum(scores)
            best = max(range(100), key=scores.__getitem__)
            self._counts[number % 100, best] = self._counts.get((number % 100, best), 0) + 1
            self._log.info(json.dumps({"sample": number, "best": best, "p": [round(s / total, 4) for s in scores[:9]]}))


def python_metrics(run: Run) -> None:
    metrics, ready = Metrics(run.folder), np.zeros((BATCH, 1))
    one_s = seconds_of(lambda: metrics.update(ready))
    train(loader(Memory(_SMALL), 1), run, run.about(4) * BATCH / one_s, after=metrics.update)


def launches(run: Run) -> None:
    """Train hundreds of tiny layers in sequence: Python and launching take longer than the work."""
    import torch

    torch.set_num_threads(1)
    layers = [layer for _ in range(1000) for layer in (torch.nn.Linear(8, 8), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers)

    def forward(batch: Any) -> Any:
        with torch.no_grad():
            return model(batch.reshape(len(batch), -1)[:, :8].float())

    one_s = seconds_of(lambda: forward(torch.zeros(BATCH, *_SMALL, dtype=torch.uint8)))
    train(loader(Memory(_SMALL), 1), run, run.about(4) * BATCH / one_s, before=forward)


def copies(run: Run) -> None:
    """Copy each batch to a buffer that stands for the device's memory, in the widest type there is."""
    import torch

    torch.set_num_threads(1)
    shape = (SIDE, SIDE, 3)
    device_buffer = torch.empty(BATCH, *shape, dtype=torch.float64)

    def upload(batch: Any) -> None:
        for _ in range(4):
            device_buffer.copy_(batch.to(torch.float64))

    one_s = seconds_of(lambda: upload(torch.zeros(BATCH, *shape, dtype=torch.uint8)))
    train(loader(Memory(shape), 1), run, run.about(4) * BATCH / one_s, before=upload)


def small_batches(run: Run) -> None:
    train(loader(Memory(_SMALL), 1, 2), run, run.about(1000), min_step_s=0.02)


def every(seconds: float, work: Callable[[], object]) -> Callable[[Any], None]:
    """Do some work after a step, whenever so many seconds have passed."""
    due_s = time.monotonic() + seconds

    def after(batch: Any) -> None:
        nonlocal due_s
        if time.monotonic() >= due_s:
            work()
            due_s = time.monotonic() + seconds

    return after


def checkpoints(run: Run) -> None:
    """Save about 150 MB and the optimizer's state, flushed to the disk."""
    import torch

    state = {f"layer{i}": torch.randn(1 << 20) for i in range(36 * 3)}

    def save() -> None:
        with open(run.folder / "checkpoint.part", "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(run.folder / "checkpoint.part", run.folder / "checkpoint.pt")

    train(loader(Memory(_SMALL), 1), run, run.about(400), after=every(2.5, save))


def evaluate(results: list[int]) -> float:
    """Mean over classes, computed in Python for about a second."""
    until_s, right = time.monotonic() + 1.2, 0
    while time.monotonic() < until_s:
        right += sum(1 for number in results if number % 7 == 3)
    return right / len(results)


def evaluations(run: Run) -> None:
    results = list(range(20_000))
    train(loader(Memory(_SMALL), 2), run, run.about(400), after=every(2.5, lambda: evaluate(results)))


def two_ranks(run: Run) -> None:
    """Rank 1 decodes; rank 0 has its images ready, and waits for rank 1 at every step."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    samples = Samples((Files(run.paths()),), decode_pil)
    one_s = sample_s(samples)
    gradients = torch.zeros(1000)
    mine = samples if dist.get_rank() == 1 else Memory((SIDE, SIDE, 3))
    train(loader(mine, 1), run, run.about(3) / one_s, before=lambda batch: dist.all_reduce(gradients))
