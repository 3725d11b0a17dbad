"""Is the named cause the right one? Labelled jobs that really run, judged from outside by ``pipetune watch --once``.

Promise: of at least 24 jobs with a known cause none gets a wrong one, and at most one in ten stays undetermined.

Fifteen of them have no accelerator that can be seen, and most of these no loader either: threads and processes of the
script's own, decoding or Python in the loop itself, checkpoints, evaluations, and some that only train (``unseen.py``).

The jobs are in ``jobs.py``; each runs alone, in a process group and a temporary folder of its own, and is ended by
force. A slow disk and a CPU quota are control groups made for the job; where this machine allows none, the jobs that
need one are left out and counted. A label is true on an undisturbed machine: where other processes used more than a
quarter of a core while a job was watched, it runs again, whatever its diagnosis, and is not judged if that does not
end. Next to each diagnosis stands what the rules of SageMaker Debugger and xprof state of the same window;
``other_rules.py`` says how they are judged. Last comes how far the time that the diagnosis blames on the input is from
what the job itself measured: its loop records when it asked for each batch and when it got it.

``--quick`` runs 25 jobs once in about 10 minutes, the full run all 45 twice in about 50.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from benchmarks.watch.jobs import DISK_LIMIT, JOBS, Job
from benchmarks.watch.loops import PHOTOS, STEP
from benchmarks.watch.other_rules import RIGHT, SILENT, WRONG, Observer, outcome, sagemaker, xprof
from benchmarks.watch.surroundings import Neighbours, Unfit, adopt_orphans, join, limits, started
from pipetune.datasets.open_dataset import open_dataset
from pipetune.diagnosis import causes
from pipetune.machine.proc import tree_pids

MIN_JOBS, MAX_UNDETERMINED = 24, 0.1
#: Cores that other processes may use while a job is watched; how often a job is tried; pause between two tries (s).
MAX_FOREIGN_CORES, ATTEMPTS, PAUSE_S = 0.25, 3, 10.0
UNDETERMINED = "undetermined"
#: Causes that keep a batch from coming.
INPUT = (
    causes.CPU_DECODE, causes.CPU_STARVED, causes.DISK, causes.NETWORK, causes.NO_WORKERS, causes.WORKER_START,
)  # fmt: skip
WATCH = [sys.executable, "-m", "pipetune", "watch"]
_PROGRAM = str(Path(__file__).resolve().parent / "jobs.py")
#: A job that has not done three steps by then never will (s).
_START_LIMIT_S = 90.0


def judge(pid: int, seconds: float) -> dict[str, Any]:
    """The window of ``pipetune watch --once``."""
    command = [*WATCH, "--once", "--json", "--pid", str(pid), "--window", f"{seconds:g}s"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    window = next((line for line in lines if line["kind"] == "window"), None)
    if window is None:
        raise RuntimeError(f"watch ended with {done.returncode} and no window: {done.stderr.strip()[-500:]}")
    return window


def run_job(job: Job, seed: int, window_s: float) -> dict[str, Any]:
    """One job from its start to its end.

    Raises:
        Unfit: it cannot run here.
        RuntimeError: it ended by itself, or did not begin to train.
    """
    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="pipetune-watch-")))
        groups = held.enter_context(limits(job.needs, folder))
        limit_s = _START_LIMIT_S + job.settle_s + window_s + 60
        # At the speed of a slow disk, importing torch can take minutes: such a job is limited once it trains.
        later = job.needs == DISK_LIMIT

        def start(name: str, within: Sequence[Path] = (), launcher: Sequence[str] = ()) -> subprocess.Popen[bytes]:
            program = [_PROGRAM, name, "--folder", str(folder), "--seed", str(seed), "--seconds", f"{limit_s:.0f}"]
            return held.enter_context(started([sys.executable, *launcher, *program], folder, within))

        for name in job.beside:
            if name == "server":
                start(name)
        launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(job.ranks))
        process = start(job.name, () if later else groups, launcher if job.ranks > 1 else ())
        wait_for_steps(process, folder, job)
        for group in groups if later else ():
            join(group, tree_pids(process.pid))
        for name in job.beside:
            if name != "server":
                start(name)
        for pid in tree_pids(process.pid) if job.nice else ():
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, pid, job.nice)
        time.sleep(job.settle_s)
        neighbours = Neighbours()
        with Observer(process.pid, lambda: read_steps(folder)) as observer:
            window = judge(process.pid, window_s)
        foreign_cores = neighbours.cores()
        if process.poll() is not None:
            raise RuntimeError(f"{job.name} ended by itself: {errors_of(folder)}")
    seen = observer.seen
    row = conclude(job, window, sagemaker(seen), xprof(seen))
    exact = {"exact_input_frac": seen.input_frac, "exact_other_frac": seen.other_frac}
    return {"job": job.name, "seed": seed, "foreign_cores": foreign_cores, **exact, **row}


def conclude(job: Job, window: dict[str, Any], rules: list[str], framework: list[str]) -> dict[str, Any]:
    """The row of one job in the result."""
    worst = window["verdicts"][0]
    cause = worst["cause"]
    right = cause in job.accepted
    if job.ranks > 1 and right:
        rest = [verdict["cause"] for verdict in window["verdicts"][1:]]
        right = worst["rank"] == 1 and rest == [causes.COMMUNICATION]
    return {
        "accepted": list(job.accepted),
        "accelerator": job.accelerator,
        "cause": cause,
        "outcome": RIGHT if right else UNDETERMINED if cause == causes.UNDETERMINED else WRONG,
        "confidence": worst["confidence"],
        "share": next((share["share"] for share in worst["shares"] if share["cause"] == cause), None),
        "lost_frac": worst["lost_frac"],
        "source": worst["source"],
        "shares": worst["shares"],
        "input_frac": (worst["lost_frac"] or 0.0) * sum(s["share"] for s in worst["shares"] if s["cause"] in INPUT),
        "others": [{"rank": verdict["rank"], "cause": verdict["cause"]} for verdict in window["verdicts"][1:]],
        "own_core_frac": window["own_core_frac"],
        "sagemaker": rules,
        "sagemaker_outcome": outcome(rules, job.accepted),
        "xprof": framework,
        "xprof_outcome": outcome(framework, job.accepted),
    }


def wait_for_steps(process: subprocess.Popen[bytes], folder: Path, job: Job) -> None:
    until_s = time.monotonic() + _START_LIMIT_S
    while True:
        steps = read_steps(folder)
        if len(steps) == job.ranks and min(map(len, steps)) >= 3:
            return
        if process.poll() is not None or time.monotonic() > until_s:
            raise RuntimeError(f"{job.name} did not begin to train: {errors_of(folder)}")
        time.sleep(0.1)


def read_steps(folder: Path) -> list[list[tuple[int, int]]]:
    """Per rank, when each batch was asked for and when it arrived (ns)."""
    texts = [path.read_bytes() for path in sorted(folder.glob("steps-*"))]
    return [list(STEP.iter_unpack(text[: len(text) // STEP.size * STEP.size])) for text in texts]


def errors_of(folder: Path) -> str:
    return (folder / "errors").read_text(errors="replace").strip()[-800:]


def show(rows: list[dict[str, Any]]) -> None:
    """A line per job, what was named for each label, and the totals."""
    lines = []
    for row in rows:
        share = "" if row["share"] is None else f"{row['share']:.0%}"
        lost = "" if row["lost_frac"] is None else f"{row['lost_frac']:.0%}"
        others = [f"{'+'.join(row[name]) or '-'}: {row[f'{name}_outcome']}" for name in ("sagemaker", "xprof")]
        lines.append(
            [row["job"], row["accepted"][0], row["cause"], share, row["confidence"], lost, row["outcome"], *others]
        )
    headings = ["job", "label", "watch", "share", "confidence", "lost", "", "SageMaker Debugger", "xprof"]
    print("\n" + bench.table(headings, lines))
    named = Counter((row["accepted"][0], row["cause"]) for row in rows)
    labels, found = sorted({pair[0] for pair in named}), sorted({pair[1] for pair in named})
    counts = [[label, *(str(named[label, cause] or "") for cause in found)] for label in labels]
    print("\n" + bench.table(["label \\ watch", *found], counts))
    totals = [
        [title, *(str(sum(row[key] == kind for row in rows)) for kind in (RIGHT, WRONG, UNDETERMINED, SILENT))]
        for title, key in (
            ("pipetune watch", "outcome"), ("SageMaker Debugger", "sagemaker_outcome"), ("xprof", "xprof_outcome"),
        )
    ]  # fmt: skip
    print("\n" + bench.table(["judged by", RIGHT, WRONG, UNDETERMINED, SILENT], totals))
    apart = sorted((abs(row["input_frac"] - row["exact_input_frac"]), row["job"]) for row in rows if not row["others"])
    if apart:
        worst = ", ".join(f"{job} {100 * off:.0f}" for off, job in apart[:-4:-1])
        middle = 100 * apart[len(apart) // 2][0]
        print(
            f"\ninput time, watch against the loop's own clock: {middle:.1f} points apart in the median, most: {worst}"
        )


def try_job(job: Job, seed: int, window_s: float) -> dict[str, Any]:
    """Run a job, and again where other processes disturb it."""
    for attempt in range(ATTEMPTS):
        row = run_job(job, seed, window_s)
        if row["foreign_cores"] <= MAX_FOREIGN_CORES:
            break
        print(f"{job.name}: other processes use {row['foreign_cores']:.1f} cores", flush=True)
        time.sleep(PAUSE_S if attempt < ATTEMPTS - 1 else 0)
    return row


@dataclass(slots=True)
class Tally:
    """What came of all jobs."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    disturbed: list[dict[str, Any]] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """Job -> why it cannot run on this machine."""
    broken: list[str] = field(default_factory=list)


def main(options: Namespace) -> bench.Result:
    chosen = [job for job in JOBS if (job.quick or not options.quick) and (options.only or "") in job.name]
    window_s = float(options.window or (7 if options.quick else 12))
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # what was started is ended, too
    open_dataset(PHOTOS, seed=0, limit_bytes=2**40, workers=2)  # made before anything is timed
    tally = Tally()
    for seed in range(int(options.seeds or (1 if options.quick else 2))):
        for job in chosen:
            if job.name not in tally.left_out:
                add(tally, job, seed, window_s)
    show(tally.rows)
    jobs, counts = len({row["job"] for row in tally.rows}), Counter(row["outcome"] for row in tally.rows)
    print(f"\n{jobs} jobs judged {len(tally.rows)} times, {len(tally.disturbed)} times disturbed and not judged")
    print(f"{len(tally.left_out)} left out, {len(tally.broken)} broken")
    few_undetermined = counts[UNDETERMINED] <= MAX_UNDETERMINED * len(tally.rows)
    holds = jobs >= MIN_JOBS and not counts[WRONG] and not tally.broken and few_undetermined
    return bench.Result(holds, {
        "window_s": window_s, "jobs": jobs, "left_out": tally.left_out, "broken": tally.broken, "rows": tally.rows,
        "disturbed": tally.disturbed,
    })  # fmt: skip


def add(tally: Tally, job: Job, seed: int, window_s: float) -> None:
    """Run one job and enter what came of it."""
    try:
        row = try_job(job, seed, window_s)
    except Unfit as reason:
        tally.left_out[job.name] = str(reason)
        print(f"left out: {job.name}: {reason}", flush=True)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        tally.broken.append(f"{job.name}: {error}")
        print(f"BROKEN: {tally.broken[-1]}", flush=True)
    else:
        (tally.rows if row["foreign_cores"] <= MAX_FOREIGN_CORES else tally.disturbed).append(row)
        print(f"{len(tally.rows)}: {job.name}: {row['cause']}: {row['outcome']}", flush=True)


if __name__ == "__main__":
    bench.run(
        main,
        __file__,
        __doc__,
        only="run the jobs whose names contain this",
        window="length of a window (s)",
        seeds="how many times, each with another seed",
    )
