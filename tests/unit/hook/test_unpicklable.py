from __future__ import annotations

import functools
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.hook.unpicklable import find_unpicklable, is_pickling_error


class Data:
    """Of the module, with what is set."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def load(self) -> None: ...


def collate(batch: Any) -> Any:
    return batch


def make_local() -> tuple[Callable[..., Any], Any]:
    def inner() -> None: ...

    class Inside: ...

    return inner, Inside()


LOCAL, INSIDE = make_local()
LAMBDA = lambda x: x  # noqa: E731
HERE = f"{Path(__file__).relative_to(Path.cwd())}"


@pytest.mark.parametrize(
    ("loader", "found"),
    [
        ({"collate_fn": LAMBDA}, f"collate_fn at {HERE}:{LAMBDA.__code__.co_firstlineno} is a lambda"),
        (
            {"dataset": Data(transform=Data(transforms=[collate, Data(lambd=LAMBDA)]))},
            f"dataset.transform.transforms[1].lambd at {HERE}:{LAMBDA.__code__.co_firstlineno} is a lambda",
        ),
        (
            {"worker_init_fn": functools.partial(collate, LOCAL)},
            f"worker_init_fn.args[0] at {HERE}:{LOCAL.__code__.co_firstlineno} is a function inside a function",
        ),
        ({"dataset": Data(items={"a": INSIDE})}, "dataset.items['a'] is of Inside, a class inside a function"),
        ({"dataset": Data(lock=threading.Lock())}, "dataset.lock is a lock"),
        ({"dataset": Data(lines=(x for x in "ab"))}, "dataset.lines is a generator"),
        ({"dataset": Data(numbers=pickle)}, "dataset.numbers is the module pickle"),
        ({"collate_fn": Data(f=LAMBDA).load}, "collate_fn.__self__.f at"),
    ],
)
def test_what_cannot_be_sent_is_found_with_its_place(loader: dict[str, Any], found: str) -> None:
    told = find_unpicklable(SimpleNamespace(**loader))
    assert told is not None
    assert told.startswith(found)


def test_an_open_file_is_named_and_what_can_be_sent_is_not() -> None:
    with Path(__file__).open() as file:
        told = find_unpicklable(SimpleNamespace(dataset=Data(file=file)))
    assert told == "dataset.file is an open TextIOWrapper"
    itself = Data(collate=collate, numbers=[1, 2.0, "a"], kind=Data)
    itself.itself = itself  # type: ignore[attr-defined]
    assert find_unpicklable(SimpleNamespace(dataset=itself, collate_fn=collate, worker_init_fn=None)) is None


@pytest.mark.parametrize("value", [LAMBDA, LOCAL, INSIDE, threading.Lock(), pickle, (x for x in "a")])
def test_what_pickling_raises_is_known(value: Any) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of several classes
        pickle.dumps(value)
    assert is_pickling_error(caught.value)
    assert not is_pickling_error(ValueError("no data"))
