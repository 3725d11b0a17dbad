"""``pipetune sweep --batch-size auto``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipetune.cli.sweep_batch import AUTO_BATCH, found_batch_size, parse_batch_size
from pipetune.errors import PipetuneError, UsageError
from pipetune.records.batch_size import BatchSizes
from pipetune.runs.load import load
from pipetune.scaling import batch_run
from pipetune.scaling.batch_folder import read_batch_sizes
from pipetune.scaling.batch_run import BatchOptions


def sizes(**changes: Any) -> BatchSizes:
    values = {
        "model": "resnet50", "image_size": 224, "device": "GPU", "precision": "bf16", "total_bytes": 1 << 33,
        "limit_bytes": 1 << 32, "predicted_largest": 700, "largest": 640, "knee": 256, "points": (),
        "fixed_bytes": None, "bytes_per_sample": None, "stopped": None, "notes": (),
    }  # fmt: skip
    return BatchSizes(**{**values, **changes})


@pytest.mark.parametrize(("text", "size"), [("64", 64), (" auto ", AUTO_BATCH), ("1", 1)])
def test_a_batch_size(text: str, size: int) -> None:
    assert parse_batch_size(text) == size


@pytest.mark.parametrize("text", ["0", "-8", "many", "1.5", ""])
def test_no_batch_size(text: str) -> None:
    with pytest.raises(UsageError, match="is no number of samples; write --batch-size 64, or --batch-size auto"):
        parse_batch_size(text)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_smallest_that_is_as_fast_is_taken_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    said: list[str] = []

    def find(chosen: Any, on_point: Any, on_next: Any, on_stop: Any, keep: Any) -> BatchSizes:
        seen.append(chosen)
        on_next(128)
        return sizes()

    monkeypatch.setattr(batch_run, "find_batch_size", find)
    asked = BatchOptions(image_size=160, precision="bf16", device="cuda:1", seed=3, compile=True)
    assert found_batch_size(asked, said.append) == 256
    assert seen == [asked]
    assert said == [
        "trying batches of 128",
        "batches of 256: the smallest that are as fast as any; 640 fit into the GPU's memory",
    ]


def test_what_came_to_no_end_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    stopped = sizes(knee=128, largest=128, stopped="the process hung", notes=("no GPU readings",))
    monkeypatch.setattr(batch_run, "find_batch_size", lambda *_: stopped)
    assert found_batch_size(BatchOptions(), said.append) == 128
    assert said == [
        "! no GPU readings", "! batches of 128 are the best so far; no others were tried: the process hung",
    ]  # fmt: skip


def test_where_none_could_be_measured_the_number_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_run, "find_batch_size", lambda *_: sizes(knee=None, largest=None))
    with pytest.raises(PipetuneError, match="no batch size of resnet50 could be measured; write the number"):
        found_batch_size(BatchOptions(), lambda line: None)


def test_an_interruption_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(chosen: Any, on_point: Any, on_next: Any, on_stop: Any, keep: Any) -> BatchSizes:
        keep(sizes(knee=None, stopped="it was killed"))
        on_stop(KeyboardInterrupt())
        return sizes()

    monkeypatch.setattr(batch_run, "find_batch_size", find)
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        found_batch_size(BatchOptions(), said.append)
    folder = Path(said[-1].removeprefix("batch sizes are kept in "))
    assert read_batch_sizes(load(folder)).stopped == "it was killed"


def test_a_disk_that_refuses_is_told_and_the_size_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def find(chosen: Any, on_point: Any, on_next: Any, on_stop: Any, keep: Any) -> BatchSizes:
        keep(sizes())
        return sizes()

    (tmp_path / "pipetune-runs").write_text("no folder")
    monkeypatch.setattr(batch_run, "find_batch_size", find)
    said: list[str] = []
    assert found_batch_size(BatchOptions(), said.append) == 256
    assert said[0].startswith("! batch sizes are not kept: ")
