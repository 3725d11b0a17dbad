from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pipetune.hook import iteration_report as module
from pipetune.hook.iteration_report import (
    COMPARED,
    FETCH,
    MIN_COMPARED,
    WORKER,
    IterationReports,
    labels_in,
    read_reports,
    tells_apart,
)


@dataclass(frozen=True, slots=True)
class SlottedInfo:
    """As torch's since 2.14."""

    id: int
    num_workers: int
    seed: int


class OlderInfo:
    """As torch's before."""

    def __init__(self, id: int, num_workers: int, seed: int) -> None:
        self.id, self.num_workers, self.seed = id, num_workers, seed


class Fetcher:
    """As torch's ``_IterableDatasetFetcher``."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any]) -> None:
        self.collate_fn, self.auto_collation = collate_fn, auto_collation
        self.dataset_iter = iter(dataset)
        self.ended = False

    def fetch(self, indices: list[None]) -> Any:
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        data = []
        for _ in indices:
            try:
                data.append(next(self.dataset_iter))
            except StopIteration:
                self.ended = True
                break
        if not data:
            raise StopIteration
        return self.collate_fn(data)


class Process:
    """A process that iterates data sets: a loader worker where there is an ``info``."""

    def __init__(self, folder: Path, info: Any = None) -> None:
        self.folder = folder
        worker: Any = ModuleType(WORKER)
        worker.get_worker_info = lambda: info
        fetch: Any = ModuleType(FETCH)
        fetch._IterableDatasetFetcher = type("Fetcher", (Fetcher,), {})
        reports = IterationReports(str(folder))
        reports.on_module(worker)
        reports.on_module(fetch)
        self.ask, self.fetcher = worker.get_worker_info, fetch._IterableDatasetFetcher

    def iterate(self, dataset: Any, *, batch: int = 4, batches: int = 1000, collate: Any = list) -> list[Any]:
        fetcher, found = self.fetcher(dataset, True, collate), []
        for _ in range(batches):
            try:
                found.append(fetcher.fetch([None] * batch))
            except StopIteration:
                break
        return found

    def told(self, key: str) -> list[Any]:
        return [report[key] for report in read_reports(str(self.folder), os.getpid()) if key in report]


class Samples:
    """Calls a function each time it is iterated, then yields."""

    def __init__(self, values: list[Any], at_first: Callable[[], Any] = lambda: None) -> None:
        self.values, self.at_first = values, at_first

    def __iter__(self) -> Iterator[Any]:
        self.at_first()
        yield from self.values


def test_batches_are_as_without_us(tmp_path: Path) -> None:
    process = Process(tmp_path)
    assert process.iterate(Samples(list(range(6)))) == [[0, 1, 2, 3], [4, 5]]
    assert process.told("asked") == [False]


def test_without_workers_it_is_told_whether_the_data_set_has_asked(tmp_path: Path) -> None:
    process = Process(tmp_path)
    process.ask()  # the script itself, before it trains
    process.iterate(Samples([1, 2]))
    process.iterate(Samples([1, 2], at_first=process.ask))
    assert process.told("asked") == [False, True]
    assert process.told("counted") == [False, False]


@pytest.mark.parametrize("kind", [SlottedInfo, OlderInfo])
@pytest.mark.parametrize(
    ("read", "counted", "numbered"),
    [
        (lambda info: None, False, False),
        (lambda info: info.seed + info.id, False, True),
        (lambda info: info.num_workers, True, False),
        (lambda info: [getattr(info, name) for name in ("id", "num_workers")], True, True),
    ],
    ids=["only asks", "seeds", "divides", "divides by another way to read"],
)
def test_in_a_worker_it_is_told_whether_the_number_of_workers_was_read(
    tmp_path: Path, kind: Any, read: Callable[[Any], Any], counted: bool, numbered: bool
) -> None:
    process = Process(tmp_path, kind(1, 4, 7))
    process.iterate(Samples([1, 2], at_first=lambda: read(process.ask())))
    assert process.told("asked") == [True]
    assert process.told("counted") == [counted]
    assert process.told("numbered") == [numbered]


def test_what_is_handed_out_in_a_worker_is_what_torch_has(tmp_path: Path) -> None:
    info = SlottedInfo(1, 4, 7)
    given = Process(tmp_path, info).ask()
    assert isinstance(given, SlottedInfo)
    assert (given.id, given.num_workers, given.seed) == (1, 4, 7)


def test_who_divides_in_worker_init_fn_has_read_it_too(tmp_path: Path) -> None:
    process = Process(tmp_path, SlottedInfo(1, 4, 7))
    assert process.ask().num_workers == 4  # before the data set is iterated
    process.iterate(Samples([1, 2]))
    assert process.told("counted") == [True]


def test_questions_of_torch_itself_and_of_collating_are_not_the_data_sets(tmp_path: Path) -> None:
    process = Process(tmp_path)
    for name in ("torch.utils.data._utils.collate", "torch.utils.data.dataloader"):
        asks: dict[str, Any] = {"__name__": name, "ask": process.ask}
        exec("def at_first(): ask()", asks)
        process.iterate(Samples([1, 2], at_first=asks["at_first"]))
    process.iterate(Samples([1, 2]), collate=lambda batch: process.ask() or batch)
    assert process.told("asked") == [False, False, False]


def test_a_worker_of_a_fork_reports_to_a_file_of_its_own(tmp_path: Path) -> None:
    process = Process(tmp_path)
    pid = os.fork()
    if not pid:
        process.iterate(Samples([1, 2]))
        os._exit(0)
    os.waitpid(pid, 0)
    assert read_reports(str(tmp_path), os.getpid()) == []
    assert [report["asked"] for report in read_reports(str(tmp_path), pid) if "asked" in report] == [False]


def test_a_forked_worker_tells_of_its_epochs_however_many_the_script_itself_has_read(tmp_path: Path) -> None:
    process, dataset = Process(tmp_path), Samples([f"{number}" for number in range(MIN_COMPARED)])
    for _ in range(50):
        process.iterate(dataset)
    pid = os.fork()
    if not pid:
        process.iterate(dataset)
        os._exit(0)
    os.waitpid(pid, 0)
    assert len([report for report in read_reports(str(tmp_path), pid) if "values" in report]) == 1
    assert 0 < len(process.told("values")) < 50, "the file does not grow for ever"


def augmented(number: int) -> tuple[Any, int, dict[str, Any]]:
    """A sample whose pixels are random."""
    pixels = SimpleNamespace(shape=(3, 8, 8), dtype="torch.uint8", tolist=lambda: [random.random()])
    return pixels, number % 7, {"key": f"sample{number}", "crop": random.random()}


def test_the_same_samples_have_the_same_digests_whatever_was_drawn_for_their_pixels(tmp_path: Path) -> None:
    order = random.Random(3).sample(range(1000), 200)
    digests = []
    for numbers in (order, order, order[::-1]):
        process = Process(tmp_path)
        process.iterate(Samples([augmented(number) for number in numbers]), batches=COMPARED // 4)
        digests.append(process.told("values")[-1])
    assert set(digests[0]) == {"1", "2.key"}
    assert digests[0] == digests[1]
    assert not set(digests[0].items()) & set(digests[2].items())


def test_of_a_short_epoch_the_samples_it_has_are_compared(tmp_path: Path) -> None:
    process = Process(tmp_path)
    process.iterate(Samples([f"{number}" for number in range(MIN_COMPARED)]))
    process.iterate(Samples([f"{number}" for number in range(MIN_COMPARED - 1)]))
    assert len(process.told("values")) == 1


def test_what_cannot_be_looked_at_or_written_changes_nothing(tmp_path: Path) -> None:
    class Broken:
        @property
        def tolist(self) -> Any:
            raise RuntimeError

    process = Process(tmp_path / "not there")
    broken = [Broken()] * 4
    assert process.iterate(Samples(broken)) == [broken]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (list(range(64)), True),
        (random.Random(1).choices((0, 1), k=64), True),
        ([0] * 64, False),
        ([0] * 32 + [1] * 32, False),
        ([number % 10 for number in range(64)], False),
        (["a"] * 3, False),
    ],
    ids=["indices", "labels of two classes", "one class", "in the order of the classes", "classes in turn", "too few"],
)
def test_what_tells_samples_apart(values: list[Any], expected: bool) -> None:
    assert tells_apart(values) is expected


def test_labels_keys_and_indices_are_found_and_pixels_and_shares_are_not() -> None:
    row = SimpleNamespace(shape=(3,), dtype="int64", tolist=lambda: [1, 2, 3])
    pixels = SimpleNamespace(shape=(3, 8), dtype="uint8", tolist=lambda: [])
    shares = SimpleNamespace(shape=(3,), dtype="float32", tolist=lambda: [0.5])
    sample = {
        "key": "a",
        "n": 3,
        "labels": row,
        "pixels": pixels,
        "mixed": shares,
        "deep": [[{"x": [1]}]],
        "none": None,
    }
    assert dict(labels_in(sample)) == {"key": "a", "n": 3, "labels": [1, 2, 3]}
    assert dict(labels_in(5)) == {"": 5}


def test_data_pipes_are_divided_where_one_of_them_is_told_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    class DataPipe:
        def __init__(self, *sources: Any) -> None:
            self.sources = sources

    class Filter(DataPipe):
        def apply_sharding(self) -> None: ...

    def traverse(pipe: DataPipe) -> dict[int, Any]:
        return {id(pipe): (pipe, {key: value for source in pipe.sources for key, value in traverse(source).items()})}

    graph: Any = SimpleNamespace(DataPipe=DataPipe, traverse_dps=traverse)
    monkeypatch.setitem(module.sys.modules, "torch.utils.data.graph", graph)
    assert module.has_sharding_filter(DataPipe(DataPipe(), Filter(DataPipe())))
    assert not module.has_sharding_filter(DataPipe(DataPipe()))
    assert not module.has_sharding_filter(Samples([]))
