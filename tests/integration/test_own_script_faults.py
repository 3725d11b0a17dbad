"""Scripts that do not train, do what they should not, or are stopped while they are measured."""

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

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("before", "loop", "said"),
    [
        pytest.param("raise RuntimeError('no data here')", "", "no data here", id="dies in set-up"),
        pytest.param("raise SystemExit(0)", "", "made no DataLoader", id="never makes a loader"),
        pytest.param("", "print('ready')", "took no batch", id="never iterates"),
        pytest.param("", "for x, y in loader: pass", "no optimizer stepped", id="only evaluates"),
        pytest.param("", "input('name: ')", "EOFError", id="wants a terminal"),
    ],
)
def test_a_script_that_does_not_train_is_named_with_the_cause(
    place: Path, nobody_is_left: None, before: str, loop: str, said: str
) -> None:
    done = sweep(place, write(place, TRAINING.format(before=before, loop=loop)))
    assert done.returncode == 1
    assert done.stderr.count("\npipetune: ") + done.stderr.startswith("pipetune: ") == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_pass_over_the_data_before_training_is_not_taken_for_it(place: Path, nobody_is_left: None) -> None:
    before = """
import time
whole = DataLoader(TensorDataset(torch.randn(800, 8)), batch_size=4)
mean = sum(x.mean() for (x,) in whole) / len(whole)
"""
    command = write(place, TRAINING.format(before=before, loop=LOOP))
    done = sweep(place, command, "--effort", "quick", "--workers", "0")
    assert done.returncode == 0, done.stderr
    assert result_of(place)["script"]["loader"]["batch_size"] == 8


def test_ranks_for_which_one_loads_are_refused_at_once(place: Path, photos: Path, nobody_is_left: None) -> None:
    pytest.importorskip("accelerate", reason="the script is of accelerate")
    command = python("with_accelerate.py", "--data", str(photos), "--epochs", "1000", "--dispatch", *EASY)
    command[1:1] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = sweep(place, command, "--workers", "0,1", "--effort", "quick")
    assert done.returncode == 1
    assert "dispatch_batches=False" in done.stderr
    assert "Traceback" not in done.stderr


def test_python_that_takes_up_no_hook_is_said(place: Path, nobody_is_left: None) -> None:
    command = write(place, TRAINING.format(before="", loop="pass"))
    done = sweep(place, [command[0], "-I", *command[1:]])
    assert done.returncode == 1
    assert "python -I" in done.stderr


def test_no_such_command(place: Path) -> None:
    done = sweep(place, ["no-such-program", "train.py"])
    assert done.returncode in (1, 2)
    assert "no-such-program" in done.stderr


@pytest.mark.slow
def test_a_script_that_catches_everything_is_ended_all_the_same(place: Path, nobody_is_left: None) -> None:
    loop = (
        """
import time
while True:
    try:
"""
        + LOOP.replace("\n", "\n        ")
        + """
    except BaseException:
        open('caught', 'w').close()
"""
    )
    done = sweep(place, write(place, TRAINING.format(before="", loop=loop)), "--effort", "quick", "--workers", "0")
    assert done.returncode == 0, done.stderr
    assert not (place / "caught").exists()


#: From the fortieth step on, when it is known what it trains on.
LATER = LOOP.replace("time.sleep(0.01)", "steps += 1; time.sleep({pause} if steps >= 40 else 0.01)")


@pytest.mark.slow
def test_a_script_that_hangs_is_given_up(place: Path, nobody_is_left: None) -> None:
    command = write(place, TRAINING.format(before="import time\nsteps = 0", loop=LATER.format(pause="1e6")))
    done = sweep(place, command, "--workers", "0", "--timeout", "8")
    assert done.returncode == 1
    assert "hung: no result within 8 s" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_script_that_closes_every_descriptor_is_measured_all_the_same(place: Path, nobody_is_left: None) -> None:
    loop = LATER.format(pause="os.closerange(3, 256) or 0.01")
    command = write(place, TRAINING.format(before="import os, time\nsteps = 0", loop=loop))
    done = sweep(place, command, "--workers", "0", "--timeout", "30")
    assert done.returncode == 0, done.stderr
    assert 0 < result_of(place)["baseline"]["samples_per_s"] <= 800  # a step sleeps for 10 ms


@pytest.mark.slow
def test_what_it_has_forked_is_ended_with_it(place: Path, nobody_is_left: None) -> None:
    before = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1e6)"
    done = sweep(place, write(place, TRAINING.format(before=before, loop=LOOP)), "--effort", "quick", "--workers", "0")
    assert done.returncode == 0, done.stderr
    assert result_of(place)["baseline"]["samples_per_s"] > 0


@pytest.mark.slow
def test_of_several_loaders_that_are_trained_on_the_first_is_tuned(place: Path, nobody_is_left: None) -> None:
    loop = """
import time
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 10000
    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.randn(8)
other = iter(DataLoader(Slow(), batch_size=8))
for epoch in range(1000):
    for x, y in loader:
        torch.nn.functional.cross_entropy(model(x + next(other)), y).backward()
        optimizer.step()
        time.sleep(0.01)
"""
    command = write(place, TRAINING.format(before="", loop=loop))
    done = sweep(place, command, "--effort", "quick", "--workers", "0")
    assert done.returncode == 0, done.stderr
    assert "the script trains on 2 loaders: the first is tuned" in done.stdout
    assert "the script waits for its other loaders" in done.stdout
    assert result_of(place)["script"]["loader"]["dataset"].endswith("TensorDataset")


@pytest.mark.slow
def test_its_own_statistics_module_and_sitecustomize_are_imported(place: Path, nobody_is_left: None) -> None:
    (place / "src").mkdir()
    (place / "src" / "statistics.py").write_text("MINE = 1\n")
    site = place / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import builtins\nbuiltins.CUSTOMISED = 1\n")
    before = "import time, statistics\nassert statistics.MINE and CUSTOMISED"
    command = write(place, TRAINING.format(before=before, loop=LOOP))
    done = sweep(place, ["env", f"PYTHONPATH={site}", *command], "--effort", "quick", "--workers", "0")
    assert done.returncode == 1, "its own PYTHONPATH takes the place of ours, which is said"
    environment = dict(os.environ)
    environment["PYTHONPATH"] = f"{site}:{environment.get('PYTHONPATH', '')}"
    words = [
        *commands.python(),
        "sweep",
        "--seconds",
        "1",
        "--effort",
        "quick",
        "--workers",
        "0",
        "--out",
        "again",
        "--",
    ]
    done = subprocess.run([*words, *command], cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


#: A language model's batches, as in nanoGPT.
GET_BATCH = """
import torch
data = torch.randint(0, 65, (10_000,))

def get_batch(split):
    starts = torch.randint(len(data) - 32, (12,))
    return torch.stack([data[i:i + 32] for i in starts]), torch.stack([data[i + 1:i + 33] for i in starts])

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Embedding(65, 16), torch.nn.Linear(16, 65))
    def forward(self, x, y):
        return torch.nn.functional.cross_entropy(self.layers(x).view(-1, 65), y.view(-1))

@torch.no_grad()
def estimate_loss():
    return torch.stack([model(*get_batch("val")) for _ in range(5)]).mean()

model = Model()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(1_000_000):
    x, y = get_batch("train")
    if step % 10 == 0:
        estimate_loss()
    model(x, y).backward()
    optimizer.step()
torch.save(model.state_dict(), "checkpoint.pt")
"""


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


@pytest.mark.slow
def test_a_data_set_with_a_generator_of_its_own_gets_no_more_workers(place: Path, nobody_is_left: None) -> None:
    before = "import time, random"
    loop = "data.rng = random.Random(1)\n" + LOOP
    done = sweep(place, write(place, TRAINING.format(before=before, loop=loop)), "--workers", "0,2")
    assert done.returncode == 0, done.stderr
    assert "rng" in done.stdout
    assert {row["candidate"]["num_workers"] for row in result_of(place)["outcomes"]} == {0}


@pytest.mark.slow
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
