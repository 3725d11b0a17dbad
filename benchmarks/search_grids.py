"""Measures whole grids on this machine, for ``search_regret.py`` to play searches on. Makes no promise of its own.

Six grids, of data set, accelerator rate and image size, such that the target is out of reach, just within it and easy.
Each candidate is measured in fresh processes by ``pipetune sweep --grid``, once per repetition, in another random order
each time. The full run takes about 70 minutes, ``--quick`` (one small grid) 3. Grids may be measured one at a time
(``--only``): ``search_regret.py`` takes all files of that name.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pipetune
from benchmarks import bench
from pipetune.records import to_dict
from pipetune.runs.run import Run
from pipetune.search.known import at_present_speed

SMALL = {"backends": ["pillow", "opencv", "simplejpeg", "jpeg-roi", "dali"], "workers": [0, 1, 2, 4], "prefetch": [2]}
WIDE = {**SMALL, "vary": ["worker_kind", "transfer"]}
GRIDS: dict[str, dict[str, Any]] = {
    "caltech256-224-800": {"data": "caltech256", "rate": 800, "size": 224, **WIDE},
    "caltech256-224-2500": {"data": "caltech256", "rate": 2500, "size": 224, **WIDE},
    "caltech256-96-4000": {"data": "caltech256", "rate": 4000, "size": 96, **WIDE},
    "imagenet-224-600": {"data": "imagenet", "rate": 600, "size": 224, **WIDE},
    "imagenet-224-1600": {"data": "imagenet", "rate": 1600, "size": 224, **WIDE},
    "imagenet-real-160-900": {"data": "imagenet-real", "rate": 900, "size": 160, **WIDE},
}
QUICK = {"caltech256-224-800": {**GRIDS["caltech256-224-800"], **SMALL, "workers": [0, 1, 2], "vary": "none"}}
REPETITIONS = 2


def main() -> int:
    options = bench.arguments(__doc__, only="grids, comma separated", repetitions="of each candidate")
    chosen = QUICK if options.quick else GRIDS
    if options.only:
        chosen = {name: chosen[name] for name in options.only.split(",")}
    repetitions = int(options.repetitions or (1 if options.quick else REPETITIONS))
    grids = {}
    for name, asked in chosen.items():
        with tempfile.TemporaryDirectory(prefix="pipetune-grid-") as folder:
            runs = [measure(asked, Path(folder) / str(seed), seed) for seed in range(repetitions)]
            grids[name] = merged(runs)
        print(f"{name}: {len(grids[name]['candidates'])} candidates, {grids[name]['seconds']:.0f} s", flush=True)
        bench.write(options.json, "search_grids", True, {"repetitions": repetitions, "grids": grids})
    return 0


def measure(asked: Mapping[str, Any], out: Path, seed: int, *, grid: bool = True) -> Run:
    """One sweep."""
    return pipetune.sweep(
        f"synthetic:{asked['data']}?n=1500", device=f"emulated:{asked['rate']}", image_size=asked["size"],
        backends=asked["backends"], workers=asked["workers"], prefetch=asked["prefetch"], vary=asked.get("vary"),
        seconds=2.0, grid=grid, seed=seed, out=out, progress=False,
    )  # fmt: skip


def merged(runs: list[Run]) -> dict[str, Any]:
    """Repetitions of one grid as what :class:`benchmarks.search_play.Replay` reads."""
    rows: dict[str, dict[str, Any]] = {}
    # The machine changes its speed within the hour: all as they would have been at one.
    for outcome in at_present_speed([outcome for run in runs for outcome in run.outcomes]):
        if outcome.role == "ceiling":
            continue
        row = rows.setdefault(
            outcome.candidate.key,
            {"key": outcome.candidate.key, "candidate": to_dict(outcome.candidate), "outcomes": []},
        )
        row["outcomes"].append(outcome)
    first = runs[0].info
    return {
        "cores": round(runs[0].usable_cores), "space": first["space"],
        "seconds": sum(run.result["seconds"] for run in runs),
        "ceiling_samples_per_s": fmean(run.result["ceiling_samples_per_s"] for run in runs),
        "candidates": [_row(row) for row in rows.values()],
    }  # fmt: skip


def _row(row: dict[str, Any]) -> dict[str, Any]:
    outcomes = row.pop("outcomes")
    measured = [outcome.measurement for outcome in outcomes if outcome.measurement]
    return {
        **row,
        "samples_per_s": [m.samples_per_s for m in measured],
        "half": median((m.ci95[1] - m.samples_per_s) / m.samples_per_s for m in measured) if measured else 0.0,
        "cores_used": fmean(m.cores_used or 0.0 for m in measured) if measured else 0.0,
        "pss_bytes": fmean(m.pss_bytes or 0 for m in measured) if measured else 0.0,
        "timed_s": fmean(m.timed_s for m in measured) if measured else 0.0,
        "wall_s": fmean(outcome.wall_s for outcome in outcomes),
    }


if __name__ == "__main__":
    sys.exit(main())
