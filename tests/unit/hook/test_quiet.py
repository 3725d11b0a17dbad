from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.hook import quiet
from pipetune.hook.quiet import refuse_checkpoints


class Torch:
    """What ``torch.save`` is, and what it was given."""

    def __init__(self) -> None:
        self.saved: list[Any] = []
        self.serialization = SimpleNamespace(save=self._save)
        self.save = self._save

    def _save(self, obj: Any, f: Any, pickle_protocol: int = 2) -> None:
        self.saved.append((obj, f, pickle_protocol))


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    made = Torch()
    monkeypatch.setitem(sys.modules, "torch", made)  # type: ignore[arg-type]
    for name, *_ in quiet._SAVING:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delitem(sys.modules, "safetensors.torch", raising=False)
    return made


def test_saving_to_a_path_is_told_and_not_done(torch: Torch) -> None:
    told: list[str] = []
    refuse_checkpoints(told.append)
    torch.save({}, "a.pth")
    torch.save(obj={}, f=Path("b.pth"))
    torch.serialization.save({}, b"c.pth", pickle_protocol=4)
    assert told[:2] == ["a.pth", "b.pth"]
    assert len(told) == 3
    assert torch.saved == []


def test_saving_to_an_open_file_is_told_by_its_name(torch: Torch, tmp_path: Path) -> None:
    told: list[str] = []
    refuse_checkpoints(told.append)
    with (tmp_path / "d.pth").open("wb") as file:
        torch.save({}, file)
    assert told == [str(tmp_path / "d.pth")]


def test_a_worker_that_was_forked_from_it_may_save(torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    files = SimpleNamespace(serialize_file=lambda tensors, filename, metadata=None: torch.saved.append(filename))
    monkeypatch.setitem(sys.modules, "safetensors.torch", files)  # type: ignore[arg-type]
    refuse_checkpoints(told.append)
    monkeypatch.setattr(quiet.os, "getpid", lambda: 1)
    torch.save({}, "cache/12.pth")
    files.serialize_file({}, "cache/12.safetensors", metadata={})
    assert torch.saved == [({}, "cache/12.pth", 2), "cache/12.safetensors"]
    assert told == []


def test_saving_into_memory_goes_on(torch: Torch) -> None:
    told: list[str] = []
    refuse_checkpoints(told.append)
    memory = io.BytesIO()
    torch.save({"a": 1}, memory, pickle_protocol=5)
    assert torch.saved == [({"a": 1}, memory, 5)]
    assert told == []


def test_libraries_that_save_by_themselves_are_told_before_they_do(
    torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TorchCheckpointIO:
        def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
            raise AssertionError("it has saved")

    class Trainer:
        def _save_checkpoint(self, model: Any, trial: Any) -> None:
            raise AssertionError("it has saved")

        def save_model(self, output_dir: Any = None) -> None:
            raise AssertionError("it has saved")

    lightning = SimpleNamespace(TorchCheckpointIO=TorchCheckpointIO)
    monkeypatch.setitem(sys.modules, "lightning.fabric.plugins.io.torch_io", lightning)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "transformers.trainer", SimpleNamespace(Trainer=Trainer))  # type: ignore[arg-type]
    safetensors = SimpleNamespace(serialize_file=None)
    monkeypatch.setitem(sys.modules, "safetensors.torch", safetensors)  # type: ignore[arg-type]
    told: list[str] = []
    refuse_checkpoints(told.append)
    TorchCheckpointIO().save_checkpoint({}, Path("last.ckpt"))
    Trainer()._save_checkpoint(None, None)
    Trainer().save_model()
    safetensors.serialize_file({}, "model.safetensors", metadata=None)  # type: ignore[misc]
    assert told[0] == "last.ckpt"
    assert told[3] == "model.safetensors"
    assert len(told) == 4


def test_it_is_told_where_its_path_is_given_by_name_too(torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    class TorchCheckpointIO:
        def save_checkpoint(self, checkpoint: Any, path: Any) -> None:
            raise AssertionError("it has saved")

    module = SimpleNamespace(TorchCheckpointIO=TorchCheckpointIO)
    monkeypatch.setitem(sys.modules, "lightning.fabric.plugins.io.torch_io", module)  # type: ignore[arg-type]
    told: list[str] = []
    refuse_checkpoints(told.append)
    TorchCheckpointIO().save_checkpoint({}, path="last.ckpt")
    assert len(told) == 1
