"""How long does it take to load and draw a run of a million readings, and how much memory?

Promise: loading and drawing a million readings takes less time than pandas needs to read the file, and under 500 MB.

The timeline has a million readings and a hundred thousand steps, and every stall that is at least a pixel long is in
the figure, at its place. The run is made up: ten readings for each step, steps of 1 s, each after a stall of 4 ms, and
a hundred stalls from some two to eight pixels long at known places. pipetune and pandas run in fresh processes, in
turn, so that neither finds the other's memory or caches; the file is in the page cache for both. Time is wall time from
the start of reading, without imports; memory is the peak of the process (VmHWM), with imports. The ratio of times comes
with its 95 % interval over the rounds.

``--quick`` makes a run a fifth as long and takes about a minute, the full run about six.
"""

from __future__ import annotations

import random
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from pipetune.records.observation import GpuReading, Reading, TreeReading
from pipetune.records.sweep import StepTime, to_dict
from pipetune.store.files import encode

MAX_BYTES = 500e6
STEP_S, SHORT_S, INTERVAL_S = 1.0, 0.004, 0.1
LONG_STALLS = 100
BEGAN_NS = 10**12
ROUNDS = 3
#: Of the figure's width: 8 inches at matplotlib's 100 per inch.
PIXELS = 800

#: Programs that take the run's folder and a file for the figure.
_PIPETUNE = """
import json, sys, time
import matplotlib; matplotlib.use("agg")
import matplotlib.pyplot, numpy, pandas, msgspec
import pipetune, pipetune.plot
from benchmarks.bench import peak_memory_bytes
began = time.perf_counter()
run = pipetune.load(sys.argv[1])
rows = (len(run.readings()), len(run.steps()))
loaded = time.perf_counter() - began
ax = pipetune.plot.stall_timeline(run)
ax.figure.savefig(sys.argv[2])
took = time.perf_counter() - began
drawn = []
for bars in ax.child_axes[0].collections:
    for path in bars.get_paths():
        box = path.get_extents()
        drawn.append((box.x0, box.x1))
pixel = (lambda lo, hi: (hi - lo) / ax.get_window_extent().width)(*ax.child_axes[0].get_xlim())
memory = peak_memory_bytes()
print(json.dumps({"s": took, "load_s": loaded, "bytes": memory, "rows": rows, "drawn": drawn, "pixel_s": pixel}))
"""
_PANDAS = """
import json, sys, time
import pandas
from benchmarks.bench import peak_memory_bytes
began = time.perf_counter()
frame = pandas.read_json(sys.argv[1] + "/timelines/main.jsonl", lines=True)
print(json.dumps({"s": time.perf_counter() - began, "bytes": peak_memory_bytes(), "rows": len(frame)}))
"""


def main(options: Namespace) -> bench.Result:
    count = 200_000 if options.quick else 1_000_000
    with tempfile.TemporaryDirectory(prefix="pipetune-plotting-") as name:
        folder = Path(name)
        made = make_run(folder, count)
        size = (folder / "timelines" / "main.jsonl").stat().st_size
        print(f"{count:,} readings and {count // 10:,} steps, {size / 1e6:.0f} MB", flush=True)
        found: dict[str, list[dict[str, Any]]] = {_PIPETUNE: [], _PANDAS: []}
        for number in range(ROUNDS):
            for program in (_PIPETUNE, _PANDAS) if number % 2 else (_PANDAS, _PIPETUNE):
                command = [sys.executable, "-c", program, str(folder), str(folder / "figure.png")]
                found[program].append(bench.last_line_of(command))
    ours, pandas = found.values()
    ratios = [a["s"] / b["s"] for a, b in zip(ours, pandas, strict=True)]
    missing = lost_stalls(made, ours[0])
    rows = [
        [name, f"{median(f['s'] for f in runs):.1f}", f"{max(f['bytes'] for f in runs) / 1e6:.0f}"]
        for name, runs in (("pipetune: load and draw", ours), ("pandas.read_json alone", pandas))
    ]
    print("\n" + bench.table(["", "seconds", "memory, MB"], rows))
    print(f"\npipetune / pandas, time: {bench.ratio_text(ratios)} in {ROUNDS} rounds")
    print(f"stalls of at least a pixel ({ours[0]['pixel_s']:.1f} s): {len(made)} made, {missing} missing in the figure")
    peak = max(run["bytes"] for run in ours)
    holds = max(ratios) < 1 and peak < MAX_BYTES and not missing and len(made) == LONG_STALLS
    kept = [{key: value for key, value in run.items() if key != "drawn"} for run in ours]
    return bench.Result(holds, {
        "readings": count, "file_bytes": size, "ours": kept, "pandas": pandas, "ratios": ratios, "missing": missing,
    })  # fmt: skip


def make_run(folder: Path, count: int) -> list[tuple[float, float]]:
    """Write a run of an observed loop; returns begin and end of each long stall, in seconds of the figure."""
    (folder / "timelines").mkdir()
    about = {"kind": "observe", "warmup_steps": 0, "host": {"cores_usable": 2.0}}
    (folder / "run.json").write_bytes(encode("run", about))
    (folder / "result.json").write_bytes(encode("result", {"kind": "observe", "reason": "made up"}))
    made = random.Random(0)
    steps = count // 10
    # The long stalls make the run, and so each pixel, about twice as long.
    pixel_s = 1.6 * steps * (STEP_S + SHORT_S) / PIXELS
    places = sorted(made.sample(range(1, steps), LONG_STALLS))
    long_s = {place: pixel_s * made.uniform(2, 8) for place in places}
    stalls, now_ns = [], BEGAN_NS
    with (folder / "timelines" / "main.jsonl").open("wb") as file:
        for number in range(steps):
            idle_s = 0.0 if number == 0 else long_s.get(number, SHORT_S)
            began_ns = now_ns + round(idle_s * 1e9)
            end_ns = began_ns + round(STEP_S * 1e9)
            if number in long_s:
                stalls.append(((now_ns - BEGAN_NS) / 1e9, (began_ns - BEGAN_NS) / 1e9))
            step = StepTime(
                t_start_ns=now_ns, data_wait_s=idle_s, h2d_s=None, compute_s=STEP_S, idle_s=idle_s, t_end_ns=end_ns,
                samples=64,
            )  # fmt: skip
            file.write(encode("step", {"kind": "step", **to_dict(step)}))
            now_ns = end_ns
        every_ns = (now_ns - BEGAN_NS) // count
        for number in range(count):
            file.write(line_of(BEGAN_NS + number * every_ns, number))
    return stalls


def line_of(t_ns: int, number: int) -> bytes:
    """A reading as a run on a GPU machine writes it."""
    reading = Reading(
        t_ns=t_ns, interval_s=INTERVAL_S, cpu_busy_pct=50.0 + number % 50, cpu_idle_pct=100.0 / 3, cpu_iowait_pct=0.0,
        psi_cpu_some_pct=2.977666640007365, psi_io_some_pct=0.0, psi_memory_some_pct=0.0,
        tree=TreeReading(
            processes=17, cpu_s=0.1 * number, run_delay_s=1.284587286, minor_faults=194327, context_switches=3570,
            read_bytes=1396736, rss_bytes=861655040, in_disk_sleep=0,
        ),
        gpu=GpuReading(
            util_pct=91.0, mem_used_bytes=40 * 2**30, sm_active_pct=55.5, power_w=312.25, throttled_pct=0.0,
            pcie_rx_bytes=12_345_678,
        ),
        tick_cost_s=0.0002876800000000,
    )  # fmt: skip
    return encode("reading", {"kind": "reading", **to_dict(reading)})


def lost_stalls(made: list[tuple[float, float]], found: dict[str, Any]) -> int:
    """How many of the long stalls are not drawn at their place."""
    drawn = [tuple(span) for span in found["drawn"]]
    return sum(
        end - begin >= found["pixel_s"] and not any(abs(a - begin) < 1e-6 and abs(b - end) < 1e-6 for a, b in drawn)
        for begin, end in made
    )


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
