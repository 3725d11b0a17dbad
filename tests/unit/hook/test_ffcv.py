"""FFCV's loaders, as its module makes them, without FFCV."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from pipetune.hook import ffcv
from pipetune.hook.ffcv import EpochSource, LoopIterator, described
from pipetune.hook.profile import Profile, Tuned
from pipetune.hook.tuned import _Guest
from pipetune.records.script import LoaderIdentity
from tests.unit.hook.fake_script import Script


def loader_module() -> Any:
    class Epoch:
        def __init__(self, loader: Any) -> None:
            self.loader, self.left = loader, list(range(loader.batches))

        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            if not self.left:
                raise StopIteration
            return self.left.pop(0)

    class Loader:
        def __init__(
            self, fname: str, batch_size: int, num_workers: int = -1, batches_ahead: int = 3, batches: int = 4
        ) -> None:
            self.fname, self.batch_size, self.batches_ahead, self.batches = fname, batch_size, batches_ahead, batches
            self.num_workers = num_workers if num_workers > 0 else 2
            self.epochs = 0

        def __iter__(self) -> Epoch:
            self.epochs += 1
            return Epoch(self)

        def __len__(self) -> int:
            return self.batches

    module: Any = ModuleType(ffcv.LOADER)
    module.Loader = Loader
    return module


def rest(source: EpochSource) -> list[Any]:
    found = []
    with contextlib.suppress(StopIteration):
        while True:
            found.append(source.next())
    return found


@pytest.mark.parametrize("kept", [0, 1, 4])
def test_epochs_are_as_long_as_they_are_whatever_happens_in_them(kept: int) -> None:
    kind = loader_module().Loader
    loader = kind("x.beton", 8, batches=2)
    source = EpochSource(loader, kind.__iter__)
    assert [source.next(), source.next()] == [0, 1]
    with pytest.raises(StopIteration):
        source.next()
    source.begin_epoch()
    source.kept.keep(source.next())
    source.replay()
    replayed = [source.next() for _ in range(min(kept, 1))]
    source.switch({})
    assert len(replayed + rest(source)) == 1
    source.begin_epoch()
    assert rest(source) == [0, 1]
    assert loader.epochs == 3
    with pytest.raises(ValueError, match="when it is made"):
        source.switch({"num_workers": 3})


def test_a_script_is_recognised_and_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    script, module = Script(monkeypatch), loader_module()
    script.session.on_module(module)
    train = module.Loader("x.beton", 8, num_workers=3, batches=30)
    val = module.Loader("x.beton", 8, batches=3)
    assert len(script.evaluate(val)) == 3
    assert len(script.evaluate(val)) == 3, "another epoch of it"
    assert script.channel.of("ready") == []
    iterator = iter(train)
    assert isinstance(iterator, LoopIterator)
    assert iterator.loader is train, "what FFCV's own has"
    epochs = 0
    while not script.channel.of("ready"):
        script.train(train)
        epochs += 1
        assert epochs < 3
    (ready,) = script.channel.of("ready")
    assert (ready["settings"]["num_workers"], ready["settings"]["prefetch_factor"]) == (3, 3)
    assert (ready["batch_size"], ready["batches"], ready["dataset"]) == (8, 30, "an FFCV file")
    assert ready["written"] == {"num_workers": "3"}
    assert (ready["switchable"], ready["names"]["prefetch_factor"]) == (False, "batches_ahead")
    assert ready["identity"]["sampler"] == "FFCV"
    assert len(script.evaluate(val)) == 3, "beside the one that is measured"


def test_run_tuned_makes_it_with_the_settings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    identity = LoaderIdentity(
        file=__file__, function="test_run_tuned_makes_it_with_the_settings", dataset=f"{ffcv.File.__module__}.File",
        sampler="FFCV", ordinal=0, position=(0, 0),
    )  # fmt: skip
    guest = _Guest(Profile((Tuned(identity, {"num_workers": 5, "prefetch_factor": 4}, False),), {}))
    module = loader_module()
    guest.on_module(module)
    loader = module.Loader("x.beton", 8, num_workers=3)
    assert (loader.num_workers, loader.batches_ahead) == (5, 4)
    assert list(loader) == [0, 1, 2, 3]
    assert type(iter(loader)).__name__ == "Epoch", "nothing of ours stays in the loop"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(": num_workers 3 -> 5, batches_ahead 3 -> 4")


def test_a_loader_without_a_known_place_is_described() -> None:
    found = described(loader_module().Loader("x.beton", 8), None)
    assert found["written"] == {}
    assert "pin_memory" in found["fixed"]
