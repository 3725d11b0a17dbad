"""Does the search find the cheapest sufficient candidate, in a small part of the time that measuring everything takes?

Promise, over at least a hundred machines on paper (4 to 128 cores; see ``worlds.py``) and over grids that were
really measured (``search_grids.py``), the search replayed on them with many seeds and run live:

1. Regret, the share of the reachable goodput (at most the target of 90 %) that the recommendation does not reach: at
   most 2 % in the median and 5 % in 95 of 100 cases.
2. At most 15 % of the grid's time in the median. (Grids of a few dozen candidates take more: one probe per decoder is a
   tenth of them. The table shows it.)
3. Whether the target can be reached at all is called right in at least 95 %.
4. It suffices with no more cores than the grid's cheapest sufficient candidate, but for 5 %, 0.15 cores or what the
   grid's own repetitions cannot tell (95 %), in at least 90 % of those cases in which any candidate suffices.

Live, what was recommended, the grid's fastest and its cheapest sufficient candidate are measured side by side, in
blocks of random order: the grid's own numbers were taken at another hour, and the best of many noisy ones is better
than it is.

Beside it, on the same worlds: random search and Optuna's TPE with a median pruner in the time that the search took, as
many workers as cores, the rules of two tuners, and the grid itself, which has to live with the same noise.

``--quick`` takes about a minute (40 machines, stored grids), the full run about 30, most of which are live sweeps.
"""

from __future__ import annotations

import importlib.util
import json
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from benchmarks.search import rivals as search_rivals
from benchmarks.search import search_grids
from benchmarks.search.play import GOAL, Paper, Played, Policy, Replay, World, judge, ours
from benchmarks.search.worlds import draw_machine
from pipetune.accelerator.named import emulated_spec
from pipetune.measure.harness import measure
from pipetune.records.sweep import Candidate

RESULTS = Path(__file__).resolve().parents[1] / "results"
OURS, LIVE = "pipetune", "measured grids, live"
#: Blocks in which a live recommendation is measured beside the grid's best.
LIVE_BLOCKS = 6
MEDIAN_REGRET, HIGH_REGRET, TIME_SHARE, CALLED, CORES = 0.02, 0.05, 0.15, 0.95, 0.90


def main() -> int:
    options = bench.arguments(__doc__, machines="number of machines on paper", grids="file of measured grids")
    machines = int(options.machines or (40 if options.quick else 150))
    rivals = dict(RIVALS)
    if importlib.util.find_spec("optuna") is None:
        rivals.pop(TPE)
        print("optuna is not installed, left out; pip install optuna")
    found: dict[str, dict[str, list[Played]]] = {}
    on_paper = [lambda seed=seed: Paper(*draw_machine(seed), seed) for seed in range(machines)]
    found[f"{machines} machines on paper"] = play(on_paper, rivals)
    grids = stored_grids(options.grids)
    if grids:
        seeds = 5 if options.quick else 20
        replayed = [lambda grid=grid, seed=seed: Replay(grid, seed) for grid in grids.values() for seed in range(seeds)]
        found[f"{len(grids)} measured grids, replayed {seeds} times"] = play(replayed, rivals)
    else:
        print("no measured grids: run benchmarks/search/search_grids.py")
    if grids and not options.quick:
        found[LIVE] = {OURS: [live(name, grid) for name, grid in grids.items()]}
    tables = {title: {name: summary(played) for name, played in results.items()} for title, results in found.items()}
    broken = []
    for title, rows in tables.items():
        print(f"\n{title}\n{table(rows)}")
        broken += [f"{title}: {text}" for text in misses(rows[OURS])]
    for text in broken:
        print(f"does not hold: {text}")
    holds = not broken and bool(grids)
    print(f"promise: {'holds' if holds else 'DOES NOT HOLD'}")
    bench.write(options.json, "search_regret", holds, {"tables": tables, "broken": broken})
    return 0 if holds else 1


def play(worlds: list[Callable[[], World]], rivals: dict[str, Callable[[float], Policy]]) -> dict[str, list[Played]]:
    """Everybody on every world; ``rivals`` are given the time that our search took there."""
    found: dict[str, list[Played]] = {OURS: [], **{name: [] for name in rivals}}
    for make in worlds:
        world = make()
        found[OURS].append(judge(world, ours))
        for name, policy in rivals.items():
            found[name].append(judge(make(), policy(world.clock_s)))
    return found


TPE = "Optuna TPE, median pruner, equal time"
RIVALS: dict[str, Callable[[float], Policy]] = {
    TPE: search_rivals.tree_parzen,
    "random search, equal time": search_rivals.random_search,
    "num_workers = cores": lambda _: search_rivals.workers_as_cores,
    "loadtune's rules": lambda _: search_rivals.few_rules,
    "Paddle's rule": lambda _: search_rivals.greedy_by_two,
    "the whole grid": lambda _: search_rivals.grid,
}


def stored_grids(file: str | None) -> dict[str, Any]:
    """The measured grids, the newest of each name, or those of a file."""
    files = [Path(file)] if file else [*RESULTS.glob("search_grids-*.json")]
    found = sorted((json.loads(path.read_text()) for path in files), key=lambda result: str(result["date"]))
    # Those of a quick run are too small to tell anything.
    return {name: grid for result in found for name, grid in result["grids"].items() if name in search_grids.GRIDS}


def live(name: str, grid: dict[str, Any]) -> Played:
    """A real sweep of the same space."""
    with tempfile.TemporaryDirectory(prefix="pipetune-live-") as folder:
        run = search_grids.measure(
            search_grids.GRIDS[name], Path(folder) / "run", seed=random.randrange(2**31), grid=False
        )
    outcome = next(o for o in reversed(run.outcomes) if o.candidate.key == run.recommended_key)
    world = Replay(grid, 0)
    world.clock_s = sum(o.wall_s for o in run.outcomes if o.role != "ceiling")
    world.measured = len(run.outcomes) - 1

    def policy(_: World) -> tuple[Candidate, bool]:
        return outcome.candidate, run.result["status"] == "target_met"

    truth = {candidate: found for candidate in world.everything() if (found := world.truth(candidate)) is not None}
    best = max(truth, key=lambda candidate: truth[candidate][0])
    enough = [candidate for candidate in truth if truth[candidate][0] >= GOAL.target]
    frugal = min(enough, key=lambda candidate: truth[candidate][1], default=best)
    shown = beside(search_grids.GRIDS[name], [outcome.candidate, best, frugal])
    regret, no_more = compared(*(shown[candidate] for candidate in (outcome.candidate, best, frugal)))
    played = replace(judge(world, policy), regret=regret, no_more_cores=no_more if enough else None)
    print(
        f"live, {name}: {_told(outcome.candidate, shown)}; the grid's fastest {_told(best, shown)}, its cheapest "
        f"sufficient {_told(frugal, shown)}; {played.candidates} measurements, {100 * played.time_share:.0f} % of the "
        f"grid's time, regret {100 * regret:.1f} %",
        flush=True,
    )
    return played


#: Share of the accelerator's rate, and cores, block by block.
Blocks = list[tuple[float, float]]


def _told(candidate: Candidate, shown: dict[Candidate, Blocks]) -> str:
    shares, cores = zip(*shown[candidate], strict=True)
    return f"{candidate.key} ({100 * median(shares):.0f} %, {median(cores):.2f} cores)"


def beside(asked: dict[str, Any], candidates: list[Candidate]) -> dict[Candidate, Blocks]:
    """Each candidate measured in blocks of random order."""
    found: dict[Candidate, Blocks] = {candidate: [] for candidate in candidates}
    with tempfile.TemporaryDirectory(prefix="pipetune-beside-") as folder:
        setting = bench.loader_setting(Path(folder), f"synthetic:{asked['data']}?n=1500", images=0, seconds=2.0)
        workload = replace(
            setting.workload, accelerator=emulated_spec(str(asked["rate"])), image_size=asked["size"]
        )  # fmt: skip
        for block in range(LIVE_BLOCKS):
            members = list(found)
            random.Random(block).shuffle(members)
            for candidate in members:
                m = measure(candidate, "candidate", replace(setting, workload=workload))[0].measurement
                found[candidate].append((m.samples_per_s / asked["rate"], m.cores_used or 0.0) if m else (0.0, 0.0))
    return found


def compared(recommended: Blocks, best: Blocks, frugal: Blocks) -> tuple[float, bool]:
    """Regret, in the median of the blocks, and whether the recommendation suffices with no more cores.

    More than the target is no better. What no longer suffices is no measure of what it takes.
    """
    shares = [
        min(GOAL.target, ours) / min(GOAL.target, theirs)
        for (ours, _), (theirs, _) in zip(recommended, best, strict=True)
        if theirs
    ]
    regret = max(0.0, 1 - median(shares or [1.0]))
    suffices, frugal_does = (median(share for share, _ in found) >= GOAL.target for found in (recommended, frugal))
    least = median(cores for _, cores in frugal)
    no_more = median(cores for _, cores in recommended) <= least + max(0.15, 0.05 * least)
    return regret, suffices and (no_more or not frugal_does)


def summary(played: list[Played]) -> dict[str, float]:
    """What the table shows."""

    def high(values: list[float], share: float) -> float:
        return sorted(values)[min(len(values) - 1, int(share * len(values)))]

    reached = [p.no_more_cores for p in played if p.no_more_cores is not None]
    regrets, times = [p.regret for p in played], [p.time_share for p in played]
    return {
        "regret_median": median(regrets), "regret_p95": high(regrets, 0.95), "regret_max": max(regrets),
        "time_median": median(times), "time_p90": high(times, 0.9),
        "called_right": sum(p.called_right for p in played) / len(played),
        "no_more_cores": fmean(reached) if reached else 1.0, "feasible": len(reached),
        "candidates_median": median(p.candidates for p in played), "worlds": len(played),
    }  # fmt: skip


def misses(row: dict[str, float]) -> list[str]:
    """What of the promise does not hold."""
    asked = (
        ("median regret", row["regret_median"] <= MEDIAN_REGRET, row["regret_median"]),
        ("95th percentile of regret", row["regret_p95"] <= HIGH_REGRET, row["regret_p95"]),
        ("median share of the grid's time", row["time_median"] <= TIME_SHARE, row["time_median"]),
        ("called right", row["called_right"] >= CALLED, row["called_right"]),
        ("no more cores", row["no_more_cores"] >= CORES, row["no_more_cores"]),
    )
    return [f"{name} is {100 * value:.1f} %" for name, holds, value in asked if not holds]


def table(rows: dict[str, dict[str, float]]) -> str:
    """One line per way to search."""
    columns = {
        "regret, median": "regret_median", "95 %": "regret_p95", "most": "regret_max", "time, median": "time_median",
        "90 %": "time_p90", "called right": "called_right", "no more cores": "no_more_cores",
    }  # fmt: skip
    cells = [
        [name, *(f"{100 * row[key]:.1f} %" for key in columns.values()), f"{row['candidates_median']:.0f}"]
        for name, row in rows.items()
    ]
    return bench.table(["search", *columns, "candidates"], cells)


if __name__ == "__main__":
    sys.exit(main())
