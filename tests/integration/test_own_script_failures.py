"""Scripts that fail by themselves: what is told, and what stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration import commands
from tests.integration.own_scripts import EASY, LOOP, TRAINING, python, result_of, sweep, write
from tests.integration.test_own_script_faults import GET_BATCH

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_training_without_a_loader_is_ended_with_the_place_of_its_batches(
    place: Path, nobody_is_left: None, ranks: int
) -> None:
    command = write(place, GET_BATCH)
    if ranks > 1:
        command[1:1] = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    done = sweep(place, command)
    assert done.returncode == 1
    assert "trains without a DataLoader; its batches come from get_batch at src/train.py:5" in done.stderr
    assert not (place / "checkpoint.pt").exists()


def test_the_exception_of_the_rank_that_has_failed_is_told_with_its_place(place: Path, nobody_is_left: None) -> None:
    text = """
import torch, torch.distributed
torch.distributed.init_process_group("gloo")
if torch.distributed.get_rank() == 1:
    raise ValueError("device_ids has to be None")
torch.distributed.barrier()
"""
    command = write(place, text)
    command[1:1] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = sweep(place, command)
    assert done.returncode == 1
    assert "ValueError: device_ids has to be None (src/train.py:5, rank 1)" in done.stderr
    assert "run/script.log" in done.stderr


def test_a_script_that_crashes_as_it_is_gets_no_recommendation_and_is_told_so(
    place: Path, nobody_is_left: None
) -> None:
    before = """
import time
batches = 0
def collate(samples):
    global batches
    batches += 1
    return torch.stack([] if batches == 20 else [x for x, _ in samples]), torch.zeros(len(samples), dtype=torch.long)
"""
    text = TRAINING.format(before=before, loop=LOOP).replace("shuffle=True", "shuffle=True, collate_fn=collate")
    done = sweep(place, write(place, text), "--workers", "0,1")
    assert done.returncode == 1
    result = result_of(place)
    assert result["recommended"] is None
    assert "your script fails as it is" in done.stdout
    assert "non-empty TensorList (src/train.py:" in done.stdout
    assert "run/script.log" in done.stdout
    assert "resume with" not in done.stdout


SPAWNED = """
import time, torch
from torch.utils.data import DataLoader, TensorDataset
torch.multiprocessing.set_start_method("spawn", force=True)
def main():
    data = TensorDataset(torch.randn(256, 8), torch.zeros(256, dtype=torch.long))
    loader = DataLoader(data, batch_size=8, shuffle=True{collate})
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(1000):
        for x, y in loader:
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
{call}
"""


def test_without_a_guard_under_spawn_pythons_own_explanation_is_shown_and_nothing_stays(
    place: Path, nobody_is_left: None
) -> None:
    before = set(os.listdir("/dev/shm"))
    done = sweep(place, write(place, SPAWNED.format(collate="", call="main()")), "--workers", "0,1,2", "--blocks", "0")
    assert done.returncode == 1
    assert 'the script has no if __name__ == "__main__": guard' in done.stdout
    assert "finished its bootstrapping phase" in (place / "run" / "script.log").read_text()
    assert not [name for name in set(os.listdir("/dev/shm")) - before if name.startswith("sem.mp-")]
    candidates = [row for row in result_of(place)["outcomes"] if row["role"] == "candidate"]
    assert [row["failure"]["kind"] for row in candidates] == ["no_main_guard"], "it is not started again and again"


def test_a_lambda_that_cannot_be_sent_to_workers_is_named_with_its_place(place: Path, nobody_is_left: None) -> None:
    collate = ", collate_fn=lambda samples: torch.utils.data.default_collate(samples)"
    text = SPAWNED.format(collate=collate, call="if __name__ == '__main__': main()")
    done = sweep(place, write(place, text), "--workers", "0,1", "--blocks", "0", "--grid", "--prefetch", "2")
    assert done.returncode == 0, done.stderr
    (failed,) = (row["failure"] for row in result_of(place)["outcomes"] if "failure" in row)
    assert failed["kind"] == "cannot_pickle"
    assert "collate_fn at src/train.py:7 is a lambda, which spawn cannot pickle" in failed["message"]
    assert "function or class of the module" in done.stdout


def test_a_data_set_with_a_generator_of_its_own_gets_no_more_workers(place: Path, nobody_is_left: None) -> None:
    before = "import time, random"
    loop = "data.rng = random.Random(1)\n" + LOOP
    done = sweep(place, write(place, TRAINING.format(before=before, loop=loop)), "--workers", "0,2")
    assert done.returncode == 0, done.stderr
    assert "rng" in done.stdout
    assert {row["candidate"]["num_workers"] for row in result_of(place)["outcomes"]} == {0}


@pytest.mark.parametrize(
    ("number", "script"),
    [(signal.SIGINT, "classic.py"), (signal.SIGTERM, "classic.py"), (signal.SIGINT, "with_dali.py")],
)
def test_asked_to_stop_it_ends_the_script_and_keeps_what_was_measured(
    place: Path, photos: Path, nobody_is_left: None, number: signal.Signals, script: str
) -> None:
    if script == "with_dali.py":
        pytest.importorskip("nvidia.dali", reason="the script is of DALI")
    data = [str(photos)] if script == "classic.py" else ["--data", str(photos)]
    process = subprocess.Popen(
        [*commands.python(), "sweep", "--seconds", "4", "--effort", "thorough", "--progress", "lines", "--out", "run",
         "--",
         *python(script, *data, "--epochs", "500", *EASY)],
        cwd=place, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_for((place / "run" / "outcomes.jsonl").exists)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert (place / "run" / "result.json").exists(), errors
    assert left_of(photos) == []


def test_killed_it_leaves_no_process(place: Path, photos: Path) -> None:
    process = subprocess.Popen(
        [*commands.python(), "sweep", "--progress", "none", "--out", "run", "--",
         *python("classic.py", str(photos), "--epochs", "500", "--workers", "2", *EASY)],
        cwd=place, env=dict(os.environ), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for((place / "run" / "outcomes.jsonl").exists)
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: left_of(photos) == [])


def left_of(photos: Path) -> list[str]:
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if str(photos) in words and "pipetune" not in words and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(" ".join(words))
    return found


def wait_for(condition: Any, limit_s: float = 90.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.1)
