"""Arguments of functions as the command's options have them."""

from __future__ import annotations

from collections.abc import Iterable

Values = str | int | float | Iterable[str | int | float] | None


def text_of(values: Values, between: str = ",") -> str | None:
    """As the option has it."""
    if values is None or isinstance(values, str):
        return values
    if isinstance(values, (int, float)):
        return f"{values:.15g}"
    return between.join(value if isinstance(value, str) else f"{value:.15g}" for value in values)
