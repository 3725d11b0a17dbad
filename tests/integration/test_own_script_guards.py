"""What may change a training when the number of workers changes, in scripts whose samples are randomly augmented.

Each guard of the manual's table "What may change the training" that goes by the data has to hold though no two batches
are alike.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.own_scripts import result_of, sweep, write

pytestmark = pytest.mark.slow

SCRIPT = """
import functools, random, time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

COUNT = {count}

def augmented(number):
    time.sleep(0.002)
    return torch.full((4,), float(number)) + torch.randn(4), number % 2

class Images(Dataset):
    def __len__(self):
        return COUNT
    def __getitem__(self, number):
        return augmented(number)

class Stream(IterableDataset):
    def __iter__(self):
        numbers = list(range(COUNT))
        random.shuffle(numbers)  # torch seeds it in each worker
        return map(augmented, numbers)

{before}

def main():
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = {loader}
    for epoch in range({epochs}):
        for x, y, *_ in loader:
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

if __name__ == "__main__":
    main()
"""
#: Asks, and goes on to yield everything.
SEEDS = """
class Data(Stream):
    def __iter__(self):
        info = get_worker_info()
        if info is not None:
            random.seed(info.seed)
        return super().__iter__()
"""
#: Reads how many workers there are, and yields everything in the same order.
LOGS = """
class Data(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        print(info and info.num_workers)
        return ((*augmented(number), f"key{number}") for number in range(COUNT))
"""
#: The same in another order in each worker, as is known when an epoch has ended.
SHUFFLES = """
class Data(Stream):
    def __iter__(self):
        info = get_worker_info()
        print(info and info.num_workers)
        return super().__iter__()
"""
DIVIDES = """
class Data(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        numbers = range(COUNT) if info is None else range(info.id, COUNT, info.num_workers)
        return map(augmented, numbers)
"""
#: As in torch's documentation, which divides when workers start.
DIVIDES_AT_START = """
class Data(IterableDataset):
    start, step = 0, 1
    def __iter__(self):
        return map(augmented, range(self.start, COUNT, self.step))

def divide(worker):
    info = get_worker_info()
    info.dataset.start, info.dataset.step = info.id, info.num_workers
"""
TOLD = """
class Data(IterableDataset):
    def __init__(self, num_workers):
        self.num_workers = num_workers
    def __iter__(self):
        info = get_worker_info()
        return map(augmented, range(info.id, COUNT, self.num_workers))
"""
#: Divides among two workers, whatever their number is.
FOR_TWO = """
class Data(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        numbers = range(info.id, COUNT, 2)
        random.Random(info.num_workers).random()
        return map(augmented, numbers)
"""
SHARDS = """
class Data(IterableDataset):
    files = None
    def __init__(self):
        self.files = ["/data/0.tar", "/data/1.tar"]
    def __iter__(self):
        info = get_worker_info()
        mine = self.files if info is None else self.files[info.id :: info.num_workers]
        return (augmented(number) for _ in mine for number in range(COUNT // 2))
"""
GENERATOR = """
class Data(Images):
    def __init__(self):
        self.rng = random.Random(0)
    def __getitem__(self, number):
        x, y = super().__getitem__(number)
        return x + self.rng.random(), y
"""
#: A seed that depends on the number of workers, as transformers' and mmengine's.
SEEDED = """
def start(worker, num_workers):
    assert get_worker_info().num_workers == num_workers
"""


def swept(
    place: Path, before: str, loader: str, *options: str, count: int = 100_000, epochs: int = 100_000
) -> dict[str, Any]:
    """The result of a sweep of every number of workers that may be tried."""
    text = SCRIPT.format(before=before, loader=f"DataLoader({loader}, batch_size=8)", count=count, epochs=epochs)
    options = options or ("--workers", "0,1,2")
    done = sweep(place, write(place, text), *options, "--prefetch", "2", "--grid", "--blocks", "0")
    assert done.returncode == 0, done.stderr
    return {**result_of(place), "text": done.stdout}


def outcomes(result: dict[str, Any]) -> dict[int, str]:
    """Number of workers -> ``measured``, or the kind of its failure."""
    return {
        row["candidate"]["num_workers"]: row["failure"]["kind"] if "failure" in row else "measured"
        for row in result["outcomes"]
        if row["role"] != "ceiling"
    }


MEASURED = {number: "measured" for number in (0, 1, 2)}
REPEATED = {**MEASURED, 2: "repeated_samples"}


@pytest.mark.parametrize(
    ("before", "loader", "expected", "said"),
    [
        pytest.param("", "Stream()", {0: "measured", 1: "measured"}, "get_worker_info", id="never asks"),
        pytest.param("", "Stream(), num_workers=2", {2: "measured"}, "each sample 2 times", id="the script's own two"),
        pytest.param(SEEDS, "Data()", REPEATED, "get_worker_info", id="asks to seed"),
        pytest.param(LOGS, "Data()", REPEATED, "two workers yield the same samples", id="asks to log"),
        pytest.param(DIVIDES, "Data()", MEASURED, "", id="divides"),
        pytest.param(DIVIDES_AT_START, "Data(), worker_init_fn=divide", MEASURED, "", id="divides when workers start"),
        pytest.param(TOLD, "Data(2), num_workers=2", {2: "measured"}, "was told theirs", id="told the number"),
        pytest.param(GENERATOR, "Data()", {0: "measured"}, "rng", id="a generator of its own"),
        pytest.param(
            SEEDED, "Images(), worker_init_fn=functools.partial(start, num_workers=0)", MEASURED, "", id="a seed"
        ),
    ],
)
def test_no_number_of_workers_is_recommended_that_would_change_the_training(
    place: Path, nobody_is_left: None, before: str, loader: str, expected: dict[int, str], said: str
) -> None:
    result = swept(place, before, loader)
    assert outcomes(result) == expected
    assert said in result["text"]
    recommended = (result.get("recommended") or result.get("nearest"))["candidate"]["num_workers"]
    assert expected[recommended] == "measured"


@pytest.mark.parametrize(
    ("before", "count", "epochs", "said"),
    [
        pytest.param(SHUFFLES, 64, 100_000, "64 with the script's own 0", id="many short epochs"),
        pytest.param(SHUFFLES, 120, 100_000, "120 with the script's own 0", id="fewer epochs"),
        pytest.param(SHUFFLES, 64, 3, "64 with the script's own 0", id="three epochs in each start"),
        pytest.param(SEEDS, 64, 3, "get_worker_info how many", id="three epochs, asks to seed"),
    ],
)
def test_workers_that_each_yield_a_whole_epoch_in_another_order_are_refused(
    place: Path, nobody_is_left: None, before: str, count: int, epochs: int, said: str
) -> None:
    result = swept(place, before, "Data()", count=count, epochs=epochs)
    assert outcomes(result) == REPEATED
    assert said in result["text"]


def test_fewer_workers_than_the_data_set_was_written_for_are_refused(place: Path, nobody_is_left: None) -> None:
    result = swept(place, FOR_TWO, "Data(), num_workers=2", "--workers", "1,2", count=160)
    assert outcomes(result) == {1: "other_epoch", 2: "measured"}


def test_no_more_workers_than_shards_are_tried(place: Path, nobody_is_left: None) -> None:
    result = swept(place, SHARDS, "Data()", "--workers", "0,2,3")
    assert outcomes(result) == {0: "measured", 2: "measured"}
    assert "more than 2 workers were not tried" in result["text"]


def test_what_decides_the_order_and_the_start_of_workers_stays_and_none_are_not_tried(
    place: Path, nobody_is_left: None
) -> None:
    result = swept(place, "", "Images(), num_workers=1, in_order=False", "--max-workers", "2")
    candidates = [row["candidate"] for row in result["outcomes"] if row["role"] != "ceiling"]
    assert {candidate["num_workers"] for candidate in candidates} == {1, 2}
    assert {candidate["in_order"] for candidate in candidates} == {False}
    assert len({candidate["start_method"] for candidate in candidates}) == 1
    assert not any(candidate["pin_memory"] for candidate in candidates), "there is no GPU"
