from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.hook.loop_iterator import iterator_class
from tests.unit.hook.fake_torch import loader_module


class Batches:
    """Two batches, and torch's own iterator."""

    def __init__(self) -> None:
        self.left = [1, 2]
        self.inner = SimpleNamespace(_workers=["a worker"], _num_workers=1, __len__=lambda: 5)
        self.began: list[Any] = []

    def next(self) -> Any:
        if not self.left:
            raise StopIteration
        return self.left.pop(0)

    def reset(self, loader: Any) -> None:
        self.began.append(loader)


def test_it_is_one_of_torchs_iterators_and_yields_what_it_is_given() -> None:
    module = loader_module()
    iterator: Any = iterator_class(module)(Batches())
    assert isinstance(iterator, module._BaseDataLoaderIter)
    assert iter(iterator) is iterator
    assert list(iterator) == [1, 2]


def test_attributes_are_those_of_torchs_own() -> None:
    iterator: Any = iterator_class(loader_module())(Batches())
    assert iterator._workers == ["a worker"]
    assert not hasattr(iterator, "_nothing_of_the_kind")


def test_they_are_those_of_the_iterator_of_the_moment() -> None:
    batches = Batches()
    iterator: Any = iterator_class(loader_module())(batches)
    batches.inner = SimpleNamespace(_workers=[], other=1)
    assert iterator._workers == []
    assert iterator.other == 1


def test_another_epoch_of_a_persistent_loader_is_told() -> None:
    batches = Batches()
    iterator: Any = iterator_class(loader_module())(batches)
    iterator._reset("the loader")
    iterator._reset("the loader", first_iter=True)
    assert batches.began == ["the loader", "the loader"]


def test_its_length_is_the_inner_ones() -> None:
    batches = Batches()
    batches.inner = range(5)  # type: ignore[assignment]
    assert len(iterator_class(loader_module())(batches)) == 5  # type: ignore[arg-type]


def test_a_copy_does_not_ask_itself_for_ever() -> None:
    iterator: Any = iterator_class(loader_module())(Batches())
    assert copy.copy(iterator)._workers == ["a worker"]
    empty = object.__new__(type(iterator))
    with pytest.raises(AttributeError):
        _ = empty._workers
