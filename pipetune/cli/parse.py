"""Text of options turned into values: the only place of the command line that does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, overload

from pipetune.errors import UsageError

T = TypeVar("T")


@overload
def value(option: str, text: str, read: Callable[[str], T]) -> T: ...


@overload
def value(option: str, text: str | None, read: Callable[[str], T]) -> T | None: ...


def value(option: str, text: str | None, read: Callable[[str], T]) -> T | None:
    """An option's text as a value; ``None`` stays ``None``.

    Args:
        option: as it is written, e.g. ``--budget``.
        read: turns the text into the value.

    Raises:
        UsageError: ``read`` refuses the text; the error names the option.
    """
    if text is None:
        return None
    try:
        return read(text)
    except UsageError as error:
        named = error.message if error.message.startswith("--") else f"{option} {error.message}"
        raise UsageError(named, hint=error.hint) from None
