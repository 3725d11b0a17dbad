"""How long does a task of a job array take beside what it measures?

Promise: a task of ``pipetune launch`` takes at most 3 s beside its measurements, in the median.

An array of sweeps on a real SLURM of two hosts, which is started for it, one task at a time. A line of the cluster
file notes when a task's script begins; it ends when the script writes the exit code. From that is taken what the sweep
needed for each measurement, its process and the page cache included. The rest is the interpreter, the imports, the
list of images, the fork servers, the result, and the script itself. How long SLURM lets a task wait is not in it.

Needs Debian's packages slurm-wlm and munge, and root. ``--quick`` takes two tasks.
"""

from __future__ import annotations

import json
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from tests.slurm_cluster import slurm, why_not

MOST_S = 3.0
TASKS, QUICK_TASKS = 6, 2
DATASET = "synthetic:caltech256?n=400"


def main(options: Namespace) -> bench.Result:
    if (reason := why_not()) is not None:
        raise bench.Skipped(reason)
    count = QUICK_TASKS if options.quick else TASKS
    with tempfile.TemporaryDirectory(prefix="pipetune-array-") as scratch:
        folder = Path(scratch)
        out, cluster_file = folder / "array", folder / "cluster.toml"
        cluster_file.write_text(
            f'python = "{sys.executable}"\nat-once = 1\nvariables = {{ PYTHONPATH = "{bench.ROOT}" }}\n'
            f'setup = ["date +%s.%N > {folder}/began-$SLURM_ARRAY_TASK_ID"]\n'
        )
        (folder / "slurm").mkdir()
        seeds = ",".join(map(str, range(count)))
        with slurm(folder / "slurm") as cluster:
            done = cluster.run(
                sys.executable, "-m", "pipetune", "launch", "--cluster", str(cluster_file), "--submit", "--out",
                str(out), "--array", f"seed={seeds}", "--", "sweep", "--dataset", DATASET, "--device", "emulated:300",
                "--seconds", "2", cwd=folder,
            )  # fmt: skip
            if done.returncode:
                raise SystemExit(done.stderr)
            job = json.loads((out / "launch.json").read_text())["job"]
            cluster.wait_until_ended(job, seconds=120.0 * count)
        rows, rests = [], []
        for number in range(count):
            began = float((folder / f"began-{number}").read_text())
            whole = (out / f"task-{number}.code").stat().st_mtime - began
            lines = (out / f"task-{number}" / "outcomes.jsonl").read_text().splitlines()
            measured = sum(json.loads(line)["wall_s"] for line in lines)
            rests.append(whole - measured)
            rows.append([f"task {number}", f"{whole:.1f} s", f"{measured:.1f} s", f"{len(lines)}",
                         f"{whole - measured:.1f} s"])  # fmt: skip
    print(bench.table(["", "all of it", "measuring", "measurements", "beside it"], rows))
    print(f"beside its measurements a task takes {median(rests):.1f} s in the median, {max(rests):.1f} s at most")
    return bench.Result(median(rests) <= MOST_S, {"beside_s": rests})


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
