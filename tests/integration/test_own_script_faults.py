"""Scripts that do not train, do what they should not, or are stopped while they are measured."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

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


def test_a_script_that_hangs_is_given_up(place: Path, nobody_is_left: None) -> None:
    command = write(place, TRAINING.format(before="import time\nsteps = 0", loop=LATER.format(pause="1e6")))
    done = sweep(place, command, "--workers", "0", "--timeout", "8")
    assert done.returncode == 1
    assert "hung: no result within 8 s" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_script_that_closes_every_descriptor_is_measured_all_the_same(place: Path, nobody_is_left: None) -> None:
    loop = LATER.format(pause="os.closerange(3, 256) or 0.01")
    command = write(place, TRAINING.format(before="import os, time\nsteps = 0", loop=loop))
    done = sweep(place, command, "--workers", "0", "--timeout", "30")
    assert done.returncode == 0, done.stderr
    assert 0 < result_of(place)["baseline"]["samples_per_s"] <= 800  # a step sleeps for 10 ms


def test_what_it_has_forked_is_ended_with_it(place: Path, nobody_is_left: None) -> None:
    before = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1e6)"
    done = sweep(place, write(place, TRAINING.format(before=before, loop=LOOP)), "--effort", "quick", "--workers", "0")
    assert done.returncode == 0, done.stderr
    assert result_of(place)["baseline"]["samples_per_s"] > 0


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
