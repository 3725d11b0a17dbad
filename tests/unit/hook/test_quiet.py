from __future__ import annotations

import functools
import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.hook import quiet
from pipetune.hook.quiet import LONGER, lengthen, let_schedules_go_on, patch_length, refuse_checkpoints, true_length
from tests.unit.hook.fake_torch import Numbers, loader_module


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


class OneCycleLR:
    """Refuses what is beyond its last step, as torch's does."""

    def __init__(self, total_steps: int) -> None:
        self.total_steps, self.last_epoch = total_steps, -1
        self.step()

    def step(self, epoch: int | None = None) -> None:
        self.last_epoch += 1
        if self.last_epoch > self.total_steps:
            raise ValueError("beyond the last step")


def test_a_schedule_stays_where_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type("Cycle", (OneCycleLR,), {"step": OneCycleLR.step})
    schedulers: Any = SimpleNamespace(OneCycleLR=kind)
    monkeypatch.setitem(sys.modules, "torch.optim.lr_scheduler", schedulers)
    running = kind(3)
    let_schedules_go_on()
    steps = []
    for _ in range(5):
        running.step()
        steps.append(running.last_epoch)
    assert steps[:2] == [1, 2]
    assert steps[-1] <= 3
    assert kind(3).last_epoch == 0  # one that is made later, too


def test_without_schedules_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.optim.lr_scheduler", raising=False)
    let_schedules_go_on()


@pytest.fixture
def no_trainers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in quiet._BY_LENGTH:
        monkeypatch.delitem(sys.modules, name, raising=False)


def loader_of(*args: Any, **kwargs: Any) -> Any:
    kind = loader_module().DataLoader
    patch_length(kind)
    return kind(*args, **kwargs)


@pytest.mark.usefixtures("no_trainers")
def test_epochs_are_longer_where_a_trainer_counts_them_and_the_loader_shuffles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace())  # type: ignore[arg-type]
    train, val = loader_of(Numbers(5), 2, shuffle=True), loader_of(Numbers(5), 2)
    for loader in (train, val):
        lengthen(loader)
    assert len(train) == 3 * LONGER
    assert true_length(train) == 3
    assert len(val) == true_length(val) == 3


@pytest.mark.usefixtures("no_trainers")
def test_without_such_a_trainer_they_are_as_long_as_they_are() -> None:
    train = loader_of(Numbers(5), 2, shuffle=True)
    lengthen(train)
    assert len(train) == true_length(train) == 3


def test_a_length_that_is_not_there_or_fails_is_not_known() -> None:
    class Broken:
        def __len__(self) -> int:
            raise OSError("on another host")

    assert true_length(Broken()) is None
    assert true_length(object()) is None
    assert true_length(functools.partial(print)) is None
