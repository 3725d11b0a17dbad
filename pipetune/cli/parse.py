"""What the user wrote, checked and turned into what the library takes. Every error names the option and its value."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pipetune.errors import UsageError

METRICS = ("goodput", "nvml")
PRECISIONS = ("auto", "fp32", "amp", "bf16")
CACHES = ("warm", "cold")


def numbers(option: str, text: str, least: int) -> tuple[int, ...]:
    """``'0,1,2'`` -> sorted numbers, each once.

    Raises:
        UsageError: something else than whole numbers from ``least`` on.
    """
    try:
        values = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise UsageError(f"{option} {text!r} is no list of whole numbers", hint=f"write {option} 1,2,4") from None
    if values[0] < least:
        raise UsageError(f"{option} {values[0]} is below {least}", hint=f"write {option} {least},{least + 1}")
    return tuple(values)


def one_of(option: str, value: str, choices: tuple[str, ...]) -> str:
    """The value itself.

    Raises:
        UsageError: it is none of the choices.
    """
    if value not in choices:
        raise UsageError(f"{option} {value!r} is unknown", hint=f"choose from {', '.join(choices)}")
    return value


def within(option: str, value: float, allowed: Callable[[float], bool], hint: str) -> None:
    """Check a number.

    Raises:
        UsageError: it is not allowed.
    """
    if not allowed(value):
        raise UsageError(f"{option} {value:g} is out of range", hint=hint)


def names(option: str, text: str, choices: Collection[str]) -> tuple[str, ...]:
    """Comma-separated names, each once, in their order.

    Raises:
        UsageError: one of them is none of the choices, or there is none.
    """
    found = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not found:
        raise UsageError(f"{option} {text!r} names nothing", hint=f"choose from {', '.join(choices)}")
    for name in found:
        one_of(option, name, tuple(choices))
    return found
