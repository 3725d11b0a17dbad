"""The training script of ``writes.py``: writes in every way, then trains, ends or fails.

Its arguments: the folder with one folder per way, and how it goes on: ``train``, ``end`` or ``raise``. Two ranks
(torchrun, gloo). It prints ``wrote: WAY`` for each way, and ``all is written`` before it goes on.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.robustness.ways_to_write import WAYS, write_now


class Rows(Dataset[Any]):
    """Samples whose first one writes, in a worker."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self._folder is not None and not (self._folder / "new").exists():
            write_now(self._folder)
        return torch.randn(8), index % 2


def main() -> None:
    folder, then = Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        for way, write in WAYS.items():
            if (folder / way).is_dir():
                write(folder / way)
                print(f"wrote: {way}", flush=True)
        list(DataLoader(Rows(folder / "loader worker"), batch_size=2048, num_workers=1))
        print("wrote: loader worker", flush=True)
        atexit.register(write_at_end, folder / "atexit", "atexit")
        signal.signal(signal.SIGTERM, lambda *_: write_at_end(folder / "signal handler at the end", "signal handler"))
    else:
        write_now(folder / "rank 1")
        print("wrote: rank 1", flush=True)
    dist.barrier()
    if rank == 0:
        print("all is written", flush=True)
    if then == "raise":
        raise ValueError("as asked")
    if then == "end":
        return
    train()


def write_at_end(folder: Path, name: str) -> None:
    """Write, and say so in a way that a killed process still can."""
    write_now(folder)
    os.write(1, f"wrote: {name}\n".encode())


def train() -> None:
    loader = DataLoader(Rows(None), batch_size=8, shuffle=True)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(1000):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            time.sleep(0.02)


if __name__ == "__main__":
    main()
