"""One loader of ``loaders.py`` in a process of its own: ``child.py TASK``, where TASK is a JSON object.

Prints one JSON object. The loop takes batch after batch and does nothing with them, so the loader is the limit. The
first seconds are left out: files come into memory, worker processes start, code is compiled.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import psutil
import torch

from benchmarks import bench
from benchmarks.loaders import peers
from pipetune.datasets.index import read_index
from pipetune.machine.proc import tree_pids

#: Samples of the memory, and the time between two of them (s).
SAMPLES, SAMPLE_S = 30, 0.02


def decoder(name: str) -> Callable[..., None]:
    from benchmarks.loaders import decoders

    found: Callable[..., None] = getattr(decoders, name)
    return found


#: Name -> opens it; ``aa``: antialiased resize, as torchvision's transforms have it.
LOADERS: dict[str, Callable[[peers.Task], peers.Batches]] = {
    "pipetune exact": functools.partial(peers.pipetune, backend="jpeg-roi"),
    "pipetune approximate": functools.partial(peers.pipetune, backend="jpeg-roi-fast"),
    "pipetune simplejpeg": functools.partial(peers.pipetune, backend="simplejpeg"),
    "torch + torchvision v2": peers.torch_v2,
    "DALI aa": functools.partial(peers.dali, antialias=True),
    "DALI": functools.partial(peers.dali, antialias=False),
    "FFCV": peers.ffcv,
    "SPDL aa": lambda task: peers.spdl(task, decoder("antialiased")),
    "SPDL": lambda task: peers.spdl(task, decoder("bilinear")),
    "Grain aa": lambda task: peers.grain(task, decoder("antialiased")),
    "Grain": lambda task: peers.grain(task, decoder("bilinear")),
    "torchdata nodes": lambda task: peers.nodes(task, decoder("bilinear")),
    "LitData": lambda task: peers.litdata(task, decoder("bilinear")),
    "WebDataset": lambda task: peers.webdataset(task, decoder("bilinear")),
}


def main() -> None:
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    images = read_index(asked["index"])
    task = peers.Task(
        images=images, converted=Path(asked["converted"]), batch=asked["batch"], size=224, uint8=asked["uint8"],
        workers=asked["workers"], prefetch=asked["prefetch"],
    )  # fmt: skip
    if asked["loader"].startswith("bound "):
        found = bound(task, asked["loader"].removeprefix("bound "), asked["seconds"])
    else:
        found = measure(LOADERS[asked["loader"]], task, asked["warm_s"], asked["seconds"])
    print(json.dumps(found), flush=True)
    os._exit(0)  # some loaders take seconds to end, or do not end at all


def measure(open_it: Callable[[peers.Task], peers.Batches], task: peers.Task, warm_s: float, s: float) -> Any:
    """Rate and processor time in ``s`` seconds after ``warm_s``, and then the memory."""
    opened = time.perf_counter()
    batches = open_it(task)
    images = next(batches)
    first_s = time.perf_counter() - opened
    expected = (task.batch, 3, task.size, task.size)
    assert isinstance(images, torch.Tensor), type(images)
    assert tuple(images.shape) == expected, images.shape
    assert images.dtype == (torch.uint8 if task.uint8 else torch.float32), images.dtype
    assert float(images.float().std()) > 0.2, "no photographs"
    until = time.perf_counter() + warm_s
    while time.perf_counter() < until:
        images = next(batches)
    count, cpu_s, began = 0, tree_cpu_s(), time.perf_counter()
    while (took := time.perf_counter() - began) < s:
        images = next(batches)
        count += len(images)
    used_s = tree_cpu_s() - cpu_s
    # Sampled by another thread, at moments that do not depend on the loader.
    memory: list[int] = []
    sampler = threading.Thread(target=sample_memory, args=(memory,))
    sampler.start()
    while sampler.is_alive():
        images = next(batches)
    return {
        "samples_per_s": count / took,
        "cpu_s_per_1000": 1000 * used_s / count,
        "pss_bytes": max(memory),
        "pss_mean_bytes": mean(memory),
        "first_batch_s": first_s,
    }


def bound(task: peers.Task, name: str, seconds: float) -> Any:
    """The rate of one thread that only decodes and transforms, again and again into the same few places."""
    import numpy as np

    from pipetune.decoders.layout import Layout
    from pipetune.loaders.photos import Photos
    from pipetune.registry import find_backend

    module = importlib.import_module(str(find_backend(name).module))
    layout = Layout(size=task.size, uint8=task.uint8)
    photos = Photos(task.images, module.load, layout, 0, module.fill_some)
    places = np.empty(layout.shape(8), layout.dtype)
    warm = len(photos) // 4 // len(places) * len(places)
    count, began = -warm, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        photos.fill(range(count + warm, count + warm + len(places)), places)
        count += len(places)
        if count <= 0:
            began = time.perf_counter()
    return {"samples_per_s": count / took}


def tree_cpu_s() -> float:
    """CPU time of this process and its children, also of those that have ended (s)."""
    total = 0.0
    for pid in tree_pids(os.getpid()):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += bench.cpu_s(pid, children=True)
    return total


def sample_memory(samples: list[int]) -> None:
    """Append the memory of this process and its children, again and again (bytes)."""
    for _ in range(SAMPLES):
        time.sleep(SAMPLE_S)
        samples.append(tree_pss())


def tree_pss() -> int:
    """Memory of this process and its children; what they share is counted once (bytes).

    Without what lies in the page cache: libraries that all of them have, and data files that one loader maps and
    another one reads.
    """
    total = 0
    for pid in tree_pids(os.getpid()):
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        lines = (line.split() for line in text.splitlines())
        total += sum(int(line[1]) for line in lines if line[0] in ("Pss_Anon:", "Pss_Shmem:")) * 1024
    return total


if __name__ == "__main__":
    main()
