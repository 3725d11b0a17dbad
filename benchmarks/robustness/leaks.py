"""Does anything remain when candidates end? Hundreds of short ones, most of them ended by force at a random moment.

Promise: within ten seconds of a candidate's end, however it ends, none of its processes, files or descriptors is left.

Counted are processes, entries in /dev/shm and temporary files, and in a process that goes on measuring file descriptors
and threads. Candidates are new processes and forks of a server. Ended by force are the child (SIGKILL), one of its
loader workers (SIGKILL), its fork server (SIGKILL), or the whole process that measures (SIGKILL, Ctrl-C, SIGTERM). The
moment is a random pause after the beginning of a random phase; the seed is fixed, so each run ends the same things.

A process that measures and is asked to stop (Ctrl-C, SIGTERM) lists what it has left itself before it exits. Each
backend is measured once beforehand: what its library makes once and keeps, such as torch's cache folder, is no leak.
``--quick`` takes about 3 minutes, the full run of 390 candidates about 25. With ``--ranks 4`` four ranks measure each
candidate at the same time, and one of those is ended by force as well.
"""

from __future__ import annotations

import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from benchmarks.robustness.forced_ends import (
    KINDS,
    candidate,
    draw_cases,
    kinds_of,
    measure_elsewhere,
    measure_here,
)
from benchmarks.robustness.left_behind import THINGS, Scene
from pipetune.measure.harness import measure
from pipetune.registry import BACKENDS, installed_version

TRIED = ("pillow", "opencv", "torchvision", "dali")


@dataclass(slots=True)
class Tally:
    """What happened to all candidates that should end in one way."""

    candidates: int = 0
    hit: int = 0
    """How often the signal reached a process; the other candidates had ended before."""
    ended: Counter[str] = field(default_factory=Counter)
    left: dict[str, list[str]] = field(default_factory=lambda: {thing: [] for thing in THINGS})


def run_all(count: int, folder: Path, ranks: int) -> tuple[dict[tuple[str, str], Tally], int]:
    """Run all cases; the tally of each kind of end and way to start, and how many processes there were."""
    prepared = bench.loader_setting(folder, str(bench.PHOTOS), seconds=0.3, image_size=64)
    prepared = replace(prepared, timeout_s=60.0, workload=replace(prepared.workload, ranks=ranks))
    (folder / "tmp").mkdir()
    scene = Scene(folder / "tmp")
    backends = [name for name in TRIED if installed_version(BACKENDS[name])]
    for backend in backends:
        measure(candidate(backend, 1), "candidate", prepared)
    scene.begin()
    tallies = {kind: Tally() for kind in kinds_of(ranks)}
    for number, case in enumerate(draw_cases(count, backends, ranks), 1):
        tally = tallies[case.kind, case.mode]
        how, hit, left = (measure_elsewhere if KINDS[case.kind] else measure_here)(case, prepared)
        tally.candidates += 1
        tally.hit += hit
        tally.ended[how] += 1
        for found in (left, scene.left()):
            for thing, names in found.items():
                tally.left[thing] += sorted(names)
                if names:
                    where = f"{case.kind} in {case.phase!r} of {case.candidate.key}, {case.mode}"
                    print(f"{number}: {where}: {thing} left: {names}")
        if number % 10 == 0:
            print(f"{number}/{count}", flush=True)
    return tallies, scene.processes_seen


def main(options: Namespace) -> bench.Result:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        ranks = int(options.ranks or 1)
        tallies, processes = run_all(39 if options.quick else 390, Path(folder), ranks)
    rows = []
    for (kind, mode), tally in tallies.items():
        ended = ", ".join(f"{how} {count}" for how, count in tally.ended.most_common())
        left = [str(len(tally.left[thing])) for thing in THINGS]
        rows.append([kind, mode, str(tally.candidates), str(tally.hit), *left, ended])
    print("\n" + bench.table(["end", "started as", "candidates", "hit", *THINGS, "outcomes"], rows))
    print(f"\n{processes} processes seen in {(time.monotonic() - began) / 60:.0f} minutes")
    ends = {
        f"{kind}, {mode}": {"candidates": t.candidates, "hit": t.hit, "ended": dict(t.ended), "left": t.left}
        for (kind, mode), t in tallies.items()
    }
    holds = not any(names for tally in tallies.values() for names in tally.left.values())
    return bench.Result(holds, {"ranks": ranks, "processes_seen": processes, "ends": ends})


if __name__ == "__main__":
    bench.run(main, __file__, __doc__, ranks="measure each candidate with so many ranks at the same time")
