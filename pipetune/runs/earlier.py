"""What earlier versions stored, in today's terms: option values, names of causes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pipetune.candidates.varied import names_to_vary, value_of
from pipetune.diagnosis.causes import canonical_cause
from pipetune.records.sweep import THOROUGH
from pipetune.records.watch import Stall, Verdict, Window
from pipetune.units import parse_bytes, parse_duration, parse_names, parse_numbers

#: Options of a sweep that were stored under another name, as they were written on the command line.
_RENAMED = {"budget": "budget_s", "timeout": "timeout_s", "max_ram": "max_ram_bytes", "max_shm": "max_shm_bytes"}
_READ_TEXT: dict[str, Callable[[str], Any]] = {
    "backends": parse_names, "workers": parse_numbers, "prefetch": parse_numbers, "vary": names_to_vary,
    "cheapest": parse_names,
    "budget_s": parse_duration, "timeout_s": parse_duration, "max_ram_bytes": parse_bytes, "max_shm_bytes": parse_bytes,
}  # fmt: skip


def options_today(options: Mapping[str, Any]) -> dict[str, Any]:
    """A sweep's stored options as values. Runs of version 0.1 kept them as they were written on the command line.

    Raises:
        UsageError: a text is not what the option can be.
        ValueError, TypeError: the same.
    """
    values = {_RENAMED.get(name, name): value for name, value in options.items()}
    for name, read in _READ_TEXT.items():
        if isinstance(values.get(name), str):
            values[name] = read(values[name])
    values["fix"] = tuple(value_of(pair) if isinstance(pair, str) else tuple(pair) for pair in values.get("fix", ()))
    for name, only in (("effort", THOROUGH), ("ranks", 1), ("sync", "step"), ("bind", "none")):
        values.setdefault(name, only)  # there was no other
    return values


def window_today(window: Window) -> Window:
    """The window with today's names of causes."""
    return replace(
        window, verdicts=tuple(map(verdict_today, window.verdicts)), stalls=tuple(map(stall_today, window.stalls))
    )


def verdict_today(verdict: Verdict) -> Verdict:
    """The verdict with today's names of causes."""
    shares = tuple(replace(share, cause=canonical_cause(share.cause)) for share in verdict.shares)
    return replace(verdict, cause=canonical_cause(verdict.cause), shares=shares)


def stall_today(stall: Stall) -> Stall:
    """The stall with today's name of its cause."""
    return replace(stall, cause=canonical_cause(stall.cause))
