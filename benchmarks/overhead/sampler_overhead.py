"""What does it cost to watch? The sampler at work beside processes that decode, without a GPU.

Promise: at 10 Hz, watching a tree of 16 busy child processes, the sampler costs less than 1 % of one core.

1. Cost per tick. 16 processes decode JPEGs about a tenth of the time, as workers do that wait for a full queue, while a
   sampler watches them. Counted is all the processor time of its thread, waking up included, as the kernel bills it.
2. What the work loses. One process per core (16 at least) decodes without a pause, while the sampler is off, on, on,
   off, or on, off, off, on in every other round, so that a drift of the machine falls on both. Reported is the median
   of on/off over the rounds with its 95 % bootstrap interval: below 1 is a loss. To be expected is the cost divided by
   the number of cores; a machine shared with others cannot resolve that, and its interval says so. The tick's cost is
   measured here again, on cores whose caches belong to somebody else.

The sampler's own brake (``max_core_frac``) is off, so it cannot be what keeps the promise, which must hold in both.
What NVML's calls cost depends on the driver and is not in here; ``Gpu.call_cost_s`` tells it for a run.
``--quick`` takes about 80 seconds, the full run about 7 minutes.
"""

from __future__ import annotations

import ctypes
import io
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from pipetune.records.sweep import Reading
from pipetune.sampler.loop import Sampler

PROMISE_CORE_FRAC = 0.01
INTERVAL_S = 0.1
CHILDREN = 16
RESAMPLES = 2000


def main() -> int:
    options = bench.arguments(__doc__)
    cost_s, rounds, block_s = (15.0, 20, 0.75) if options.quick else (60.0, 100, 0.75)
    light = measure_cost(cost_s)
    loaded, throughput = measure_throughput(rounds, block_s)
    rows = [
        row(f"{CHILDREN} children, each busy a tenth of the time", light),
        row(f"{throughput['processes']} children, all cores decoding", loaded),
    ]
    print(bench.table(["cost of the sampler", "median ms", "p95 ms", "max ms", "of a core", "ticks", "skipped"], rows))
    low, high = throughput["ratio_ci95"]
    print(
        f"\nimages/s with the sampler / without: {throughput['ratio']:.4f}, 95 % interval {low:.4f} to {high:.4f} "
        f"({rounds} rounds of 4 x {block_s:g} s)"
    )
    holds = max(light["core_frac"], loaded["core_frac"]) < PROMISE_CORE_FRAC
    print(f"promise, less than {PROMISE_CORE_FRAC:.0%} of a core: {'holds' if holds else 'DOES NOT HOLD'}")
    numbers = {"interval_s": INTERVAL_S, "cost_light": light, "cost_loaded": loaded, "throughput": throughput}
    bench.write(options.json, "sampler_overhead", holds, numbers)
    return 0 if holds else 1


def measure_cost(seconds: float) -> dict[str, Any]:
    with decoders(CHILDREN, pause_s=0.05), watch() as sampler:
        time.sleep(seconds)
    return cost(sampler.readings, sampler.cpu_s, seconds)


def measure_throughput(rounds: int, block_s: float) -> tuple[dict[str, Any], dict[str, Any]]:
    processes = max(CHILDREN, len(os.sched_getaffinity(0)))
    rates: list[tuple[float, float]] = []
    readings: list[Reading] = []
    cpu_s = wall_s = 0.0
    with decoders(processes, pause_s=0) as done:
        for number in range(rounds):
            images, seconds = {True: 0, False: 0}, {True: 0.0, False: 0.0}
            order = (True, False, True) if number % 2 else (False, True, False)
            for place, on in enumerate(order):
                # The two blocks in the middle are one.
                counted, took_s, sampler = block(done, on, block_s * (2 if place == 1 else 1))
                images[on] += counted
                seconds[on] += took_s
                if sampler is not None:
                    readings += sampler.readings
                    cpu_s += sampler.cpu_s
            wall_s += seconds[True]
            rates.append((images[True] / seconds[True], images[False] / seconds[False]))
    ratios = [on / off for on, off in rates]
    throughput = {
        "processes": processes,
        "block_s": block_s,
        "ratio": median(ratios),
        "ratio_ci95": bootstrap_ci95(ratios),
        "images_per_s_on": median(on for on, _ in rates),
        "images_per_s_off": median(off for _, off in rates),
        "rounds_on_off": [[round(on, 2), round(off, 2)] for on, off in rates],
    }
    return cost(readings, cpu_s, wall_s), throughput


def block(done: Any, on: bool, seconds: float) -> tuple[int, float, Sampler | None]:
    """Images decoded, time taken, and the sampler that watched."""
    sampler = watch() if on else None
    began_s, before = time.perf_counter(), sum(done)
    with sampler or nullcontext():
        time.sleep(seconds)
    return sum(done) - before, time.perf_counter() - began_s, sampler


def watch() -> Sampler:
    return Sampler(os.getpid(), None, interval_s=INTERVAL_S, max_core_frac=1.0)


def cost(readings: Sequence[Reading], cpu_s: float, wall_s: float) -> dict[str, Any]:
    """``core_frac`` is everything that the thread used, the opening of all files at the start included."""
    ticks_s = sorted(reading.tick_cost_s for reading in readings)
    return {
        "ticks": len(ticks_s),
        "ticks_skipped": sum(round(reading.interval_s / INTERVAL_S) - 1 for reading in readings),
        "processes_seen": max((reading.tree.processes for reading in readings if reading.tree), default=0),
        "tick_median_s": median(ticks_s),
        "tick_p95_s": ticks_s[int(0.95 * len(ticks_s))],
        "tick_max_s": ticks_s[-1],
        "core_frac": cpu_s / wall_s,
        "wall_s": wall_s,
    }


def row(title: str, found: dict[str, Any]) -> list[str]:
    ticks_ms = [f"{found[name] * 1e3:.3f}" for name in ("tick_median_s", "tick_p95_s", "tick_max_s")]
    return [title, *ticks_ms, f"{found['core_frac']:.3%}", str(found["ticks"]), str(found["ticks_skipped"])]


def bootstrap_ci95(values: Sequence[float]) -> tuple[float, float]:
    """95 % percentile interval of the median; the seed is fixed, so the same values give the same interval."""
    draw = random.Random(0)
    medians = sorted(median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)]


@contextmanager
def decoders(count: int, *, pause_s: float) -> Iterator[Any]:
    """``count`` processes that decode, and the array in which each counts its images."""
    context = multiprocessing.get_context("spawn")
    done = RawArray(ctypes.c_uint64, count)
    workers = [context.Process(target=decode, args=(done, slot, pause_s), daemon=True) for slot in range(count)]
    for worker in workers:
        worker.start()
    try:
        while not all(done):
            time.sleep(0.05)
        yield done
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()


def decode(done: Any, slot: int, pause_s: float) -> None:
    from PIL import Image

    file = io.BytesIO()
    # Plain noise is the dearest JPEG there is; blurred to half the size and back it decodes like a photo, about 5 ms.
    noise = Image.effect_noise((320, 240), 60).resize((640, 480), Image.Resampling.BILINEAR)
    Image.merge("RGB", (noise, noise.rotate(90), noise.rotate(180))).save(file, "JPEG", quality=90)
    while True:
        file.seek(0)
        Image.open(file).load()
        done[slot] += 1
        if pause_s:
            time.sleep(pause_s)


if __name__ == "__main__":
    sys.exit(main())
