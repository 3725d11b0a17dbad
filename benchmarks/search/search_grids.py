"""Measures whole grids on this machine, for ``search_regret.py`` to play searches on; makes no promise of its own.

Seven grids, of data set, accelerator rate and image size, such that the target is easy to just within reach on 2 cores,
and out of reach in the last one. Each candidate is measured in fresh processes by ``pipetune sweep --grid``, in random
order; then once more, in another order, what may be the cheapest sufficient one or the fastest, and a few random ones,
which show how measurements scatter. The full run takes about two hours, ``--quick`` (one small grid) 3 minutes. Grids
may be measured one at a time (``--only``): ``search_regret.py`` takes all files of that name.
"""

from __future__ import annotations

import random
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pipetune
from benchmarks import bench
from pipetune.measure.conditions import Conditions
from pipetune.measure.harness import measure as measure_one
from pipetune.records.sweep import Candidate, Outcome, to_dict
from pipetune.runs.run import Run
from pipetune.search.pooled import speed_of

TARGET = 0.9
SMALL = {
    "backends": ["pillow", "opencv", "simplejpeg", "jpeg-roi", "dali"], "workers": [0, 1, 2, 4], "prefetch": [2, 4],
}  # fmt: skip
WIDE = {**SMALL, "vary": ["loader", "transfer"]}
GRIDS: dict[str, dict[str, Any]] = {
    "caltech256-224-800": {"data": "caltech256", "rate": 800, "size": 224, **WIDE},
    "caltech256-224-2500": {"data": "caltech256", "rate": 2500, "size": 224, **WIDE},
    "caltech256-96-4000": {"data": "caltech256", "rate": 4000, "size": 96, **WIDE},
    "imagenet-224-600": {"data": "imagenet", "rate": 600, "size": 224, **WIDE},
    "imagenet-224-1600": {"data": "imagenet", "rate": 1600, "size": 224, **WIDE},
    "imagenet-real-160-900": {"data": "imagenet-real", "rate": 900, "size": 160, **WIDE},
    "imagenet-real-224-5000": {"data": "imagenet-real", "rate": 5000, "size": 224, **WIDE},
}
QUICK = {
    "quick-caltech256-224-800": {
        **GRIDS["caltech256-224-800"], **SMALL, "workers": [0, 1, 2], "prefetch": [2], "vary": "none",
    }
}  # fmt: skip
#: Measured once more: what reaches NEAR_RATE of the reachable goodput with at most NEAR_CORES times the fewest cores
#: plus MORE_CORES; and so many others.
NEAR_RATE, NEAR_CORES, MORE_CORES, OTHERS = 0.85, 1.25, 0.1, 6
IMAGES, SECONDS = 1500, 2.0


def main(options: Namespace) -> bench.Result:
    chosen = QUICK if options.quick else GRIDS
    if options.only:
        chosen = {name: chosen[name] for name in options.only.split(",")}
    grids = {}
    for name, asked in chosen.items():
        with tempfile.TemporaryDirectory(prefix="pipetune-grid-") as folder:
            run = measure(asked, Path(folder) / "run", seed=0)
            again = [] if options.quick else repeated(asked, Path(folder) / "again", in_question(run))
            grids[name] = merged(run, again)
        print(f"{name}: {len(grids[name]['candidates'])} candidates, {grids[name]['seconds']:.0f} s", flush=True)
        bench.write(options.json, "search_grids", True, {"grids": grids})  # each time: it takes long
    return bench.Result(True, {"grids": grids})


def measure(asked: Mapping[str, Any], out: Path, seed: int, *, grid: bool = True) -> Run:
    """Run one sweep."""
    return pipetune.sweep(
        f"synthetic:{asked['data']}?n={IMAGES}", device=f"emulated:{asked['rate']}", image_size=asked["size"],
        backends=asked["backends"], workers=asked["workers"], prefetch=asked["prefetch"], vary=asked.get("vary"),
        seconds=SECONDS, grid=grid, seed=seed, out=out, progress=False,
    )  # fmt: skip


def in_question(run: Run) -> list[Outcome]:
    """What may be the best of a grid, and a few other candidates, in random order."""
    ceiling = run.result["ceiling_samples_per_s"]
    found = {o.candidate: o for o in run.outcomes if o.measurement and o.role != "ceiling"}
    rates = {c: o.measurement.samples_per_s / ceiling for c, o in found.items() if o.measurement}
    reachable = min(TARGET, max(rates[candidate] for candidate in found))

    def cores(candidate: Candidate) -> float:
        measurement = found[candidate].measurement
        return (measurement.cores_used if measurement else None) or 0.0

    enough = [candidate for candidate in found if rates[candidate] >= reachable]
    least = min(cores(candidate) for candidate in enough)
    most = NEAR_CORES * least + MORE_CORES if reachable == TARGET else float("inf")
    near = [c for c in found if rates[c] >= NEAR_RATE * reachable and cores(c) <= most]
    draw = random.Random("again")
    others = [candidate for candidate in found if candidate not in near]
    chosen = near + draw.sample(others, min(OTHERS, len(others)))
    draw.shuffle(chosen)
    return [found[candidate] for candidate in chosen]


def setting_of(asked: Mapping[str, Any], folder: Path) -> Conditions:
    """In which single candidates of a grid are measured again."""
    return bench.loader_setting(
        folder, f"synthetic:{asked['data']}?n={IMAGES}", seconds=SECONDS, rate=asked["rate"], image_size=asked["size"],
    )  # fmt: skip


def repeated(asked: Mapping[str, Any], folder: Path, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Measure each once more."""
    folder.mkdir()
    setting = setting_of(asked, folder)
    return [measure_one(outcome.candidate, outcome.role, setting)[0] for outcome in outcomes]


def merged(run: Run, again: Sequence[Outcome]) -> dict[str, Any]:
    """A measured grid in the form that :class:`benchmarks.search.play.Replay` reads: as measured, nothing corrected."""
    rows: dict[str, dict[str, Any]] = {}
    for outcome in (*run.outcomes, *again):
        if outcome.role == "ceiling":
            continue
        row = rows.setdefault(
            outcome.candidate.key,
            {"key": outcome.candidate.key, "candidate": to_dict(outcome.candidate), "outcomes": []},
        )
        row["outcomes"].append(outcome)
    return {
        "cores": round(run.usable_cores), "space": run.info["space"],
        "seconds": run.result["seconds"] + sum(outcome.wall_s for outcome in again),
        "ceiling_samples_per_s": run.result["ceiling_samples_per_s"],
        "candidates": [_row(row) for row in rows.values()],
    }  # fmt: skip


def _row(row: dict[str, Any]) -> dict[str, Any]:
    outcomes = row.pop("outcomes")
    measured = [outcome.measurement for outcome in outcomes if outcome.measurement]
    return {
        **row,
        "samples_per_s": [m.samples_per_s for m in measured],
        "half": median((m.ci95[1] - m.samples_per_s) / m.samples_per_s for m in measured) if measured else 0.0,
        "cores_used": [m.cores_used or 0.0 for m in measured],
        "machine_speed": [speed_of(m) for m in measured],
        "pss_bytes": fmean(m.pss_bytes or 0 for m in measured) if measured else 0.0,
        "timed_s": fmean(m.timed_s for m in measured) if measured else 0.0,
        "wall_s": fmean(outcome.wall_s for outcome in outcomes),
    }


if __name__ == "__main__":
    bench.run(main, __file__, __doc__, only="grids, comma separated")
