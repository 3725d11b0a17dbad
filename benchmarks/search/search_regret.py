"""Does the search find the cheapest sufficient candidate, in a small part of the time that measuring everything takes?

Promise: the search recommends a cheapest sufficient candidate in 15 % of the time that measuring the whole grid takes.

It is played over at least a hundred machines on paper (4 to 128 cores; see ``worlds.py``) and over grids that were
really measured (``search_grids.py``), replayed with many seeds and run live. The promise holds where

1. regret, the share of the reachable goodput (at most the target of 90 %) that the recommendation does not reach, is at
   most 2 % in the median and 5 % in 95 of 100 cases;
2. the search takes at most 15 % of the grid's time in the median (grids of a few dozen candidates take more: one probe
   per decoder is a tenth of them; the table shows it);
3. whether the target can be reached at all is stated correctly in at least 95 %;
4. with ``--effort thorough``, the recommendation suffices with no more cores than the grid's cheapest sufficient
   candidate, but for 5 %, 0.15 cores or what the grid's own repeats cannot separate (95 %), in at least 90 % of the
   cases in which a candidate suffices; with the default effort it may use one core or a tenth more, which that does not
   look for.

Live, what was recommended, the grid's fastest and its cheapest sufficient candidate are measured side by side, in
blocks of random order, and everything but the time is judged by these blocks: the grid's own numbers were taken on
another day, and the best of many noisy ones is better than it is. The target counts as reached where every block
reaches it, as missed where none does or the candidate failed in one (the interval from the least to the greatest of six
covers the median in 97 % of the cases, whatever their distribution). Otherwise the blocks do not decide it; such cases
are counted apart and are neither right nor wrong.

Compared with, on the same worlds: random search and Optuna's TPE with a median pruner in the time that the search took,
as many workers as cores, the rules of two tuners, and the grid itself, which suffers from the same noise.

``--quick`` takes about a minute (40 machines, stored grids), the full run about 30, most of which are live sweeps.
"""

from __future__ import annotations

import importlib.util
import json
import random
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from benchmarks.search import rivals, search_grids
from benchmarks.search.play import GOAL, Paper, Played, Policy, Replay, World, judge, ours, thorough
from benchmarks.search.worlds import draw_machine
from pipetune.measure.harness import measure
from pipetune.records.sweep import Candidate
from pipetune.search.effort import EFFORTS

OURS, SEARCHED, LIVE = "pipetune", "pipetune, thorough", "measured grids, live"
#: Blocks in which a live recommendation is measured together with the grid's best.
LIVE_BLOCKS = 6
MEDIAN_REGRET, HIGH_REGRET, TIME_SHARE, STATED, CORES = 0.02, 0.05, 0.15, 0.95, 0.90
TPE = "Optuna TPE, median pruner, equal time"
#: Other ways to search; each is given the time that pipetune's search took (s).
RIVALS: dict[str, Callable[[float], Policy]] = {
    TPE: rivals.tree_parzen,
    "random search, equal time": rivals.random_search,
    "num_workers = cores": lambda _: rivals.workers_as_cores,
    "loadtune's rules": lambda _: rivals.few_rules,
    "Paddle's rule": lambda _: rivals.greedy_by_two,
    "the whole grid": lambda _: rivals.grid,
}


def main(options: Namespace) -> bench.Result:
    machines = int(options.machines or (40 if options.quick else 150))
    others = dict(RIVALS)
    if importlib.util.find_spec("optuna") is None:
        others.pop(TPE)
        print("optuna is not installed, left out; pip install optuna")
    found: dict[str, dict[str, list[Played]]] = {}
    on_paper = [partial(paper, seed) for seed in range(machines)]
    found[f"{machines} machines on paper"] = play(on_paper, others)
    grids = stored_grids(options.grids)
    if grids:
        seeds = 5 if options.quick else 20
        replayed = [partial(Replay, grid, seed) for grid in grids.values() for seed in range(seeds)]
        found[f"{len(grids)} measured grids, replayed {seeds} times"] = play(replayed, others)
    else:
        print("no measured grids: run benchmarks/search/search_grids.py")
    if grids and not options.quick:
        found[LIVE] = {OURS: [live(name, grid) for name, grid in grids.items()]}
    tables = {title: {name: summary(played) for name, played in results.items()} for title, results in found.items()}
    broken = []
    for title, rows in tables.items():
        print(f"\n{title}\n{table(rows)}")
        broken += [
            f"{title}, {name}: {text}" for name in (OURS, SEARCHED) if name in rows for text in misses(rows[name])
        ]
    for text in broken:
        print(f"does not hold: {text}")
    return bench.Result(not broken and bool(grids), {"tables": tables, "broken": broken})


def paper(seed: int) -> World:
    return Paper(*draw_machine(seed), seed)


def play(
    worlds: Sequence[Callable[[], World]], others: dict[str, Callable[[float], Policy]]
) -> dict[str, list[Played]]:  # fmt: skip
    """Play every search on every world; ``others`` get the time that pipetune's search took there."""
    found: dict[str, list[Played]] = {OURS: [], SEARCHED: [], **{name: [] for name in others}}
    for make in worlds:
        world = make()
        found[OURS].append(judge(world, ours, GOAL.effort))
        found[SEARCHED].append(judge(make(), thorough))
        for name, policy in others.items():
            found[name].append(judge(make(), policy(world.clock_s)))
    return found


def stored_grids(file: str | None) -> dict[str, Any]:
    """The measured grids, the newest of each name, or those of a file."""
    files = [Path(file)] if file else [*bench.RESULTS.glob("search_grids-*.json")]
    found = sorted((json.loads(path.read_text()) for path in files), key=lambda result: str(result["date"]))
    # Those of a quick run are too small to show anything.
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
    shown = side_by_side(search_grids.GRIDS[name], [outcome.candidate, best, frugal])
    stated = run.result["status"] == "target_met"
    played = judged_by_blocks(judge(world, policy, GOAL.effort), stated, shown, outcome.candidate)
    recommended, fastest, cheapest = (_described(candidate, shown) for candidate in (outcome.candidate, best, frugal))
    print(
        f"live, {name}: {recommended}, stated {'to suffice' if stated else 'not to suffice'}; "
        f"the grid's fastest {fastest}, its cheapest sufficient {cheapest}; "
        f"{played.candidates} measurements, {100 * played.time_share:.0f} % of the grid's time, "
        f"regret {100 * played.regret:.1f} %; stated correctly: {_YES[played.called_right]}, "
        f"cores within the effort: {_YES[played.near_cores]}",
        flush=True,
    )
    return played


#: Share of the accelerator's rate, and cores, block by block.
Blocks = list[tuple[float, float]]
_YES = {True: "yes", False: "no", None: "not decided by the blocks, or nothing suffices"}


def _described(candidate: Candidate, shown: dict[Candidate, Blocks]) -> str:
    shares, cores = zip(*shown[candidate], strict=True)
    return f"{candidate.key} ({100 * median(shares):.0f} %, {median(cores):.2f} cores)"


def side_by_side(asked: dict[str, Any], candidates: list[Candidate]) -> dict[Candidate, Blocks]:
    """Measure each candidate in blocks of random order."""
    found: dict[Candidate, Blocks] = {candidate: [] for candidate in candidates}
    with tempfile.TemporaryDirectory(prefix="pipetune-blocks-") as folder:
        setting = search_grids.setting_of(asked, Path(folder))
        for block in range(LIVE_BLOCKS):
            members = list(found)
            random.Random(block).shuffle(members)
            for candidate in members:
                m = measure(candidate, "candidate", setting)[0].measurement
                found[candidate].append((m.samples_per_s / asked["rate"], m.cores_used or 0.0) if m else (0.0, 0.0))
    return found


def reached(found: Blocks) -> bool | None:
    """Whether a candidate reaches the target: every block does, or none; ``None``: the blocks do not decide it.

    One that failed in a block does not reach it.
    """
    if not all(share for share, _ in found):
        return False
    blocks = {share >= GOAL.target for share, _ in found}
    return blocks.pop() if len(blocks) == 1 else None


def judged_by_blocks(played: Played, stated: bool, shown: dict[Candidate, Blocks], chosen: Candidate) -> Played:
    """Judge a live recommendation by what was measured side by side with it.

    Regret is against the fastest of them, in the median of the blocks; more than the target counts as the target.

    Args:
        played: the same, judged by the stored grid; its time and number of candidates stay.
        stated: whether the sweep states that the target is reached.
        chosen: the recommendation.
    """
    fastest = max(shown.values(), key=lambda blocks: median(share for share, _ in blocks))
    shares = [
        min(GOAL.target, ours) / min(GOAL.target, theirs)
        for (ours, _), (theirs, _) in zip(shown[chosen], fastest, strict=True)
        if theirs
    ]
    found = [reached(blocks) for blocks in shown.values()]
    attainable = True if True in found else None if None in found else False
    no_more = near = None
    if True in found and (suffices := reached(shown[chosen])) is not None:
        used = median(cores for _, cores in shown[chosen])
        least = min(median(cores for _, cores in blocks) for blocks in shown.values() if reached(blocks))
        allowed = EFFORTS[GOAL.effort]
        no_more = suffices and used <= least + max(0.15, 0.05 * least)
        near = suffices and used <= least + max(0.15, 0.05 * least, allowed.least_cores, allowed.least_share * used)
    return replace(
        played, regret=max(0.0, 1 - median(shares or [1.0])),
        called_right=None if attainable is None else stated == attainable, no_more_cores=no_more, near_cores=near,
    )  # fmt: skip


def summary(played: list[Played]) -> dict[str, float]:
    """What the table shows."""

    def high(values: list[float], share: float) -> float:
        return sorted(values)[min(len(values) - 1, int(share * len(values)))]

    no_more = [p.no_more_cores for p in played if p.no_more_cores is not None]
    right = [p.called_right for p in played if p.called_right is not None]
    near = [p.near_cores for p in played if p.near_cores is not None]
    regrets, times = [p.regret for p in played], [p.time_share for p in played]
    return {
        "regret_median": median(regrets), "regret_p95": high(regrets, 0.95), "regret_max": max(regrets),
        "time_median": median(times), "time_p90": high(times, 0.9),
        "called_right": fmean(right) if right else 1.0, "undecided": len(played) - len(right),
        "no_more_cores": fmean(no_more) if no_more else 1.0, "feasible": len(no_more),
        "near_cores": fmean(near) if near else 1.0,
        "candidates_median": median(p.candidates for p in played), "worlds": len(played),
    }  # fmt: skip


def misses(row: dict[str, float]) -> list[str]:
    """What of the promise does not hold."""
    asked = (
        ("median regret", row["regret_median"] <= MEDIAN_REGRET, row["regret_median"]),
        ("95th percentile of regret", row["regret_p95"] <= HIGH_REGRET, row["regret_p95"]),
        ("median share of the grid's time", row["time_median"] <= TIME_SHARE, row["time_median"]),
        ("stated correctly", row["called_right"] >= STATED, row["called_right"]),
        ("no more cores than the effort looks for", row["near_cores"] >= CORES, row["near_cores"]),
    )
    return [f"{name} is {100 * value:.1f} %" for name, holds, value in asked if not holds]


def table(rows: dict[str, dict[str, float]]) -> str:
    """One line per way to search."""
    columns = {
        "regret, median": "regret_median", "95 %": "regret_p95", "most": "regret_max", "time, median": "time_median",
        "90 %": "time_p90", "stated correctly": "called_right", "no more cores": "no_more_cores",
        "or what its effort allows": "near_cores",
    }  # fmt: skip
    cells = [
        [
            name,
            *(f"{100 * row[key]:.1f} %" for key in columns.values()),
            f"{row['candidates_median']:.0f}",
            f"{row['undecided']:.0f}",
        ]
        for name, row in rows.items()
    ]
    return bench.table(["search", *columns, "candidates", "not decided"], cells)


if __name__ == "__main__":
    bench.run(main, __file__, __doc__, machines="number of machines on paper", grids="file of measured grids")
