from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pipetune.hook.seams import patch_loader, sampler_class, when_imported
from pipetune.usercode.loader_view import view_of
from tests.unit.hook.fake_torch import Numbers, loader_module


class Guest:
    """Notes what it is asked, and answers as it is told."""

    def __init__(self, changes: dict[str, Any] | None = None, error: Exception | None = None) -> None:
        self.changes, self.error = changes, error
        self.functions: list[str] = []
        self.made_with: list[Any] = []
        self.iterated: list[Any] = []

    def arguments(self, frame: Any, arguments: dict[str, Any]) -> tuple[dict[str, Any] | None, Any]:
        self.functions.append(frame.f_code.co_name)
        if self.error is not None:
            raise self.error
        return (None, None) if self.changes is None else ({**arguments, **self.changes}, sorted(arguments))

    def made(self, loader: Any, known: Any) -> None:
        self.made_with.append((loader.num_workers, known))

    def iterator(self, loader: Any, original: Any) -> Any:
        self.iterated.append(loader)
        return original(loader)


def patched(guest: Guest, *, iterators: bool = True) -> tuple[Any, list[BaseException]]:
    module, complaints = loader_module(), []  # type: ignore[var-annotated]
    patch_loader(module.DataLoader, guest, complaints.append, iterators=iterators)
    return module.DataLoader, complaints


def test_arguments_are_told_by_name_and_may_be_changed() -> None:
    guest = Guest({"num_workers": 3})
    loader_class, complaints = patched(guest)
    loader = loader_class(Numbers(4), 2, True, num_workers=1)
    assert (loader.num_workers, loader.batch_size, type(loader.sampler).__name__) == (3, 2, "RandomSampler")
    assert guest.made_with == [(3, ["batch_size", "dataset", "num_workers", "shuffle"])]
    assert complaints == []


def test_a_guest_that_changes_nothing_leaves_the_call_as_it_is() -> None:
    guest = Guest(None)
    loader_class, _ = patched(guest)
    assert loader_class(Numbers(4), num_workers=1).num_workers == 1
    assert guest.made_with == []


def test_wrong_arguments_are_the_constructors_to_complain_of() -> None:
    guest = Guest({})
    loader_class, complaints = patched(guest)
    with pytest.raises(TypeError, match="workers"):
        loader_class(Numbers(4), workers=3)
    with pytest.raises(ValueError, match="workers"):
        loader_class(Numbers(4), prefetch_factor=3)
    assert complaints == []


@pytest.mark.parametrize(
    "error", [RuntimeError("mine"), TypeError("mine"), KeyError("mine")], ids=lambda e: type(e).__name__
)
def test_a_guest_that_fails_is_complained_of_and_the_script_gets_its_loader(error: Exception) -> None:
    loader_class, complaints = patched(Guest({"num_workers": 9}, error))
    assert loader_class(Numbers(4), num_workers=1).num_workers == 1
    assert complaints == [error]


def test_one_that_fails_after_the_loader_was_made_too() -> None:
    guest = Guest({})
    guest.made = lambda *_: 1 / 0  # type: ignore[assignment,method-assign]
    loader_class, complaints = patched(guest)
    assert len(loader_class(Numbers(4))) == 4
    assert [type(error) for error in complaints] == [ZeroDivisionError]


def test_the_frame_is_that_which_makes_the_loader_beyond_constructors_of_subclasses() -> None:
    guest = Guest({})
    loader_class, _ = patched(guest)

    class Mine(loader_class):  # type: ignore[misc,valid-type]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)

    class Data:
        def __init__(self) -> None:
            self.loader = Mine(Numbers(4))

    def build() -> Any:
        return Mine(Numbers(4))

    build()
    Data()  # a constructor, of something else
    assert guest.functions == ["build", "__init__"]


def test_the_constructor_looks_as_before_to_frameworks() -> None:
    import inspect

    before = inspect.signature(loader_module().DataLoader.__init__)
    loader_class, _ = patched(Guest({}))
    assert inspect.signature(loader_class.__init__) == before
    assert set(vars(loader_class(Numbers(4)))) == set(vars(loader_module().DataLoader(Numbers(4))))


def test_the_guest_makes_iterators_but_not_those_of_copies() -> None:
    guest = Guest({})
    loader_class, _ = patched(guest)
    loader = loader_class(Numbers(4))
    assert list(loader) == [[0], [1], [2], [3]]
    assert list(view_of(loader, {}, None)) == [[0], [1], [2], [3]]
    assert guest.iterated == [loader]


def test_iterators_are_torchs_own_where_they_are_not_asked_for() -> None:
    guest = Guest({})
    loader_class, _ = patched(guest, iterators=False)
    list(loader_class(Numbers(4)))
    assert guest.iterated == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "SequentialSampler"),
        ({"shuffle": True}, "RandomSampler"),
        ({"shuffle": False}, "SequentialSampler"),
        ({"sampler": Numbers(2), "shuffle": None}, "Numbers"),
        ({"batch_sampler": SimpleNamespace(sampler=Numbers(2))}, "Numbers"),
        ({"batch_sampler": [[1, 2]]}, "list"),
    ],
)
def test_the_class_of_the_sampler_is_known_before_there_is_one(arguments: dict[str, Any], expected: str) -> None:
    assert sampler_class(arguments) == expected


@pytest.fixture
def a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module that has not been imported."""
    (tmp_path / "not_yet_imported.py").write_text("made = []\nspec_then = __spec__\nloader_then = __loader__\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "not_yet_imported", raising=False)
    return "not_yet_imported"


def test_a_module_is_acted_on_once_it_was_imported(a_module: str) -> None:
    seen: list[ModuleType] = []
    when_imported([a_module, "json"], seen.append)
    assert [module.__name__ for module in seen] == ["json"]  # which has been
    imported = importlib.import_module(a_module)
    importlib.import_module(a_module)
    assert seen[1:] == [imported]
    assert imported.made == []  # its own code has run by then


def test_its_loader_is_the_real_one_while_it_runs_and_after(a_module: str) -> None:
    when_imported([a_module], lambda module: None)
    imported = importlib.import_module(a_module)
    assert type(imported.__loader__).__name__ == "SourceFileLoader"
    assert imported.spec_then.loader is imported.loader_then is imported.__loader__


def test_a_module_that_does_not_exist_is_still_not_found(a_module: str) -> None:
    when_imported(["not_there_at_all"], lambda module: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("not_there_at_all")


def test_one_that_raises_while_it_is_imported_raises_that(a_module: str, tmp_path: Path) -> None:
    (tmp_path / f"{a_module}.py").write_text("raise KeyError('its own')\n")
    seen: list[ModuleType] = []
    when_imported([a_module], seen.append)
    with pytest.raises(KeyError, match="its own"):
        importlib.import_module(a_module)
    assert seen == []


def test_what_we_do_with_it_cannot_break_the_import(a_module: str) -> None:
    """A torch without what we look for is imported as it would have been."""

    def act(module: ModuleType) -> None:
        raise AttributeError("_BaseDataLoaderIter")

    when_imported([a_module], act)
    assert importlib.import_module(a_module).made == []
