"""Is an edit recommended only where it helps, and is what helps recommended?

Promise: a change of settings is recommended only where it gains or saves, and a clear gain is recommended.

Sweeps on paper, whose repeats scatter by 2 to 30 % (standard deviation). The promise holds where

1. no setting changes the rate, or every other one is slower: an edit is recommended in at most 5 % of sweeps;
2. the best setting gains 1.3 times or more and repeats scatter by up to 5 %: it is recommended in at least 95 % of
   sweeps, and the true gain lies within the stated interval in at least 90 %.

A sweep of a user's script (candidates take turns in one start, and fresh starts confirm) and one of a loader of the
user's own are played in full by pipetune's own search, with the noise estimated as a sweep does. No process is started.
``--quick`` plays 60 sweeps of each kind in place of 300, in three minutes.
"""

from __future__ import annotations

import math
import random
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from pipetune import search
from pipetune.candidates.space import Space
from pipetune.records.edit import Edit
from pipetune.records.sweep import Candidate, Goal, Outcome
from pipetune.registry import SCRIPT, USER
from pipetune.search.effort import DEFAULT_EFFORT
from pipetune.search.pooled import expected_felt_frac, repetitions
from pipetune.stats.intervals import Z95
from pipetune.stats.noise import run_noise
from tests.fakes import outcome as fake_outcome

GOAL = Goal(target=0.9, metric="goodput", effort=DEFAULT_EFFORT)
CEILING, BASE_RATE = 1000.0, 400.0
NOISES = (0.02, 0.05, 0.10, 0.30)
MOST_FALSE, LEAST_FOUND, LEAST_COVERED = 0.05, 0.95, 0.90
#: Relative standard error within a run, per standard deviation between runs.
WITHIN = 0.3
START_S, MEASURE_S = 4.0, 6.0
#: Of a loader that waits: cores that it uses, and the scatter of the machine's speed beside other programs.
WAITING_CORES, LOAD = 0.1, 0.3


def space_of(*, is_script: bool) -> Space:
    own = Candidate(
        backend=SCRIPT.name if is_script else "own", num_workers=2, prefetch_depth=2, batch_size=16, loader=USER
    )
    return Space(
        backends=(own.backend,),
        workers=(1, 2, 3, 4),
        prefetch=(2, 4),
        batch_size=16,
        pin_memory=False,
        untuned=own,
        confirm_alone=is_script,
        alternates=is_script,
        usable_cores=4.0,
    )


def play(
    space: Space, gain_of: Callable[[Candidate], float], noise: float, seed: int, *, load: float | None = None
) -> tuple[Edit | None, float, int]:
    """One sweep: the edit that is recommended (``None``: none is), its time (s), and its measurements.

    Args:
        load: scatter of the machine's speed, which the loader does not follow because it waits; ``None``: it computes,
            and rates scatter 2.5 times as much as the speed.
    """
    draw, outcomes, seconds = random.Random(seed), list[Outcome](), 0.0
    base = search.baseline(space)
    while (proposal := search.propose(space, outcomes, GOAL, seed)) is not None:
        rate = BASE_RATE * gain_of(proposal.candidate) * math.exp(draw.gauss(0, noise))
        within = WITHIN * noise
        felt = expected_felt_frac(outcomes, proposal.candidate)
        known = run_noise((one.measurement for one in outcomes), repetitions(outcomes), felt)
        half = Z95 * math.hypot(within, known)
        fresh = search.has_own_start(space, outcomes, GOAL, proposal.candidate, proposal.block)
        seconds += MEASURE_S + START_S * fresh
        speed = 100 * math.exp(draw.gauss(0, noise / 2.5 if load is None else load))
        cores = 1.0 if load is None else WAITING_CORES
        made = fake_outcome(
            rate=rate,
            ceiling=CEILING,
            ci95=(rate * max(0.0, 1 - half), rate * (1 + half)),
            goodput_ci95=(rate / CEILING * max(0.0, 1 - half), rate / CEILING * (1 + half)),
            within_error_frac=within,
            cores_used=cores,
            cpu_s_per_1000_samples=1000 * cores / rate,
            machine_speed_before=speed,
            machine_speed_after=speed,
            accelerator_idle_frac=max(0.0, 1 - rate / CEILING),
            pss_bytes=round(2**29 * math.exp(draw.gauss(0, 0.05))),
        )
        role = "baseline" if proposal.candidate == base else "candidate"
        outcomes.append(
            replace(
                made, candidate=proposal.candidate, block=proposal.block, role=role, forked=not fresh, wall_s=MEASURE_S
            )
        )
        if len(outcomes) > 200:
            raise RuntimeError("the search does not end")
    found = search.recommend(outcomes, GOAL, space)
    is_edit = found is not None and found.choice.outcome.candidate != base
    return found.edit if found is not None and is_edit else None, seconds, len(outcomes)


def nothing(candidate: Candidate) -> float:
    """No setting changes the rate."""
    return 1.0


def harm(candidate: Candidate) -> float:
    """Every other setting is slower."""
    return 1.0 if (candidate.num_workers, candidate.prefetch_depth) == (2, 2) else 0.93


def gains(factor: float) -> Callable[[Candidate], float]:
    """Three workers gain so much, fewer and more gain less."""
    return lambda candidate: {1: 0.7, 2: 1.0, 3: factor, 4: 1 + (factor - 1) * 0.9}[candidate.num_workers]


def main(options: Namespace) -> bench.Result:
    sweeps = 60 if options.quick else 300
    worlds = {
        "nothing helps": nothing,
        "edits harm": harm,
        "1.1 times": gains(1.1),
        "1.3 times": gains(1.3),
        "2 times": gains(2.0),
    }
    rows, broken, tables = [], list[str](), list[dict[str, object]]()
    for is_script, load in ((True, None), (True, LOAD), (False, None)):
        space = space_of(is_script=is_script)
        for name, gain_of in worlds.items():
            for noise in NOISES:
                played = [play(space, gain_of, noise, seed, load=load) for seed in range(sweeps)]
                edits = [edit for edit, _, _ in played if edit is not None]
                share = len(edits) / sweeps
                inside = [edit.gain_ci95[0] <= truth_of(edit, space, gain_of) <= edit.gain_ci95[1] for edit in edits]
                covered = sum(inside) / len(inside) if inside else None
                seconds = sorted(seconds for _, seconds, _ in played)
                kind = (
                    "own loader" if not is_script else "script" if load is None else "script that waits, beside others"
                )
                what = f"{kind}, {name}, repeats scatter by {100 * noise:.0f} %"
                median_s = seconds[len(seconds) // 2]
                tables.append({"what": what, "noise": noise, "edits": share, "covered": covered, "median_s": median_s})
                rows.append(
                    [
                        what,
                        f"{100 * share:.1f} %",
                        "-" if covered is None else f"{100 * covered:.0f} %",
                        f"{median_s:.0f} s",
                        f"{seconds[-1]:.0f} s",
                    ]
                )
                if gain_of in (nothing, harm) and share > MOST_FALSE:
                    broken.append(f"{what}: an edit in {100 * share:.1f} %")
                if name in ("1.3 times", "2 times") and noise <= 0.05:
                    if share < LEAST_FOUND:
                        broken.append(f"{what}: recommended in {100 * share:.1f} %")
                    if covered is not None and covered < LEAST_COVERED:
                        broken.append(f"{what}: the truth is inside in {100 * covered:.0f} %")
    print(bench.table(["sweeps", "an edit", "truth inside", "time, median", "most"], rows))
    for text in broken:
        print(f"does not hold: {text}")
    return bench.Result(not broken, {"rows": tables, "broken": broken})


def truth_of(edit: Edit, space: Space, gain_of: Callable[[Candidate], float]) -> float:
    candidate = next(one for one in space.grid() if one.key == edit.key)
    return gain_of(candidate)


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
