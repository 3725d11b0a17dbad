"""Objects of a stored file without what is not of its type: the one place where ``run.json`` and ``result.json`` are
checked.

Everything that fits is kept as it was read, fields of which nothing is known among it.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, TypeVar

from pipetune.records.convert import from_dict
from pipetune.store.numbers import bad_number, bad_record

R = TypeVar("R")

#: In place of a value that does not fit.
_NOTHING = object()
#: Values that are named as left out.
_MOST_PROBLEMS = 20


def checked(kind: type[R], data: Any) -> R:
    """A stored record.

    Raises:
        TypeError: it is not one, or has a number that nobody has measured; the message names the field.
    """
    record = from_dict(kind, data)
    problem = bad_record(record)
    if problem is not None:
        raise TypeError(problem)
    return record


def fitting(shape: Any, content: Mapping[str, Any], name: str) -> tuple[dict[str, Any], list[str]]:
    """The content without the values that are not of their types.

    Args:
        shape: a ``TypedDict``, a class of :mod:`pipetune.records.stored`.
        content: as JSON has it.
        name: of the file, for the problems.

    Returns:
        What is left, and one sentence for each value that was left out.
    """
    problems: list[str] = []
    kept = _object(shape, content, "", problems)
    if len(problems) > _MOST_PROBLEMS:
        problems[_MOST_PROBLEMS:] = [f"{len(problems) - _MOST_PROBLEMS} more values were left out"]
    return kept, [f"{name}: {problem}" for problem in problems]


def _object(shape: Any, content: Mapping[str, Any], place: str, problems: list[str]) -> dict[str, Any]:
    hints = _hints(shape)
    found = {}
    for key, value in content.items():
        where = f"{place}.{key}" if place else str(key)
        kept = _value(hints[key], value, where, problems) if key in hints else value
        if kept is not _NOTHING:
            found[key] = kept
    return found


def _value(hint: Any, value: Any, place: str, problems: list[str]) -> Any:
    """The value, or what of it fits."""
    choices = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, UnionType) else (hint,)
    if value is None and NoneType in choices:
        return None
    choices = tuple(choice for choice in choices if choice is not NoneType)
    if len(choices) == 1 and typing.is_typeddict(choices[0]) and isinstance(value, dict):
        kept = _object(choices[0], value, place, problems)
        lacking = [name for name in choices[0].__required_keys__ if name not in kept]
        return _left_out(place, f"it has no {lacking[0]}", problems) if lacking else kept
    if len(choices) == 1 and typing.get_origin(choices[0]) is list and isinstance(value, list):
        (part,) = typing.get_args(choices[0])
        parts = (_value(part, one, f"{place}[{number}]", problems) for number, one in enumerate(value))
        return [one for one in parts if one is not _NOTHING]
    if len(choices) == 1 and typing.get_origin(choices[0]) is dict and isinstance(value, dict):
        _, part = typing.get_args(choices[0])
        parts_of = {key: _value(part, one, f"{place}.{key}", problems) for key, one in value.items()}
        return {key: one for key, one in parts_of.items() if one is not _NOTHING}
    problem = _misfit(choices, value, place.rpartition(".")[2].partition("[")[0])
    return value if problem is None else _left_out(place, problem, problems)


def _misfit(choices: tuple[Any, ...], value: Any, name: str) -> str | None:
    """Why a value is of none of these types; ``None``: it is of one."""
    import msgspec

    problem = None
    for choice in choices:
        try:
            if dataclasses.is_dataclass(choice):
                if not isinstance(value, dict):
                    raise TypeError(f"expected object, got {_type_of(value)}")
                checked(typing.cast("type[Any]", choice), value)
                return None
            if choice is not Any and not (choice is str and isinstance(value, str)):
                msgspec.convert(value, choice)
            return bad_number(name, value)
        except (TypeError, UnicodeEncodeError, msgspec.ValidationError) as error:
            text = str(error).replace("`", "")
            problem = problem or text[:1].lower() + text[1:]
    return problem


def _left_out(place: str, why: str, problems: list[str]) -> Any:
    problems.append(f"{place} was left out: {why}")
    return _NOTHING


def _type_of(value: Any) -> str:
    return {NoneType: "null", list: "array"}.get(type(value), type(value).__name__)


@functools.cache
def _hints(shape: Any) -> dict[str, Any]:
    return typing.get_type_hints(shape)
