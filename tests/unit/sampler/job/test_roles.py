from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pipetune.sampler.job.roles import (
    ProcessInfo,
    command_title,
    is_helper_process,
    is_loader_thread,
    is_named_worker,
    may_be_worker,
    parse_ranks,
    read_info,
)
from tests.unit.sampler.job.fake_job import COMPILE_WORKER, FORK_SERVER, SPAWNED, TRACKER, TRAIN, WORKER, FakeJob


def _info(*command: str, **changes: Any) -> ProcessInfo:
    values = {
        "pid": 11, "parent": 10, "start_ticks": 100, "name": "python", "command": command or TRAIN, "rank": None,
        "local_rank": None,
    }  # fmt: skip
    return ProcessInfo(**(values | changes))


TRAINER = _info(*TRAIN, pid=10, parent=1)


def test_a_process_is_read_once(tmp_path: Path) -> None:
    fake = FakeJob(tmp_path)
    fake.job(10, 3, comm="python3.11", environ={"PATH": "/bin", "RANK": 2, "LOCAL_RANK": 0, "WORLD_SIZE": 4}, start=77)

    assert read_info(10, fake.path) == ProcessInfo(
        pid=10, parent=3, start_ticks=77, name="python3.11", command=TRAIN, rank=2, local_rank=0
    )


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_process_that_has_ended_is_none(tmp_path: Path, state: str) -> None:
    fake = FakeJob(tmp_path)
    fake.job(10, state=state)

    assert read_info(10, fake.path) is None
    assert read_info(11, fake.path) is None


def test_a_process_that_hides_its_command_and_environment_is_one_all_the_same(tmp_path: Path) -> None:
    fake = FakeJob(tmp_path)
    fake.process(10)

    info = read_info(10, fake.path)

    assert info is not None
    assert (info.command, info.rank, info.name) == ((), None, "?")


def test_an_empty_last_argument_is_kept(tmp_path: Path) -> None:
    fake = FakeJob(tmp_path)
    fake.job(10, command=["train", "--name", ""])

    info = read_info(10, fake.path)

    assert info is not None
    assert info.command == ("train", "--name", "")


def test_this_process_is_read() -> None:
    info = read_info(os.getpid())

    assert info is not None
    assert info.parent == os.getppid()
    assert info.command


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        (b"RANK=3\0LOCAL_RANK=1\0WORLD_SIZE=8\0", {"RANK": 3, "LOCAL_RANK": 1}),
        (b"PATH=/bin\0RANK=0", {"RANK": 0}),
        (b"RANK=\0", {}),
        (b"RANK=none\0", {}),
        (b"RANK=-1\0", {}),
        (b"MY_RANK=3\0RANK_TABLE=4\0", {}),
        (b"A\xff\xfe=1\0\0RANK=5=6\0", {}),
        (b"", {}),
    ],
)
def test_ranks_are_read_from_the_environment(environ: bytes, found: dict[str, int]) -> None:
    assert parse_ranks(environ) == found


@pytest.mark.parametrize(
    ("command", "title"),
    [
        (("python", "train.py"), "train.py"),
        (("/usr/bin/python3.11", "-u", "/home/me/train.py", "-m", "x"), "train.py"),
        (("python", "-m", "torch.distributed.run", "train.py"), "torch.distributed.run"),
        (("python", "-c", "print(1)"), "python -c"),
        (("python",), "python"),
        (("/opt/bin/torchrun", "train.py"), "torchrun"),
        (("./train",), "train"),
        ((), ""),
    ],
)
def test_a_title_is_the_script_and_not_the_interpreter(command: tuple[str, ...], title: str) -> None:
    assert command_title(command) == title


@pytest.mark.parametrize("options", [("-W", "ignore"), ("-X", "importtime")])
def test_a_value_of_an_option_is_no_script(options: tuple[str, ...]) -> None:
    assert command_title(("python", *options, "train.py")) == "train.py"


def test_a_process_without_a_command_is_called_by_its_name() -> None:
    assert _info(command=()).title == "python"


@pytest.mark.parametrize(
    "command",
    [
        TRACKER,
        COMPILE_WORKER,
        FORK_SERVER,
        ("/usr/bin/python3", "/usr/local/bin/tensorboard", "--logdir", "runs"),
        ("/usr/bin/python3", "-m", "wandb.service"),
        ("/venv/bin/py-spy", "record", "--pid", "7"),
        ("/venv/lib/torch/bin/torch_shm_manager",),
        ("nvidia-smi", "dmon"),
    ],
)
def test_servants_load_nothing(command: tuple[str, ...]) -> None:
    assert is_helper_process(_info(*command))
    assert not may_be_worker(_info(*command), TRAINER)


@pytest.mark.parametrize("command", [TRAIN, SPAWNED, ("bash", "run.sh"), ("python", "-m", "torch.distributed.run")])
def test_others_are_no_servants(command: tuple[str, ...]) -> None:
    assert not is_helper_process(_info(*command))


@pytest.mark.parametrize(
    "arguments", [("--report_to", "tensorboard"), ("--wandb_project", "x"), ("--logdir", "/data/wandb/run")]
)
def test_an_argument_makes_no_servant(arguments: tuple[str, ...]) -> None:
    trainer = _info("/usr/bin/python3", "train.py", *arguments)

    assert not is_helper_process(trainer)
    assert may_be_worker(_info(*trainer.command, name=WORKER), trainer)


@pytest.mark.parametrize(
    "command",
    [
        ("/usr/bin/python3", "/home/me/wandb-runs/train.py"),
        ("/opt/tensorboard-env/bin/python", "train.py"),
        ("/usr/bin/python3", "-c", "import wandb; main()"),
    ],
)
def test_a_folder_makes_no_servant(command: tuple[str, ...]) -> None:
    assert not is_helper_process(_info(*command))


def test_options_of_the_interpreter_hide_no_servant() -> None:
    assert is_helper_process(_info("/usr/bin/python3", "-u", "-X", "dev", "-W", "ignore", *TRACKER[1:]))
    assert is_helper_process(_info("/usr/bin/python3", "-m", "tensorboard.main"))
    assert not is_helper_process(_info("/usr/bin/python3", "-m", "train", "tensorboard"))
    assert not is_helper_process(_info("/usr/bin/python3", "-X", "dev"))
    assert not is_helper_process(_info(command=()))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("pt_data_worker", True), ("pt_data_worker:", True), ("python", False), ("pt_main_thread", False), ("", False)],
)
def test_torch_names_its_workers(name: str, expected: bool) -> None:
    assert is_named_worker(name) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("pt_thread_data_0", True), ("[DALI][WT] 3", True), ("pt_data_pin", False), ("python", False)],
)
def test_threads_that_load_are_known_by_name(name: str, expected: bool) -> None:
    assert is_loader_thread(name) is expected


def test_a_fork_of_the_trainer_may_be_a_worker() -> None:
    assert may_be_worker(_info(*TRAIN), TRAINER)
    assert not may_be_worker(_info("/usr/bin/git", "status"), TRAINER)


def test_a_process_that_hides_its_command_is_no_worker() -> None:
    hidden = _info(command=())

    assert not may_be_worker(hidden, _info(command=()))


def test_a_spawned_process_may_be_a_worker() -> None:
    assert may_be_worker(_info(*SPAWNED), TRAINER)


def test_a_named_worker_is_one_whatever_it_runs() -> None:
    assert may_be_worker(_info("/opt/other", name=WORKER), TRAINER)


def test_a_worker_of_a_fork_server_is_one() -> None:
    assert may_be_worker(_info(*FORK_SERVER, name=WORKER), TRAINER)
