"""What does the sampler cost? It samples processes that decode, without a GPU.

Promise: at 10 Hz, following a tree of 16 busy processes, the sampler takes less than 1 % of one core.

1. Cost per tick. 16 processes decode JPEGs about a tenth of the time, as workers do that wait for a full queue, while a
   sampler follows them. Counted is all CPU time of its thread, waking up included, as the kernel accounts it.
2. What the work loses. One process per core (16 at least) decodes without a pause, while the sampler is off, on, on,
   off, or on, off, off, on in every other round, so that a drift of the machine falls on both. Reported is the median
   of on/off over the rounds with its 95 % bootstrap interval: below 1 is a loss. To be expected is the cost divided by
   the number of cores; a machine shared with others cannot resolve that, and its interval says so. The tick's cost is
   measured here again, on cores whose caches are in use by other processes.
3. pipetune's own parsers compared with psutil, for the same facts of the same 16 processes (see ``proc_readers.py``).
   They must read the same facts in less CPU time than psutil; otherwise there would be no reason to keep them.

The sampler's own limit (``max_core_frac``) is off, so that it cannot be what keeps the promise, which must hold in 1
and 2. The cost of NVML's calls depends on the driver and is not in here; ``Gpu.call_cost_s`` has it for a run.
``--quick`` takes about 2 minutes, the full run about 8.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from benchmarks.overhead.decoding import decoders
from benchmarks.overhead.proc_readers import PIPETUNE, compare
from pipetune.records.observation import Reading
from pipetune.sampler.loop import Sampler

MAX_CORE_FRAC = 0.01
INTERVAL_S = 0.1
CHILDREN = 16
BLOCK_S = 0.75


def main(options: Namespace) -> bench.Result:
    cost_s, rounds, ticks = (15.0, 20, 100) if options.quick else (60.0, 100, 600)
    light, parsers = measure_cost(cost_s, ticks)
    loaded, throughput = measure_throughput(rounds, BLOCK_S)
    rows = [
        row(f"{CHILDREN} processes, each busy a tenth of the time", light),
        row(f"{throughput['processes']} processes, all cores decoding", loaded),
    ]
    print(bench.table(["cost of the sampler", "median ms", "p95 ms", "max ms", "of a core", "ticks", "skipped"], rows))
    low, high = throughput["ratio_ci95"]
    print(
        f"\nimages/s with the sampler / without: {throughput['ratio']:.4f}, 95 % interval {low:.4f} to {high:.4f} "
        f"({rounds} rounds of 4 x {BLOCK_S:g} s)\n"
    )
    print(parsers_table(parsers))
    print(f"same facts: {bench.yes(parsers['same_facts'])} ({parsers['ticks']} ticks of {INTERVAL_S:g} s)\n")
    cheaper = all(found["ratio_ci95"][0] > 1 for name, found in parsers["readers"].items() if name != PIPETUNE)
    within = max(light["core_frac"], loaded["core_frac"]) < MAX_CORE_FRAC
    numbers = {
        "interval_s": INTERVAL_S, "cost_light": light, "cost_loaded": loaded, "throughput": throughput,
        "parsers": parsers,
    }  # fmt: skip
    return bench.Result(within and cheaper and parsers["same_facts"], numbers)


def measure_cost(seconds: float, ticks: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Cost of the sampler, and of its parsers compared with psutil's."""
    with decoders(CHILDREN, pause_s=0.05):
        with sampler_here() as sampler:
            time.sleep(seconds)
        return cost(sampler.readings, sampler.cpu_s, seconds), compare(ticks, INTERVAL_S)


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
        "ratio_ci95": bench.bootstrap_ci95(ratios),
        "images_per_s_on": median(on for on, _ in rates),
        "images_per_s_off": median(off for _, off in rates),
        "rounds_on_off": [[round(on, 2), round(off, 2)] for on, off in rates],
    }
    return cost(readings, cpu_s, wall_s), throughput


def block(done: Any, on: bool, seconds: float) -> tuple[int, float, Sampler | None]:
    """Images decoded, time taken (s), and the sampler, where one was on."""
    sampler = sampler_here() if on else None
    began_s, before = time.perf_counter(), sum(done)
    with sampler or nullcontext():
        time.sleep(seconds)
    return sum(done) - before, time.perf_counter() - began_s, sampler


def sampler_here() -> Sampler:
    """Of this process and its children; it never slows down."""
    return Sampler(os.getpid(), None, interval_s=INTERVAL_S, max_core_frac=1.0)


def cost(readings: Sequence[Reading], cpu_s: float, wall_s: float) -> dict[str, Any]:
    """``core_frac`` is all CPU time of the thread, the opening of files at the start included."""
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


def parsers_table(parsers: dict[str, Any]) -> str:
    rows = []
    for name, found in parsers["readers"].items():
        low, high = found["ratio_ci95"]
        ratio = "" if name == PIPETUNE else f"{found['ratio']:.2f} ({low:.2f} to {high:.2f})"
        rows.append([name, f"{1e6 * found['tick_mean_s']:.0f}", f"{1e6 * found['tick_max_s']:.0f}", ratio])
    return bench.table(["reading the process tree", "mean, us of CPU", "max", "times pipetune's cost"], rows)


def row(title: str, found: dict[str, Any]) -> list[str]:
    ticks_ms = [f"{found[name] * 1e3:.3f}" for name in ("tick_median_s", "tick_p95_s", "tick_max_s")]
    return [title, *ticks_ms, f"{found['core_frac']:.3%}", str(found["ticks"]), str(found["ticks_skipped"])]


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
