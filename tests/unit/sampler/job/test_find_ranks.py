from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipetune.accelerator.timeline import TimelineWriter
from pipetune.sampler.job.find_ranks import find_ranks, has_gpu_file
from tests.unit.sampler.job.fake_job import (
    COMPILE_WORKER,
    FORK_SERVER,
    SPAWNED,
    TRACKER,
    TRAIN,
    WORKER,
    FakeJob,
    real_job,
    until,
)

BASH = ("/bin/bash", "run.sh")
TORCHRUN = ("/usr/bin/python3", "/usr/bin/torchrun", "--nproc-per-node", "2", "train.py")


@pytest.fixture
def fake(tmp_path: Path) -> FakeJob:
    return FakeJob(tmp_path)


def _found(fake: FakeJob, root: int = 10) -> list[int]:
    return [info.pid for info in find_ranks(root, fake.path)]


def test_a_single_process_trains(fake: FakeJob) -> None:
    fake.job(10)

    assert _found(fake) == [10]


def test_a_job_that_has_ended_has_no_ranks(fake: FakeJob) -> None:
    assert _found(fake) == []


@pytest.mark.parametrize("launcher", [BASH, ("sh", "-c", "x"), ("srun", "x"), ("timeout", "9"), ("tini", "--"),
                                      ("/usr/bin/python3", "/venv/bin/accelerate", "launch")])  # fmt: skip
def test_launchers_train_nothing(fake: FakeJob, launcher: Sequence[str]) -> None:
    fake.job(10, command=launcher)
    fake.job(11, 10, command=BASH)
    fake.job(12, 11)

    assert _found(fake) == [12]


def test_a_launcher_alone_is_all_there_is(fake: FakeJob) -> None:
    fake.job(10, command=BASH)

    assert _found(fake) == [10]


def test_each_rank_of_torchrun_is_found_once(fake: FakeJob) -> None:
    fake.job(10, command=TORCHRUN)
    for rank in (1, 0):
        trainer = 20 + 10 * rank
        environ = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2}
        fake.job(trainer, 10, environ=environ)
        for worker in (1, 2):
            fake.job(trainer + worker, trainer, environ=environ, comm=WORKER)
        fake.job(trainer + 3, trainer, environ=environ, command=TRACKER)
        fake.job(trainer + 4, trainer, environ=environ, command=SPAWNED)

    ranks = find_ranks(10, fake.path)

    assert [(info.pid, info.rank) for info in ranks] == [(20, 0), (30, 1)]


def test_a_rank_inside_a_rank_of_the_same_number_is_its_helper(fake: FakeJob) -> None:
    fake.job(10, environ={"RANK": 0})
    fake.job(11, 10, environ={"RANK": 0})

    assert _found(fake) == [10]


def test_a_shell_that_has_the_ranks_environment_is_no_rank(fake: FakeJob) -> None:
    # torchrun --no-python ./run.sh
    fake.job(10, command=TORCHRUN)
    for rank in (0, 1):
        fake.job(20 + rank, 10, command=BASH, environ={"RANK": rank, "LOCAL_RANK": rank})
        fake.job(30 + rank, 20 + rank, environ={"RANK": rank, "LOCAL_RANK": rank})

    assert _found(fake) == [30, 31]


def test_a_cluster_that_gives_each_pod_a_rank_hides_none(fake: FakeJob) -> None:
    # Kubeflow's PyTorchJob sets RANK to the number of the pod, and torchrun sets it anew for its children.
    fake.job(10, command=BASH, environ={"RANK": 0})
    fake.job(11, 10, command=TORCHRUN, environ={"RANK": 0})
    for rank in (0, 1):
        fake.job(20 + rank, 11, environ={"RANK": rank, "LOCAL_RANK": rank})

    assert _found(fake) == [20, 21]


def test_the_parent_of_named_workers_trains(fake: FakeJob) -> None:
    fake.job(10, command=("/usr/bin/python3", "sweep.py"))
    fake.job(11, 10)
    fake.job(12, 11, comm=WORKER)
    fake.job(13, 10, command=("/usr/bin/python3", "serve.py"))

    assert _found(fake) == [11]


def test_two_trainers_of_one_job_are_both_found(fake: FakeJob) -> None:
    # torch.multiprocessing.spawn: their environments were set after they were started.
    fake.job(10)
    for trainer in (11, 12):
        fake.job(trainer, 10, command=SPAWNED)
        fake.job(trainer + 10, trainer, command=SPAWNED, comm=WORKER)

    assert _found(fake) == [11, 12]


def test_a_loader_thread_marks_the_trainer(fake: FakeJob) -> None:
    fake.job(10, command=("/usr/bin/python3", "sweep.py"))
    fake.job(11, 10)
    fake.named_thread(11, 15, "pt_thread_data_0")

    assert _found(fake) == [11]


def test_a_fork_server_stands_between_a_trainer_and_its_workers(fake: FakeJob) -> None:
    fake.job(10, command=BASH)
    fake.job(11, 10)
    fake.job(12, 11, command=FORK_SERVER)
    fake.job(13, 12, command=FORK_SERVER, comm=WORKER)
    fake.job(14, 11, command=TRACKER)

    assert _found(fake) == [11]


def test_the_topmost_process_with_a_gpu_open_trains(fake: FakeJob) -> None:
    fake.job(10, command=("/usr/bin/python3", "sweep.py"))
    fake.job(11, 10)
    fake.job(12, 11)
    for pid in (11, 12):
        fake.opens(pid, 7, "/dev/nvidia0")

    assert _found(fake) == [11]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/dev/nvidia0", True),
        ("/dev/nvidia15", True),
        ("/dev/dxg", True),
        ("/dev/nvidiactl", False),
        ("/dev/nvidia-uvm", False),
        ("/tmp/nvidia0", False),
    ],
)
def test_device_files_of_a_gpu_and_of_the_driver(fake: FakeJob, target: str, expected: bool) -> None:
    fake.job(10)
    fake.opens(10, 3, target)

    assert has_gpu_file(10, fake.path) is expected
    assert has_gpu_file(99, fake.path) is False


def test_servants_and_workers_alone_are_no_job(fake: FakeJob) -> None:
    fake.job(10, command=TRACKER)
    fake.job(11, 10, command=COMPILE_WORKER)
    fake.job(12, 10, comm=WORKER)

    assert _found(fake) == []


def test_a_process_that_ended_between_two_steps_is_left_out(fake: FakeJob) -> None:
    fake.job(10, command=BASH)
    fake.job(11, 10, state="Z")

    assert _found(fake) == [10]


def test_a_program_that_keeps_the_output_trains_nothing(fake: FakeJob) -> None:
    fake.job(10, command=("/bin/bash", "-c", "python train.py | tee log"))
    fake.job(11, 10)
    fake.job(12, 10, command=("tee", "log"), comm="tee")

    assert _found(fake) == [11]


@pytest.mark.parametrize(
    "launcher", [("uv", "run", "train.py"), ("/opt/conda/bin/python", "/opt/conda/bin/conda", "run")]
)
def test_runners_of_environments_train_nothing(fake: FakeJob, launcher: Sequence[str]) -> None:
    fake.job(10, command=launcher)
    fake.job(11, 10)

    assert _found(fake) == [11]


@pytest.mark.parametrize("way", ["fork", "spawn", "forkserver", "thread"])
def test_a_real_job_is_found_below_a_real_shell(tmp_path: Path, way: str) -> None:
    with real_job(tmp_path, way, 2) as trainer:
        assert [info.pid for info in find_ranks(trainer)] == [trainer]
        # The test's own tree holds more than this job.
        assert trainer in [info.pid for info in find_ranks(os.getpid())]


def test_real_ranks_are_found_by_their_environment() -> None:
    child = "import subprocess, sys, os; p = [subprocess.Popen([sys.executable, '-c', 'input()'], env=dict(os.environ, "
    child += (
        "RANK=str(rank), WORLD_SIZE='2'), stdin=subprocess.PIPE) for rank in (0, 1)]; print(1, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        launcher.stdout.readline()
        # Between fork and exec a process has the environment of its parent.
        ranks = until(lambda: [info.rank for info in find_ranks(launcher.pid)], lambda seen: seen == [0, 1])
        launcher.communicate(b"\n")

    assert ranks == [0, 1]


def test_who_feeds_an_emulated_accelerator_trains() -> None:
    writer = TimelineWriter()
    try:
        ranks = find_ranks(os.getpid())
    finally:
        writer.close()

    assert [info.pid for info in ranks] == [os.getpid()]


def test_title_of_a_training_process(fake: FakeJob) -> None:
    fake.job(10, command=TRAIN)

    assert find_ranks(10, fake.path)[0].title == "train.py"
