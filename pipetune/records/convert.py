"""Records to plain JSON types and back: every field is checked for its type, unknown ones are ignored.

Why msgspec: it checks nested records by their annotations, names the field that is wrong, and takes microseconds.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import threading
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pipetune.records.candidate import Candidate, candidate_to_dict, with_loader

R = TypeVar("R")

#: msgspec finds out about a type when it first meets it, and two threads that do so at the same time end the process
#: (a segmentation fault of msgspec 0.22, seen in ``many_hosts.py``).
_ONE_AT_A_TIME = threading.Lock()

#: Record -> what brings its stored form, which an earlier version may have written, to today's fields.
_TODAY: dict[type[Any], Callable[[Mapping[str, Any]], dict[str, Any]]] = {Candidate: with_loader}


def to_dict(record: Any) -> dict[str, Any]:
    """A record as plain JSON types (tuples become lists when dumped)."""
    if isinstance(record, Candidate):
        return candidate_to_dict(record)
    return {field.name: _plain(getattr(record, field.name)) for field in dataclasses.fields(record)}


def from_dict(kind: type[R], data: Mapping[str, Any]) -> R:
    """The reverse of :func:`to_dict`. Unknown fields are ignored, so a newer minor version's files stay readable.

    Args:
        kind: a dataclass.
        data: as JSON has it.

    Raises:
        TypeError: a field without a default is missing, or a value is not of its field's type. The message names the
            field.
    """
    import msgspec

    try:
        with _ONE_AT_A_TIME:
            return msgspec.convert(_today(kind, data), kind)
    except msgspec.ValidationError as error:
        raise TypeError(_in_words(str(error))) from None
    except RecursionError:
        raise TypeError("it is nested too deeply") from None
    except UnicodeEncodeError:  # where a text is none, and would be named in the error
        raise TypeError("a value of another type was expected instead of a text that is not UTF-8") from None


def _in_words(message: str) -> str:
    """``'candidate.backend is missing'`` for ``'Object missing required field `backend` - at `$.candidate`'``."""
    text, _, place = message.partition(" - at `$")
    place = place.strip(".`")
    missing = re.fullmatch(r"Object missing required field `(\w+)`", text)
    if missing is not None:
        return f"{place}.{missing[1]} is missing".lstrip(".")
    text = text.replace("`", "")
    return f"{place}: {text[0].lower()}{text[1:]}" if place else text


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_dict(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    return {name: _plain(one) for name, one in value.items()} if isinstance(value, dict) else value


def _today(kind: Any, data: Any) -> Any:
    """``data`` with the fields of today's version, in nested records too."""
    if isinstance(data, list):
        return [_today(kind, one) for one in data]
    if not isinstance(data, Mapping):
        return data
    data = _TODAY[kind](data) if kind in _TODAY else data
    nested = {name: _today(inner, data[name]) for name, inner in _changed(kind) if name in data}
    return {**data, **nested} if nested else data


@functools.cache
def _changed(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Fields of a record that hold a record whose stored form may be an earlier one, and its type."""
    hints = typing.get_type_hints(kind)
    inner: list[tuple[str, Any]] = []
    for field in dataclasses.fields(kind):
        inner += [(field.name, hint) for hint in (hints[field.name], *typing.get_args(hints[field.name]))]
    return tuple((name, hint) for name, hint in inner if _is_record(hint) and (hint in _TODAY or _changed(hint)))


def _is_record(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint)
