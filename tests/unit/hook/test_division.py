from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.hook.division import ONLY_NUMBERED, SAME_SAMPLES, UNDIVIDED, Division
from pipetune.hook.iteration_report import file_of

DATASET = object()
LOADER, PREPARED = SimpleNamespace(worker_init_fn=None), SimpleNamespace(worker_init_fn=print)


def iterator(*pids: int) -> Any:
    return SimpleNamespace(_workers=[SimpleNamespace(pid=pid) for pid in pids])


def report(folder: Path, pid: int, *reports: dict[str, Any], dataset: Any = DATASET) -> None:
    with open(file_of(str(folder), pid), "a") as file:
        for one in reports:
            file.write(json.dumps({"dataset": id(dataset), **one}) + "\n")


def first(*, asked: bool = True, counted: bool = True, numbered: bool = False, divided: bool = False) -> dict[str, Any]:
    return {"asked": asked, "counted": counted, "numbered": numbered, "divided": divided}


def request(workers: int, own: int = 0, samples: int | None = None) -> dict[str, Any]:
    return {"num_workers": workers, "own_workers": own, "own_epoch_samples": samples}


@pytest.fixture
def division(tmp_path: Path) -> Division:
    made = Division(str(tmp_path), DATASET)
    made.begin(request(2))
    return made


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        (first(), None),
        (first(counted=False), UNDIVIDED),
        (first(asked=False, counted=False), UNDIVIDED),
        (first(asked=False, counted=False, divided=True), None),
        (first(asked=False), None),
    ],
    ids=["divides", "asks for a seed", "never asks", "a sharding filter", "divided in worker_init_fn"],
)
def test_workers_that_do_not_ask_how_many_they_are_repeat_samples(
    tmp_path: Path, division: Division, told: dict[str, Any], fault: str | None
) -> None:
    report(tmp_path, 11, told)
    report(tmp_path, 12, told)
    assert division.find_fault(iterator(11, 12)) == fault
    division.begin(request(2))
    assert division.find_fault(iterator(11)) is None, "a single one yields each sample once"


def test_before_a_worker_has_reported_nothing_is_known(division: Division) -> None:
    assert division.find_fault(iterator(11, 12)) is None
    assert Division(None, DATASET).find_fault(iterator(11, 12)) is None


def test_two_workers_with_the_same_keys_repeat_samples_though_they_have_asked(
    tmp_path: Path, division: Division
) -> None:
    report(tmp_path, 11, first(), {"values": {"0": "a", "1": "b"}})
    report(tmp_path, 12, first(), {"values": {"0": "c", "1": "b"}})
    assert division.find_fault(iterator(11, 12)) == SAME_SAMPLES


def test_a_worker_of_the_next_epoch_may_have_the_keys_of_one_before(tmp_path: Path, division: Division) -> None:
    for pid, key in ((11, "a"), (12, "b"), (13, "a"), (14, "b")):
        report(tmp_path, pid, first(), {"values": {"0": key}})
    assert division.find_fault(iterator(11, 12)) is None
    assert division.find_fault(iterator(13, 14)) is None


def test_what_is_known_of_an_epoch_before_is_kept_until_the_measurement_ends(
    tmp_path: Path, division: Division
) -> None:
    assert division.find_fault(iterator(11, 12)) is None
    report(tmp_path, 11, first(counted=False))
    assert division.find_fault(iterator(13, 14)) == UNDIVIDED
    division.begin(request(2))
    assert division.find_fault(iterator(13, 14)) is None


@pytest.mark.parametrize(
    ("told", "prepared", "expected"),
    [
        (first(asked=False, counted=False), False, True),
        (first(asked=False, counted=False), True, False),
        (first(counted=False), False, False),
        (first(asked=False, counted=False, divided=True), False, False),
    ],
    ids=["never asks", "may be divided in worker_init_fn", "asks", "a sharding filter"],
)
def test_of_a_script_without_workers_it_is_known_from_its_own_process(
    tmp_path: Path, division: Division, told: dict[str, Any], prepared: bool, expected: bool
) -> None:
    report(tmp_path, os.getpid(), first(), dataset=object())  # that of an evaluation
    assert not division.is_undivided(iterator(), LOADER)
    report(tmp_path, os.getpid(), told)
    assert division.is_undivided(iterator(), PREPARED if prepared else LOADER) is expected


def test_a_data_set_for_the_scripts_own_number_asks_which_worker_it_is_in(tmp_path: Path, division: Division) -> None:
    for pid in (11, 12):
        report(tmp_path, pid, first(counted=False, numbered=True))
    division.begin(request(2, own=2))
    assert division.find_fault(iterator(11, 12)) is None
    assert not division.is_undivided(iterator(11, 12), LOADER)
    division.begin(request(2, own=3))
    assert division.find_fault(iterator(11, 12)) == UNDIVIDED, "with another number"
    division.begin(request(1, own=2))
    assert division.find_fault(iterator(11)) == ONLY_NUMBERED
    division.begin(request(1, own=0))
    assert division.find_fault(iterator(11)) is None, "a single one yields each sample once"


def test_of_a_script_with_workers_it_is_known_from_them(tmp_path: Path, division: Division) -> None:
    assert not division.is_undivided(iterator(11, 12), PREPARED)
    report(tmp_path, 11, first(counted=False))
    assert division.is_undivided(iterator(11, 12), PREPARED)
    report(tmp_path, 12, first())
    assert not division.is_undivided(iterator(11, 12), PREPARED)
