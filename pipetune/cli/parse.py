"""What the user wrote, checked and turned into what the library takes. Every error names the option and its value."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pipetune.errors import UsageError
from pipetune.registry import BACKENDS, EXACT_PSNR_DB, OWN, find_backend, installed_version, is_exact

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


def backends(text: str | None, *, exact: bool = False) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """``--backends`` -> (names, notes on those left out). Without the option: all that are installed.

    Args:
        exact: leave out those whose pixels differ from the reference's by more than ``EXACT_PSNR_DB`` allows.

    Raises:
        UsageError: a name that no backend has, or none is left.
    """
    if text is not None and OWN.name in (name.strip() for name in text.split(",")):
        raise UsageError(
            f"--backends {text}: a loader of your own is swept from Python", hint="call pipetune.sweep(make_loader)"
        )
    if text is not None:
        return _exact_ones(tuple(dict.fromkeys(find_backend(name.strip()).name for name in text.split(","))), exact)
    present = tuple(name for name, backend in BACKENDS.items() if installed_version(backend))
    notes = tuple(
        f"backend {name} is not installed and left out: {backend.install}"
        for name, backend in BACKENDS.items()
        if name not in present
    )
    chosen, inexact = _exact_ones(present, exact)
    return chosen, (*notes, *inexact)


def _exact_ones(names: tuple[str, ...], exact: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those that ``--exact`` leaves, and notes on the others."""
    left_out = [find_backend(name) for name in names if exact and not is_exact(find_backend(name))]
    notes = tuple(
        f"backend {backend.name} is left out by --exact: its pixels are {backend.deviation.psnr_db:g} dB from "
        f"Pillow's, below {EXACT_PSNR_DB:g} dB"
        for backend in left_out
        if backend.deviation is not None
    )
    chosen = tuple(name for name in names if find_backend(name) not in left_out)
    if not chosen:
        raise UsageError("--exact leaves none of these backends", hint="add pillow to --backends")
    return chosen, notes


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
