"""Stands in for the package msgspec on a machine that lacks it and can install nothing.

``convert`` builds records and checks nothing but that no field is missing, which suffices for records that pipetune
itself has just written. Timelines cannot be loaded with it. ``benchmarks/gpu/suite.py`` puts this folder on the path
only where the real package is absent, and says so in its result.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any


class MsgspecError(Exception):
    """The real package's base class."""


class ValidationError(MsgspecError):
    """A field is missing."""


def convert(data: Any, kind: Any) -> Any:
    """JSON values -> a record or another annotated type; unknown fields are left out.

    Raises:
        ValidationError: a field without a default is missing.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if data is None else convert(data, _fitting(data, arguments))
    if origin in (typing.Annotated, typing.Required, typing.NotRequired):
        return convert(data, arguments[0])
    if dataclasses.is_dataclass(kind):
        return _record(data, kind)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return tuple(convert(value, inner) for value, inner in zip(data, arguments, strict=True))
    if origin in (tuple, list, set, frozenset):
        return origin(convert(value, arguments[0]) for value in data)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {name: convert(value, arguments[1]) for name, value in data.items()}
    return float(data) if kind is float else data


def _record(data: Mapping[str, Any], kind: Any) -> Any:
    hints = _hints(kind)
    values = {field.name: convert(data[field.name], hints[field.name])
              for field in dataclasses.fields(kind) if field.name in data}  # fmt: skip
    try:
        return kind(**values)
    except TypeError as error:
        raise ValidationError(str(error)) from None


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _fitting(data: Any, kinds: tuple[Any, ...]) -> Any:
    """Which of a union's types a value is of."""
    for kind in kinds:
        shape = typing.get_origin(kind) or kind
        if dataclasses.is_dataclass(kind) or (isinstance(shape, type) and issubclass(shape, Mapping)):
            fits = isinstance(data, Mapping)
        elif shape in (tuple, list, set, frozenset):
            fits = isinstance(data, list)
        else:
            fits = shape is Any or (isinstance(shape, type) and isinstance(data, shape))
        if fits:
            return kind
    return float if float in kinds else type(data)
