"""A filled-in record of any kind, made from its type hints, so that a new field is covered without a line here."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, TypeVar

from pipetune.records.sweep import Candidate, Failure, Measurement, Outcome

R = TypeVar("R")


def sample(kind: type[R], **changes: Any) -> R:
    """Every field set, nested records too, no two numbers or texts alike; ``changes`` replaces fields."""
    counter = iter(range(1, 1000))
    filled: R = dataclasses.replace(_fill(kind, "", counter), **changes)
    return filled


def outcome(number: int = 1, **changes: Any) -> Outcome:
    """A measured outcome whose candidate has that many workers."""
    candidate = Candidate(backend="opencv", num_workers=number, prefetch_depth=2, batch_size=64)
    return dataclasses.replace(sample(Outcome, candidate=candidate, failure=None), **changes)


def failed(number: int = 1) -> Outcome:
    return outcome(number, measurement=None, failure=sample(Failure))


def measured(**changes: Any) -> Outcome:
    return outcome(measurement=sample(Measurement, **changes))


def _fill(hint: Any, name: str, counter: typing.Iterator[int]) -> Any:
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return hint(**{f.name: _fill(hints[f.name], f.name, counter) for f in dataclasses.fields(hint)})  # type: ignore[operator]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _fill(next(a for a in arguments if a is not type(None)), name, counter)
    if origin is tuple:
        members = (arguments[0],) * 2 if arguments[-1] is Ellipsis else arguments
        return tuple(_fill(member, name, counter) for member in members)
    if origin is dict:
        return {f"{name} {next(counter)}": _fill(arguments[1], name, counter)}
    plain = {
        bool: True,
        int: next(counter),
        float: next(counter) + 0.5,
        str: f"{name} é {next(counter)}",
        Any: f"any {next(counter)}",
    }
    return plain[hint]
