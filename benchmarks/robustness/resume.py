"""Is a sweep that is killed again and again as good as one that runs undisturbed?

Promise: a sweep killed at ten random moments and resumed measures nothing twice and ranks as an undisturbed sweep does.

Each time the process is killed (SIGKILL) and resumed with ``--resume``. The ranking is the same within the intervals of
both sweeps: no two candidates whose intervals are apart in both stand in another order, and the rates of a candidate
differ by no more than their 95 % intervals allow, for all but one candidate.

``--quick`` takes about 4 minutes, the full run (three killed sweeps) about 12.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter
from itertools import permutations
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench

KILLS = 10
#: Seconds until a kill: from the start of Python to the middle of the second candidate.
SOONEST_S, LATEST_S = 0.5, 9.0
#: Candidates whose rates may differ by more than the intervals say: one in twenty is what 95 % means.
MAX_OUTSIDE = 1
#: A grid of eleven candidates, which takes some minutes.
GRID = (
    "--dataset", "synthetic:caltech256?n=600", "--device", "emulated:2000", "--grid", "--backends",
    "pillow,opencv,torchvision,dali", "--workers", "0,1,2", "--prefetch", "2", "--vary", "none", "--seconds", "2",
)  # fmt: skip
#: Rate and half the width of its interval (samples/s).
Rate = tuple[float, float]


def main(options: Namespace) -> bench.Result:
    moments = random.Random(5)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder, "whole")
        run_whole(whole)
        records = [
            compare(rates(whole), Path(folder, f"killed{number}"), moments)
            for number in range(1 if options.quick else 3)
        ]
    return bench.Result(all(record["holds"] for record in records), {"runs": records})


def compare(reference: dict[str, Rate], out: Path, moments: random.Random) -> dict[str, Any]:
    """Run one sweep that is killed and resumed, and compare it with the rates of the undisturbed one."""
    began = time.monotonic()
    kills = run_killed(out, moments)
    print(f"\nkilled {kills} times, ended after {time.monotonic() - began:.0f} s")
    again, twice = rates(out), measured_twice(outcomes(out))
    rows, ratios, outside = [], {}, 0
    for key, (rate, half) in sorted(reference.items(), key=lambda item: -item[1][0]):
        other, other_half = again.get(key, (math.nan, 0.0))
        within = abs(rate - other) <= math.hypot(half, other_half)
        outside += not within
        ratios[key] = other / rate
        rows.append([
            key, f"{rate:.0f}/s ±{100 * half / rate:.0f} %", f"{other:.0f}/s ±{100 * other_half / other:.0f} %",
            f"{other / rate:.3f}", bench.yes(within),
        ])  # fmt: skip
    print(bench.table(["candidate", "undisturbed", "killed and resumed", "ratio", "within"], rows))
    both = reference.keys() & again.keys()
    swapped = sum(
        apart(reference[one], reference[other]) == 1 and apart(again[one], again[other]) == -1
        for one, other in permutations(both, 2)
    )
    print(f"measured twice: {len(twice)}; pairs in another order beyond their intervals: {swapped}")
    holds = kills == KILLS and not twice and not swapped and outside <= MAX_OUTSIDE and set(again) == set(reference)
    return {
        "holds": holds, "kills": kills, "measured_twice": len(twice), "swapped_pairs": swapped,
        "outside_intervals": outside, "ratios": ratios,
    }  # fmt: skip


def command(out: Path, options: tuple[str, ...], *, resume: bool) -> list[str]:
    start = [sys.executable, "-m", "pipetune", "sweep"]
    return [*start, "--resume", str(out)] if resume else [*start, *options, "--out", str(out)]


def run_whole(out: Path, options: tuple[str, ...] = GRID) -> None:
    done = subprocess.run(command(out, options, resume=False), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the undisturbed sweep failed:\n{done.stdout}\n{done.stderr}")


def run_killed(out: Path, moments: random.Random, options: tuple[str, ...] = GRID, latest_s: float = LATEST_S) -> int:
    """Kill a sweep ten times, then let it end; returns how often it was running when it was killed.

    Args:
        out: its run folder.
        moments: draws the moments.
        options: of the sweep.
        latest_s: longest time from a start to a kill.
    """
    kills = 0
    while True:
        resume = (out / "run.json").exists()
        process = subprocess.Popen(
            command(out, options, resume=resume), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            wait_s = moments.uniform(SOONEST_S, latest_s) if kills < KILLS else None
            text, _ = process.communicate(timeout=wait_s)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            kills += 1
            continue
        if process.returncode != 0:
            raise SystemExit(f"a resumed sweep failed:\n{text}")
        return kills


def outcomes(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "outcomes.jsonl").read_text().splitlines()]


def measured_twice(rows: list[dict[str, Any]]) -> list[str]:
    """Attempts of a candidate that were measured more than once, blocks aside, which repeat on purpose."""
    seen = Counter(
        (row["role"] == "ceiling", json.dumps(row["candidate"]), row["attempt"], row["block"]) for row in rows
    )
    return [str(key) for key, count in seen.items() if count > 1]


def rates(out: Path) -> dict[str, Rate]:
    """Candidate -> its rate in the newest attempt."""
    result = json.loads((out / "result.json").read_text())
    return {
        row["key"]: (row["samples_per_s"], (row["ci95"][1] - row["ci95"][0]) / 2)
        for row in result["outcomes"]
        if "failure" not in row
    }


def apart(one: Rate, other: Rate) -> int:
    """1 or -1 where the first is certainly faster or slower, else 0."""
    if abs(one[0] - other[0]) <= one[1] + other[1]:
        return 0
    return 1 if one[0] > other[0] else -1


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
