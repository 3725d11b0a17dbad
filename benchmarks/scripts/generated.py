"""Small training scripts of many kinds, written from parts: what a sample takes, the loader, the step.

Samples and steps mostly sleep, so that what helps is known by construction and other load on the machine hardly
changes it. Each script prints its rate after each epoch, as those of ``tests/scripts`` do.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import harmonic_mean
from typing import Any

from benchmarks import bench
from benchmarks.scripts.cases import train

_SOURCE = """
import fcntl, os, random, sys, tempfile, time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
torch.set_num_threads({threads})


def workers_now():
    info = get_worker_info()
    return 1 if info is None else info.num_workers


def make_sample(index):
    {sample}
    return torch.full(({size},), float(index % 7)), index % 8


class Mapped(Dataset):
    def __len__(self):
        return {samples}

    def __getitem__(self, index):
        return make_sample(index)


class Divided(IterableDataset):
    def __len__(self):
        return {samples}

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, {samples}, step):
            yield make_sample(index)


def start_worker(worker):
    {start}


def main():
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    model = torch.nn.Sequential(torch.nn.Linear({size}, {width}), torch.nn.Linear({width}, 8))
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    dataset = {dataset}()
    loader = DataLoader(dataset, batch_size={batch}, {arguments})
    for epoch in range(EPOCHS):
        began, count = time.perf_counter(), 0
        for number, (images, labels) in enumerate(loader):
            {step}
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            count += ranks * len(labels)
        if rank == 0:
            print(f"epoch {{epoch}}: {{count / (time.perf_counter() - began):.1f}} images/s", flush=True)


if __name__ == '__main__':
    main()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One script."""

    name: str
    sample: str = "pass"
    """Statement that making a sample takes."""
    step: str = "pass"
    """The same of a training step, besides a small model."""
    arguments: str = "num_workers=0"
    """Of ``DataLoader``, besides data set and batch size."""
    start: str = "pass"
    """Statement that each worker begins with (``worker_init_fn=start_worker``)."""
    dataset: str = "Mapped"
    samples: int = 640
    batch: int = 16
    size: int = 256
    """Numbers in a sample."""
    width: int = 16
    threads: int = 1
    ranks: int = 1

    @property
    def source(self) -> str:
        """The text of its file."""
        parts = {name: getattr(self, name) for name in self.__slots__ if name not in ("name", "ranks")}
        return _SOURCE.format(**parts).lstrip()

    def write(self, folder: Path) -> list[str]:
        """Write its file into a folder; returns the command that starts it."""
        file = folder / "train.py"
        file.write_text(self.source)
        launch = [sys.executable]
        if self.ranks > 1:
            launch += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.ranks}"]
        return [*launch, str(file)]


def sweep(command: Sequence[str], cwd: Path, out: Path) -> tuple[dict[str, Any], float, str]:
    """Sweep a script; returns its result (empty: there is none), how long it took (s) and the end of its errors."""
    began = time.monotonic()
    stored = out.with_suffix(".json")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pipetune",
            "sweep",
            "--progress",
            "none",
            "--json",
            str(stored),
            "--out",
            str(out),
            "--",
            *command,
        ],
        cwd=cwd,
        env=bench.environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    result = json.loads(stored.read_text()) if stored.exists() else {}
    return result, time.monotonic() - began, "" if done.returncode == 0 else done.stderr[-300:]


def rate_of(command: Sequence[str], cwd: Path, epochs: int) -> float:
    """Images per second by the script's own clock, of all epochs but the first.

    Raises:
        RuntimeError: it does not come to its end.
    """
    trained = train([*command, str(epochs)], cwd)
    if trained.exit_code or len(trained.rates) < epochs:
        raise RuntimeError(f"{command[-1]} ended with {trained.exit_code}: {trained.stderr[-300:]}")
    return harmonic_mean(trained.rates[1:])
