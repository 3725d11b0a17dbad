"""Is a sweep that is killed again and again as good as one that is left alone?

Promise: a sweep whose process is killed (SIGKILL) at ten random moments and resumed each time with ``--resume`` has
measured nothing twice, and its ranking is that of an uninterrupted sweep within the intervals of both: no two
candidates whose intervals are apart in both sweeps stand in another order, and the rates of a candidate differ by no
more than their 95 % intervals allow, for all but one candidate.

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
MAY_DIFFER = 1


#: A grid that takes some minutes.
GRID = (
    "--dataset", "synthetic:caltech256?n=600", "--device", "emulated:2000", "--grid", "--backends",
    "pillow,opencv,torchvision,dali", "--workers", "0,1,2", "--prefetch", "2", "--seconds", "2",
)  # fmt: skip


def command(out: Path, options: tuple[str, ...], *, resume: bool) -> list[str]:
    start = [sys.executable, "-m", "pipetune", "sweep"]
    return [*start, "--resume", str(out)] if resume else [*start, *options, "--out", str(out)]


def run_whole(out: Path, options: tuple[str, ...] = GRID) -> None:
    done = subprocess.run(command(out, options, resume=False), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the uninterrupted sweep failed:\n{done.stdout}\n{done.stderr}")


def run_killed(out: Path, moments: random.Random, options: tuple[str, ...] = GRID, latest_s: float = LATEST_S) -> int:
    """Kill it ten times, then let it end; returns how often it was really killed in the middle.

    Args:
        latest_s: until a kill, at most.
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
    """The same attempt of the same candidate more than once, outside of the blocks that are there for that."""
    seen = Counter(
        (row["role"] == "ceiling", json.dumps(row["candidate"]), row["attempt"], row["block"]) for row in rows
    )
    return [str(key) for key, count in seen.items() if count > 1]


def rates(out: Path) -> dict[str, tuple[float, float]]:
    """Candidate -> rate and half width of its interval, of its newest attempt."""
    result = json.loads((out / "result.json").read_text())
    return {
        row["key"]: (row["samples_per_s"], (row["ci95"][1] - row["ci95"][0]) / 2)
        for row in result["outcomes"]
        if "failure" not in row
    }


def apart(one: tuple[float, float], other: tuple[float, float]) -> int:
    """1 or -1 where the first is certainly faster or slower, else 0."""
    if abs(one[0] - other[0]) <= one[1] + other[1]:
        return 0
    return 1 if one[0] > other[0] else -1


def main() -> int:
    options = bench.arguments(__doc__)
    moments = random.Random(5)
    runs, holds, records = 1 if options.quick else 3, True, []
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder, "whole")
        run_whole(whole)
        reference = rates(whole)
        for number in range(runs):
            out = Path(folder, f"killed{number}")
            began = time.monotonic()
            kills = run_killed(out, moments)
            again, twice = rates(out), measured_twice(outcomes(out))
            rows = []
            for key, (rate, half) in sorted(reference.items(), key=lambda item: -item[1][0]):
                other, other_half = again.get(key, (math.nan, 0.0))
                rows.append((key, rate, half, other, other_half, abs(rate - other) <= math.hypot(half, other_half)))
            swapped = [
                pair
                for pair in permutations(reference, 2)
                if pair[0] in again and pair[1] in again
                and apart(reference[pair[0]], reference[pair[1]]) == 1 and apart(again[pair[0]], again[pair[1]]) == -1
            ]  # fmt: skip
            differ = sum(not row[-1] for row in rows)
            good = (
                kills == KILLS and not twice and not swapped and differ <= MAY_DIFFER and set(again) == set(reference)
            )
            holds = holds and good
            print(f"\nkilled {kills} times, ended after {time.monotonic() - began:.0f} s")
            print(bench.table(
                ["candidate", "left alone", "killed and resumed", "ratio", "within"],
                [[key, f"{rate:.0f}/s ±{100 * half / rate:.0f} %", f"{other:.0f}/s ±{100 * other_half / other:.0f} %",
                  f"{other / rate:.3f}", "yes" if within else "NO"]
                 for key, rate, half, other, other_half, within in rows],
            ))  # fmt: skip
            print(f"measured twice: {len(twice)}; pairs in another order beyond their intervals: {len(swapped)}")
            records.append({
                "kills": kills, "measured_twice": len(twice), "swapped_pairs": len(swapped),
                "outside_intervals": differ, "ratios": {key: other / rate for key, rate, _, other, _, _ in rows},
            })  # fmt: skip
    print("the promise holds" if holds else "THE PROMISE DOES NOT HOLD")
    bench.write(options.json, "resume", holds, {"runs": records})
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
