"""Arrays on a real SLURM of two hosts, which the tests start and stop."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipetune.scaling.cluster import Cluster
from pipetune.scaling.launch import scripts
from pipetune.scaling.tasks import Task
from tests.slurm_cluster import Slurm, slurm, why_not

pytestmark = [
    pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]  # fmt: skip
DATASET = "synthetic:caltech256?n=60"
#: Three candidates, each measured once.
SWEEP = ("--backends", "pillow", "--workers", "0,1,2", "--vary", "none", "--prefetch", "2", "--grid", "--blocks", "0")
CLUSTERS = (
    Cluster(), Cluster(partition="main"), Cluster(partition="short", time="20"), Cluster(gpus_per_node=8),
    Cluster(gpus_per_node="a100:4"), Cluster(gres="gpu:a100:8"), Cluster(constraint="a100", time="0-1"),
    Cluster(exclusive=False, memory="500M", cpus_per_task=1), Cluster(cpus_per_task=2, at_once=1),
    Cluster(requeue=False, signal_s=60, time="1:00:00"), Cluster(options=("--mail-type=NONE", "--nice=10")),
    Cluster(variables={"A": "it's b"}, setup=("true # a comment",), memory="1G"),
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.mark.parametrize("number", range(len(CLUSTERS)))
def test_sbatch_accepts_the_scripts_of_each_kind_of_cluster(cluster: Slurm, tmp_path: Path, number: int) -> None:
    tasks = [Task(number=n, label="", words=("sweep", "--dataset", f"it's {n}")) for n in range(3)]
    folder = tmp_path / "50% of it"
    folder.mkdir()
    for name, text in scripts(CLUSTERS[number], tasks, folder, tmp_path).items():
        (folder / name).write_text(text)
        done = cluster.run("sbatch", "--test-only", str(folder / name))
        assert done.returncode == 0, done.stderr


def launch(cluster: Slurm, folder: Path, *words: str) -> tuple[str, str, Path]:
    """Numbers of the array and of the job that collects, and the folder."""
    file, out = folder / "cluster.toml", folder / "array"
    root = str(Path(__file__).parents[2])
    # These hosts' names are no addresses.
    variables = f'{{ PYTHONPATH = "{root}", MASTER_ADDR = "127.0.0.1" }}'
    file.write_text(f'python = "{sys.executable}"\nvariables = {variables}\n')
    done = cluster.run(
        sys.executable, "-m", "pipetune", "launch", "--cluster", str(file), "--submit", "--out", str(out), *words,
        cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    stored = json.loads((out / "launch.json").read_text())
    assert stored["job"] in done.stdout
    return stored["job"], stored["collect_job"], out


def test_an_array_over_two_hosts_has_every_candidate_once_though_a_task_is_requeued_and_one_is_killed(
    cluster: Slurm, tmp_path: Path
) -> None:
    job, collect, out = launch(
        cluster, tmp_path, "--array", "batch-size=4,8,16,32", "--", "sweep", "--dataset", DATASET, "--device",
        "emulated:300", *SWEEP, "--seconds", "2",
    )  # fmt: skip
    # One as by kill -9; one as when its host fails.
    wait_for(lambda: measured(out / "task-1") >= 1, cluster)
    for pid in running(out / "task-1"):
        with contextlib.suppress(ProcessLookupError):  # a child of one that was killed
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: measured(out / "task-0") >= 1, cluster)
    assert cluster.run("scontrol", "requeue", f"{job}_0").returncode == 0
    release(cluster, f"{job}_0")
    cluster.wait_until_ended(job, collect)
    found = {task["number"]: task for task in json.loads((out / "collected.json").read_text())["tasks"]}
    for number in (0, 2, 3):
        assert found[number]["status"] in ("target_met", "target_missed"), cluster.log()
        assert found[number]["label"] == f"batch-size={4 << number}"
        keys = Counter(
            outcome["candidate"]["num_workers"] for outcome in outcomes(out / f"task-{number}")
            if outcome["role"] != "ceiling" and outcome.get("measurement") and not outcome["attempt"] > 1
        )  # fmt: skip
        assert keys == {0: 1, 1: 1, 2: 1}, keys
    assert found[1]["status"] == "no result", "killed, and what it had measured is kept"
    assert found[1]["candidates"] >= 1
    assert found[1]["message"] == "it ended with exit code 137: see task-1.log"
    assert cluster.states(f"{job}_1") == {"1": "FAILED"}
    assert {path.name for path in out.glob("*.log")} == {f"task-{n}.log" for n in range(4)} | {"collect.log"}


def launch_one(cluster: Slurm, folder: Path, *, seconds: str) -> tuple[str, str, Path]:
    """An array of one sweep, with so many seconds for each candidate."""
    return launch(
        cluster, folder, "--", "sweep", "--batch-size", "8", "--dataset", DATASET, "--device", "emulated:300", *SWEEP,
        "--seconds", seconds,
    )  # fmt: skip


def test_two_hosts_measure_together_and_go_on_together_when_the_task_is_requeued(
    cluster: Slurm, tmp_path: Path
) -> None:
    job, collect, out = launch(
        cluster, tmp_path, "--", "sweep", "--hosts", "2", "--batch-size", "8", "--dataset", DATASET, "--device",
        "emulated:300", *SWEEP, "--seconds", "1",
    )  # fmt: skip
    wait_for(lambda: measured(out / "task-0") >= 1, cluster)
    cluster.run("scancel", "--batch", "--signal=USR1", f"{job}_0")
    wait_for(lambda: "PENDING" in cluster.states(job).values(), cluster)
    release(cluster, f"{job}_0")
    cluster.wait_until_ended(job, collect)
    log = (out / "task-0.log").read_text()
    (found,) = json.loads((out / "collected.json").read_text())["tasks"]
    assert found["status"] in ("target_met", "target_missed"), log
    assert found["candidates"] == 3
    assert log.count("host 2 of 2 (2): measures what host 1 asks for") == 2, log
    for outcome in outcomes(out / "task-0"):
        shares = outcome["measurement"]["hosts"]
        assert [share["host"] for share in shares] == [0, 1]
        assert all(share["samples_per_s"] > 0 for share in shares)


def test_a_task_whose_time_is_over_goes_on(cluster: Slurm, tmp_path: Path) -> None:
    job, collect, out = launch_one(cluster, tmp_path, seconds="0.5")
    wait_for(lambda: measured(out / "task-0") >= 1, cluster)
    cluster.run("scancel", "--batch", "--signal=USR1", f"{job}_0")
    wait_for(lambda: "PENDING" in cluster.states(job).values(), cluster)
    release(cluster, f"{job}_0")
    cluster.wait_until_ended(job, collect)
    (found,) = json.loads((out / "collected.json").read_text())["tasks"]
    assert found["status"] in ("target_met", "target_missed"), (out / "task-0.log").read_text()
    assert found["candidates"] == 3


def test_scancel_ends_a_task_for_good_and_keeps_what_it_has(cluster: Slurm, tmp_path: Path) -> None:
    job, collect, out = launch_one(cluster, tmp_path, seconds="2")
    wait_for(lambda: measured(out / "task-0") >= 1, cluster)
    cluster.run("scancel", job)
    cluster.wait_until_ended(job, collect)
    (found,) = json.loads((out / "collected.json").read_text())["tasks"]
    assert found["status"] in ("interrupted", "no result")
    assert 1 <= found["candidates"] < 3
    assert not running(out / "task-0"), "nothing is left"


def test_the_tasks_of_an_array_are_compared(cluster: Slurm, tmp_path: Path) -> None:
    """As the README does it."""
    job, collect, out = launch(
        cluster, tmp_path, "--array", "ranks=1,2", "--", "sweep", "--dataset", DATASET, "--device", "emulated:100",
        "--batch-size", "8", "--seconds", "1",
    )  # fmt: skip
    cluster.wait_until_ended(job, collect)
    done = cluster.run(
        sys.executable, "-m", "pipetune", "scale", str(out), "--epochs", "90", "--price", "14.40/h", "--json",
        str(tmp_path / "x.json"), cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + cluster.log()
    rows = json.loads((tmp_path / "x.json").read_text())["scaling"]["rows"]
    assert [(row["accelerators"], row["measured"]) for row in rows][:3] == [(1, True), (2, True), (4, False)]
    assert rows[1]["training_cost"] is not None
    assert "2 accelerators: " in done.stdout


def outcomes(folder: Path) -> list[dict[str, object]]:
    file = folder / "outcomes.jsonl"
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]


def measured(folder: Path) -> int:
    return sum(outcome["role"] != "ceiling" for outcome in outcomes(folder))


def release(cluster: Slurm, element: str) -> None:
    """Let a requeued element start soon: SLURM waits two minutes otherwise, so that its hosts forget it before."""

    def show() -> str:
        return cluster.run("scontrol", "show", "job", element).stdout

    wait_for(lambda: "JobState=PENDING" in show(), cluster)
    time.sleep(5)
    while "JobState=PENDING" in show():
        cluster.run("scontrol", "update", f"JobId={element}", "StartTime=now")
        time.sleep(0.5)


def wait_for(there: Callable[[], bool], cluster: Slurm, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < until, cluster.run("squeue").stdout + cluster.log()
        time.sleep(0.1)


def running(out: Path) -> list[int]:
    """Processes that have a folder among their words."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                words = Path(entry.path, "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if str(out) in words:
                found.append(int(entry.name))
    return found
