"""fastai's loaders, as its module makes them: a stand-in for torch, with fastai's own loader behind it."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

from pipetune.hook.fastai import outer, patch_load, patch_optimizer


class Loader:
    def __init__(self, dataset: Any = None, bs: int = 4, num_workers: int = 0, **kwargs: Any) -> None:
        self.dataset, self.bs, self.given = dataset, bs, kwargs
        self.fake_l = SimpleNamespace(d=self, num_workers=num_workers)


def load_module() -> Any:
    module: Any = ModuleType("fastai.data.load")
    module.DataLoader = Loader
    module._loaders = (lambda loader: ("several", loader), lambda loader: ("alone", loader))
    return module


class Guest:
    def __init__(self) -> None:
        self.iterated: list[Any] = []
        self.changes: dict[str, Any] = {}

    def arguments(self, frame: Any, arguments: dict[str, Any]) -> tuple[dict[str, Any] | None, Any]:
        return {**arguments, **self.changes}, "known"

    def made(self, loader: Any, known: Any) -> None:
        pass

    def iterator(self, loader: Any, original: Any) -> Any:
        self.iterated.append(loader)
        return original(loader)


def patched(guest: Guest, monkeypatch: Any, *, iterators: bool = True) -> Any:
    module = load_module()
    monkeypatch.setattr(Loader, "__init__", Loader.__init__)  # what is patched is put back
    patch_load(module, guest, lambda error: None, iterators=iterators)
    return module


def test_the_guest_makes_its_iterators_with_and_without_workers(monkeypatch: Any) -> None:
    guest = Guest()
    module = patched(guest, monkeypatch)
    for workers, kind in ((0, "alone"), (2, "several")):
        loader = module.DataLoader("data", num_workers=workers)
        made = module._loaders[loader.fake_l.num_workers == 0](loader.fake_l)
        assert made == (kind, loader.fake_l)
    assert len(guest.iterated) == 2


def test_settings_that_it_does_not_take_are_left_out(monkeypatch: Any) -> None:
    guest = Guest()
    guest.changes = {"num_workers": 3, "prefetch_factor": 4}
    loader = patched(guest, monkeypatch, iterators=False).DataLoader("data", own="kept")
    assert loader.fake_l.num_workers == 3
    assert loader.given == {"own": "kept"}


def test_fastais_loader_is_behind_its_stand_in() -> None:
    loader = Loader("data")
    assert outer(loader.fake_l) is loader
    assert outer(loader) is loader


def test_its_optimizers_steps_are_counted_after_they_were_made() -> None:
    done: list[str] = []

    class Optimizer:
        def step(self) -> None:
            done.append("step")

    patch_optimizer(SimpleNamespace(Optimizer=Optimizer), lambda: done.append("counted"))  # type: ignore[arg-type]
    Optimizer().step()
    assert done == ["step", "counted"]
