"""``--vary`` and ``--fix``: which settings of a loader a sweep tries, and which it keeps at one value."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from pipetune.candidates import allocators
from pipetune.candidates.settings import KNOBS, Settings
from pipetune.errors import UsageError
from pipetune.registry import BACKENDS, EXACT_PSNR_DB, OWN, find_backend, installed_version, is_exact

NONE, ALL = "none", "all"
_WORDS = {"yes": True, "no": False, "default": None}


def settings(vary: str | None, fix: Sequence[str], *, backends: Sequence[str], on_gpu: bool) -> Settings:
    """The knobs of a sweep with their values.

    Args:
        vary: names, comma separated; ``none``; ``all``; or nothing: those that decide, as :data:`KNOBS` has them.
        fix: ``name=value``.
        backends: that are swept.
        on_gpu: the accelerator is a CUDA device.

    Raises:
        UsageError: a name or a value that there is not.
    """
    fixed = dict(_fixed(text) for text in fix)
    names = _names(vary)
    if OWN.name in backends:  # what else there is, the user's own function decides
        names = [name for name in names if name == "allocator"]
    chosen = {name: _possible(name, on_gpu=on_gpu) for name in names}
    chosen |= {name: (value,) for name, value in fixed.items()}
    return tuple((name, chosen[name]) for name in KNOBS if chosen.get(name))


def word(value: Any) -> str:
    """A value as it is written on the command line."""
    return next((text for text, meant in _WORDS.items() if meant is value), str(value))


def _names(vary: str | None) -> list[str]:
    if vary is None:
        return [name for name, knob in KNOBS.items() if knob.by_default]
    if vary.strip() in (NONE, ALL):
        return list(KNOBS) if vary.strip() == ALL else []
    return [_known("--vary", name.strip()) for name in vary.split(",")]


def _possible(name: str, *, on_gpu: bool) -> tuple[Any, ...]:
    if name == "allocator":
        return allocators.available()
    return () if name == "hw_decoder_load" and not on_gpu else KNOBS[name].values


def _fixed(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    name = _known("--fix", name.strip())
    values = _possible(name, on_gpu=True)
    found = [known for known in values if word(known) == value.strip()]
    if name == "hw_decoder_load" and not found:
        found = [share] if (share := _share(value)) is not None else []
    if not equals or not found:
        choices = ", ".join(f"{name}={word(known)}" for known in values)
        raise UsageError(f"--fix {text!r} is no value that it can have", hint=f"choose from {choices}")
    return name, found[0]


def _share(text: str) -> float | None:
    try:
        return share if 0 <= (share := float(text)) <= 1 else None
    except ValueError:
        return None


def _known(option: str, name: str) -> str:
    name = name.replace("-", "_")
    if name in KNOBS:
        return name
    near = difflib.get_close_matches(name, KNOBS, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(KNOBS)}, {NONE} or {ALL}"
    raise UsageError(f"{option}: a loader has no setting {name!r}", hint=hint)


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
