"""Does the recommendation stay the same when the search is interrupted, or the machine becomes slower meanwhile?

Promise: a search that is killed or disturbed recommends what an undisturbed one does, or states that it is uncertain.

1. A search whose process is killed (SIGKILL) at ten random moments and resumed each time measures nothing twice and
   recommends what the undisturbed search recommends, or one of the two lists the other's recommendation among its ties.
   The moments are spread over the whole search: each start lives for up to a quarter of the search's length.
2. When another process takes half of the CPU from the middle of the search on, the recommendation is the same, as
   above, or the result says that it is uncertain; and in any case it names the process. The table says which of both.

``--quick`` (one search of each kind) takes about 6 minutes, the full run (three) about 16.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from benchmarks.robustness.resume import KILLS, command, measured_twice, outcomes, run_killed, run_whole

#: Candidates far enough apart for one of them to be the best.
SEARCH = (
    "--dataset", "synthetic:caltech256?n=600", "--device", "emulated:1100", "--backends", "pillow,opencv,jpeg-roi,dali",
    "--workers", "0,1,2", "--prefetch", "2", "--vary", "none", "--seconds", "2",
)  # fmt: skip
_BUSY = "while True: pass"


def main(options: Namespace) -> bench.Result:
    runs, moments = 1 if options.quick else 3, random.Random(7)
    with tempfile.TemporaryDirectory(prefix="pipetune-stability-") as folder:
        whole = Path(folder, "whole")
        run_whole(whole, SEARCH)
        reference = result_of(whole)
        rows = [["undisturbed", key_of(reference), str(len(reference["outcomes"])), "", "", doubts_of(reference)]]
        records = [killed(Path(folder, f"killed{number}"), reference, moments, rows) for number in range(runs)]
        records += [disturbed(Path(folder, f"disturbed{number}"), reference, rows) for number in range(runs)]
    print(bench.table(["search", "recommended", "measurements", "same", "holds", "uncertainty"], rows))
    holds = all(record["holds"] for record in records)
    return bench.Result(holds, {"reference": key_of(reference), "searches": records})


def killed(out: Path, reference: Mapping[str, Any], moments: random.Random, rows: list[list[str]]) -> dict[str, Any]:
    """Run one search that is killed and resumed; adds its row to the table."""
    latest_s = sum(row["wall_s"] for row in reference["outcomes"]) / 4
    kills = run_killed(out, moments, SEARCH, latest_s)
    found, twice = result_of(out), measured_twice(outcomes(out))
    alike = same(found, reference)
    holds = kills == KILLS and not twice and alike
    rows.append(row_of(f"killed {kills} times", found, alike, holds))
    return {
        "kind": "killed", "holds": holds, "recommended": key_of(found), "same": alike, "kills": kills,
        "measured_twice": twice,
    }  # fmt: skip


def disturbed(out: Path, reference: Mapping[str, Any], rows: list[list[str]]) -> dict[str, Any]:
    """Run one search that loses half of the CPU; adds its row to the table."""
    found = run_disturbed(out, after=len(reference["outcomes"]) // 2)
    alike, named = same(found, reference), "python" in doubts_of(found)
    holds = named and (alike or bool(found["doubts"]))
    rows.append(row_of("half of the CPU taken", found, alike, holds))
    return {
        "kind": "disturbed", "holds": holds, "recommended": key_of(found), "same": alike, "doubts": found["doubts"],
    }  # fmt: skip


def run_disturbed(out: Path, after: int) -> dict[str, Any]:
    """A sweep next to which, after so many candidates, one process per core does nothing but compute."""
    process = subprocess.Popen(
        command(out, SEARCH, resume=False), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    busy: list[subprocess.Popen[bytes]] = []
    try:
        while process.poll() is None:
            if not busy and _measured(out) > after:
                busy = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in os.sched_getaffinity(0)]
            try:
                process.wait(0.5)
            except subprocess.TimeoutExpired:
                continue
    finally:
        for other in busy:
            other.kill()
            other.wait()
    if process.returncode != 0:
        raise SystemExit(f"the disturbed sweep failed:\n{process.stdout.read() if process.stdout else ''}")
    return result_of(out)


def _measured(out: Path) -> int:
    file = out / "outcomes.jsonl"
    return file.read_text().count("\n") if file.exists() else 0


def result_of(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "result.json").read_text())
    return found


def key_of(result: Mapping[str, Any]) -> str:
    return str(result["recommended"]["key"])


def same(found: Mapping[str, Any], reference: Mapping[str, Any]) -> bool:
    """Whether both recommend the same, or one lists the other's recommendation among its ties."""
    keys = key_of(found), key_of(reference)
    return keys[0] == keys[1] or keys[0] in reference["ties"] or keys[1] in found["ties"]


def row_of(search: str, found: dict[str, Any], alike: bool, holds: bool) -> list[str]:
    return [search, key_of(found), f"{len(found['outcomes'])}", bench.yes(alike), bench.yes(holds), doubts_of(found)]


def doubts_of(result: Mapping[str, Any]) -> str:
    return "; ".join(result["doubts"])


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
