"""Which part of a loader cannot be sent to a worker that is spawned, and where it was written.

The parts are judged by their types, and nothing is pickled: a data set may hold all of its images.
"""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Iterator, Mapping
from types import FunctionType, GeneratorType, ModuleType
from typing import Any

#: What a loader sends to its workers.
_SENT = ("dataset", "collate_fn", "worker_init_fn")
#: Parts that are looked at, and items of one container.
_MAX_PARTS, _MAX_ITEMS = 10_000, 100
#: Types of what is open in this process alone, by module and name.
_UNSENDABLE = {
    ("_io", "TextIOWrapper"),
    ("_io", "BufferedReader"),
    ("_io", "BufferedRandom"),
    ("_io", "FileIO"),
    ("sqlite3", "Connection"),
    ("socket", "socket"),
    ("h5py", "File"),
    ("lmdb", "Environment"),
    ("tarfile", "TarFile"),
}
#: Texts of the errors that pickling raises; Python has no class for all of them.
_ERRORS = ("Can't pickle", "Can't get local object", "cannot pickle", "can't pickle", "h5py objects cannot be pickled")


def is_pickling_error(error: BaseException) -> bool:
    """Whether an exception is one of pickling."""
    return type(error).__name__ == "PicklingError" or any(text in str(error) for text in _ERRORS)


def find_unpicklable(loader: Any) -> str | None:
    """What cannot be sent: ``collate_fn at script.py:12 is a lambda``; ``None``: nothing that is known by its type."""
    waiting = deque((name, getattr(loader, name, None)) for name in _SENT)
    seen = set[int]()
    while waiting and len(seen) < _MAX_PARTS:
        name, value = waiting.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        fault = _fault_of(value)
        if fault is not None:
            return f"{name}{fault}"
        waiting.extend((f"{name}{path}", part) for path, part in _parts_of(value))
    return None


def _fault_of(value: Any) -> str | None:
    """``" at script.py:12 is a lambda"``; ``None``: such a value can be sent."""
    if isinstance(value, FunctionType):
        code = value.__code__
        place = f" at {_short(code.co_filename)}:{code.co_firstlineno}"
        if value.__name__ == "<lambda>":
            return f"{place} is a lambda"
        return f"{place} is a function inside a function" if "<locals>" in value.__qualname__ else None
    kind = type(value)
    if isinstance(value, ModuleType):
        return f" is the module {value.__name__}"
    if isinstance(value, GeneratorType):
        return " is a generator"
    if "<locals>" in kind.__qualname__:
        return f" is of {kind.__qualname__.rpartition('.')[2]}, a class inside a function"
    if kind.__module__ == "_thread" and "lock" in kind.__name__.lower():
        return " is a lock"
    if (kind.__module__.partition(".")[0], kind.__name__) in _UNSENDABLE:
        return f" is an open {kind.__name__}"
    return None


def _parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    """What a value holds, each with its place: ``.transform``, ``[2]``."""
    if isinstance(value, functools.partial):
        yield ".func", value.func
        yield from ((f".args[{number}]", part) for number, part in enumerate(value.args))
        yield from ((f".keywords[{name!r}]", part) for name, part in value.keywords.items())
        return
    if isinstance(value, Mapping):
        yield from ((f"[{name!r}]", part) for _, (name, part) in zip(range(_MAX_ITEMS), value.items(), strict=False))
        return
    if isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{number}]", part) for number, part in zip(range(_MAX_ITEMS), value, strict=False))
        return
    owner = getattr(value, "__self__", None)  # of a method
    if owner is not None and not isinstance(owner, ModuleType | type):
        yield ".__self__", owner
    if not isinstance(value, FunctionType | type):
        attributes = getattr(value, "__dict__", None)
        yield from ((f".{name}", part) for name, part in (attributes or {}).items())


def _short(path: str) -> str:
    here = os.getcwd().rstrip("/") + "/"
    return path.removeprefix(here)
