"""Containers as collate functions make them, made anew with other contents. Standard library only."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any


def with_items(value: Any, change: Callable[[Any], Any]) -> Any:
    """A new container of the same kind, with ``change`` applied to each item; what is none is returned as it is."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(change(item) for item in value))
    if type(value) in (list, tuple):
        return type(value)(change(item) for item in value)
    if isinstance(value, dict):
        try:
            made = value.copy() if type(value) is dict else copy.copy(value)  # a default factory and the like stay
            made.update((name, change(item)) for name, item in value.items())
        except Exception:  # a class of the user's that cannot be copied
            return value
        return made
    if isinstance(value, Mapping) and hasattr(value, "data") and isinstance(value.data, dict):  # BatchEncoding …
        try:
            made_of: Any = type(value)
            return made_of(with_items(dict(value.data), change))
        except Exception:  # a class of the user's with another constructor
            return value
    return value
