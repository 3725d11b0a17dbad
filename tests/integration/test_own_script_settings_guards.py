"""What may change a training besides the number of workers, in scripts whose samples are randomly augmented.

The rows of the manual's table "What may change the training" that are about memory, decoders, cores, states and ranks.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration import commands
from tests.integration.own_scripts import result_of, sweep, write
from tests.shared_folder import shared_folder

pytestmark = pytest.mark.slow

MIB = 1 << 20
TRAINING = """
def train(loader, epochs=100_000):
    model = torch.nn.LazyLinear(2)
    optimizer = None
    for epoch in range(epochs):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x.flatten(1)), y)
            optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.1)
            loss.backward()
            optimizer.step()
"""
HEAD = """
import os, random, sys, time
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info
torch.set_num_threads(1)
"""
LARGE = """
HELD = []

class Images(Dataset):
    def __len__(self):
        return 100_000
    def __getitem__(self, number):
        if get_worker_info() is not None and not HELD:
            HELD.append(b"x" * (800 << 20))
        time.sleep(0.002)
        return torch.randn(4) + number, number % 2

if __name__ == "__main__":
    train(DataLoader(Images(), 8))
"""
PHOTOS = """
from torchvision import datasets, transforms as T

class Photos(datasets.ImageFolder):
    {generator}

if __name__ == "__main__":
    colours = T.ColorJitter(0.4, 0.4, 0.4)
    augment = T.Compose(
        [T.RandomResizedCrop(64), T.RandomHorizontalFlip(), colours, T.ToTensor(), T.RandomErasing()]
    )
    data = Photos(sys.argv[1], augment)
    train(DataLoader(data, 8, shuffle=True))
"""
BOUND = """
STARTED = []

def start(worker):
    STARTED.append(worker)

class Images(Dataset):
    def __len__(self):
        return 100_000
    def __getitem__(self, number):
        if get_worker_info() is not None and STARTED != [get_worker_info().id]:
            raise RuntimeError(f"worker_init_fn was called {len(STARTED)} times")
        time.sleep(0.002)
        return torch.randn(4) + number, number % 2

if __name__ == "__main__":
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])  # as some libraries do
    train(DataLoader(Images(), 8, num_workers=1, worker_init_fn=start))
"""
#: Prints the augmented batches of a short training, or trains for long.
STATES = """
from torchdata.stateful_dataloader import StatefulDataLoader

class Images(Dataset):
    def __len__(self):
        return 160 if len(sys.argv) > 1 else 100_000
    def __getitem__(self, number):
        time.sleep(0.01)
        return torch.randn(4) + number, number % 2

def show(batches):
    for x, _ in batches:
        sums = [round(value, 4) for value in x.sum(1).tolist()]
        sys.stdout.write(f"{os.environ.get('RANK')} {sums}\\n")  # whole lines, because ranks share the pipe
        sys.stdout.flush()

if __name__ == "__main__":
    torch.manual_seed(int(os.environ.get("RANK", 0)))
    loader = StatefulDataLoader(Images(), 8, shuffle=True, num_workers=1)
    if len(sys.argv) == 1:
        train(loader)
    elif sys.argv[1] == "save":
        batches = iter(loader)
        show(next(batches) for _ in range(5))
        torch.save(loader.state_dict(), sys.argv[2])
    else:
        if sys.argv[1] == "resume":
            loader.load_state_dict(torch.load(sys.argv[2], weights_only=False))
        show(loader)
"""


def swept(place: Path, text: str, *options: str, arguments: tuple[str, ...] = ()) -> dict[str, Any]:
    command = [*write(place, HEAD + TRAINING + text), *arguments]
    done = sweep(place, command, *options, "--prefetch", "2", "--grid", "--blocks", "0")
    assert done.returncode == 0, done.stderr
    return {**result_of(place), "text": done.stdout}


def candidates(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in result["outcomes"] if row["role"] != "ceiling"]


def chosen(result: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = result.get("recommended") or result["nearest"]
    return found


def test_workers_that_take_more_memory_than_is_granted_are_not_recommended(place: Path, nobody_is_left: None) -> None:
    result = swept(place, LARGE, "--workers", "0,1,2", "--max-ram", "1700MiB")
    memory = {row["candidate"]["num_workers"]: row["pss_bytes"] for row in candidates(result)}
    assert memory[1] < 1700 * MIB < memory[2], "the fastest takes more"
    assert chosen(result)["candidate"]["num_workers"] < 2


@pytest.mark.usefixtures("jpeg_roi")
def test_another_decoder_is_measured_where_crops_and_augmentations_are_random(
    place: Path, photos: Path, nobody_is_left: None
) -> None:
    pytest.importorskip("torchvision", reason="the script is of torchvision")
    text = PHOTOS.format(generator="pass")
    result = swept(place, text, "--workers", "0", "--vary", "decoder", arguments=(str(photos),))
    crops = [row for row in candidates(result) if row["candidate"]["decoder"] == "crop"]
    assert crops
    assert not any("failure" in row for row in crops)


@pytest.mark.usefixtures("jpeg_roi")
def test_no_other_decoder_is_tried_on_a_data_set_that_would_draw_other_numbers_after_a_comparison(
    place: Path, photos: Path, nobody_is_left: None
) -> None:
    pytest.importorskip("torchvision", reason="the script is of torchvision")
    own = "def __init__(self, *rest):\n        super().__init__(*rest)\n        self.rng = random.Random(0)"
    result = swept(place, PHOTOS.format(generator=own), "--workers", "0", "--vary", "decoder", arguments=(str(photos),))
    crops = [row for row in candidates(result) if row["candidate"]["decoder"] == "crop"]
    assert all("random generators of its own (rng)" in row["failure"]["message"] for row in crops)
    assert crops
    assert chosen(result)["role"] == "baseline"


def test_workers_on_all_cores_are_started_by_the_scripts_own_function_too(place: Path, nobody_is_left: None) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("the script leaves its workers one of several cores")
    result = swept(place, BOUND, "--workers", "1,2")
    measured = {
        (row["candidate"]["num_workers"], row["candidate"]["worker_cores"]): row.get("failure")
        for row in candidates(result)
    }
    assert set(measured.values()) == {None}
    assert {cores for _, cores in measured} == {"inherited", "all"}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sweep of a script with a ``StatefulDataLoader``, for which four workers were found."""
    pytest.importorskip("torchdata", reason="the script is of torchdata")
    with shared_folder(tmp_path_factory, "stateful") as folder:
        if not (folder / "run" / "result.json").exists():
            assert chosen(swept(folder, STATES, "--workers", "1,4"))["candidate"]["num_workers"] == 4
    return folder


def started(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=place, env=dict(os.environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip


@pytest.fixture
def compared(tuned: Path) -> Callable[..., str]:
    """Start the script as it is and by ``pipetune run``: the same batches; returns what the latter says."""

    def compare(python: list[str], *arguments: str) -> str:
        words = [*python, "src/train.py", *arguments]
        plain = started(tuned, *words)
        other = started(tuned, *commands.python(), "run", "--tuned", "run", "--", *words)
        assert (plain.returncode, other.returncode) == (0, 0), plain.stderr + other.stderr
        assert sorted(plain.stdout.splitlines()) == sorted(other.stdout.splitlines()), "the same augmented batches"
        assert plain.stdout
        return other.stderr

    return compare


def test_a_state_of_the_scripts_own_workers_is_resumed_with_them(
    tuned: Path, tmp_path: Path, compared: Callable[..., str]
) -> None:
    state = str(tmp_path / "state.pt")
    saved = started(tuned, sys.executable, "src/train.py", "save", state)
    assert saved.returncode == 0, saved.stderr
    said = compared([sys.executable], "resume", state)
    assert "num_workers 1 -> 4" in said
    assert "left as it is: a state is loaded, which asks for 1 workers" in said


def test_with_another_number_of_ranks_than_was_measured_the_training_is_the_scripts_own(
    compared: Callable[..., str],
) -> None:
    said = compared([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"], "show")
    assert "left as it is: it was measured with 1 rank on this host, and 2 train now" in said
