"""``--vary`` and ``--fix``: which settings of a loader a sweep tries, and which it keeps at one value."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pipetune.candidates.settings import (
    SETTINGS,
    TRANSFORMS_ON,
    ChosenValues,
    Setting,
    current_name,
    current_value,
)
from pipetune.errors import UsageError, did_you_mean
from pipetune.registry import (
    BACKENDS,
    EXACT_PSNR_DB,
    OWN,
    SCRIPT,
    USER,
    Backend,
    find_backend,
    installed_version,
    is_exact,
    why_missing,
    without_cuda,
)
from pipetune.units import parse_names

#: Written for ``--vary``: no setting, every setting.
NONE, ALL = "none", "all"
_WORDS = {"yes": True, "no": False, "default": None}


def settings(
    vary: Sequence[str] | None,
    fix: Iterable[tuple[str, Any]],
    *,
    backends: Collection[str],
    on_gpu: bool,
    places: Sequence[str] = (),
) -> ChosenValues:
    """The settings of a loader that a sweep tries, with their values.

    Args:
        vary: names; ``None``: those that are tried by default, as :data:`SETTINGS` has them.
        fix: names and the one value that each keeps.
        backends: that are swept.
        on_gpu: the accelerator is a CUDA device.
        places: where images can be augmented, of :data:`pipetune.augmentation.recipes.PLACES`; ``()``: they are not
            augmented beyond crops and flips.

    Raises:
        UsageError: there is no such setting, or it cannot have that value.
    """
    fixed = {_known("--fix", name): _allowed(_known("--fix", name), current_value(name, value)) for name, value in fix}
    varied = [name for name, setting in SETTINGS.items() if setting.by_default] if vary is None else [
        _known("--vary", name) for name in vary
    ]  # fmt: skip
    if SCRIPT.name in backends:  # the script decides the rest
        # Whether workers live on from epoch to epoch cannot be seen in one epoch, and hides changes from them.
        outside = [name for name, s in SETTINGS.items() if USER in s.loaders and name != "persistent_workers"]
        for name in varied:
            if name not in outside:
                raise UsageError(
                    f"--vary {name} has no effect on a script's own loader", hint=f"choose from {', '.join(outside)}"
                )
    elif OWN.name in backends:  # the user's own function decides the rest
        outside = [name for name, s in SETTINGS.items() if USER in s.loaders and not s.argument and not s.of_script]
        varied = [name for name in varied if name in outside]
    chosen = {name: _possible(SETTINGS[name], on_gpu=on_gpu) for name in varied}
    chosen |= {
        name: _possible(setting, on_gpu=on_gpu)[:1]
        for name, setting in SETTINGS.items()
        if setting.tried_first is not None and name not in varied and _may_have_effect(setting, backends)
    }
    chosen |= {name: (value,) for name, value in fixed.items()}
    chosen[TRANSFORMS_ON] = _places(varied, fixed, places)
    return tuple((name, chosen[name]) for name in SETTINGS if chosen.get(name))


def _places(varied: Collection[str], fixed: Mapping[str, Any], places: Sequence[str]) -> tuple[str, ...]:
    """Where images are augmented in this sweep; ``()``: they are not augmented beyond crops and flips.

    Raises:
        UsageError: a place was named that is not possible.
    """
    wanted = fixed.get(TRANSFORMS_ON)
    if wanted is None:
        return tuple(places) if TRANSFORMS_ON in varied else tuple(places[:1])
    if not places:
        raise UsageError(
            f"--fix {TRANSFORMS_ON}={wanted} has no effect on crops and flips", hint="add --augment randaugment"
        )
    if wanted not in places:
        raise UsageError(
            f"--fix {TRANSFORMS_ON}={wanted}: this emulated accelerator augments no images",
            hint="state the rate at which it does, e.g. --device 'emulated:1000?augment=20000'",
        )
    return (wanted,)


def names_to_vary(text: str) -> tuple[str, ...]:
    """``--vary``: names of settings, comma separated; ``none`` or ``all``."""
    if text.strip() in (NONE, ALL):
        return tuple(SETTINGS) if text.strip() == ALL else ()
    return parse_names(text)


def value_of(text: str) -> tuple[str, Any]:
    """``"transfer=float32"`` -> ``("transfer", "float32")``: a setting and its value as they are written.

    Raises:
        UsageError: there is no such setting, or it cannot have that value.
    """
    written, _, value = text.partition("=")
    name = _known("--fix", written)
    value = current_value(_plain(written), value.strip())
    setting = SETTINGS[name]
    found = [known for known in _possible(setting, on_gpu=True) if word(known) == value]
    if found:
        return name, found[0]
    return name, _allowed(name, _number(value) if setting.limits else value)


def word(value: Any) -> str:
    """A value as it is written on the command line."""
    return next((text for text, meant in _WORDS.items() if meant is value), str(value))


def _possible(setting: Setting, *, on_gpu: bool) -> tuple[Any, ...]:
    if setting.needs_cuda and not on_gpu:
        return ()
    return setting.tried


def _may_have_effect(setting: Setting, backends: Collection[str]) -> bool:
    needs = setting.needs_backend
    return needs is None or any(needs(find_backend(backend)) for backend in backends)


def _allowed(name: str, value: Any) -> Any:
    setting = SETTINGS[name]
    values = _possible(setting, on_gpu=True)
    if setting.limits is not None and isinstance(value, (int, float)) and not isinstance(value, bool):
        low, high = setting.limits
        if low <= value <= high:
            return value
    if not any(value == known and type(value) is type(known) for known in values):
        choices = ", ".join(f"{name}={word(known)}" for known in values)
        raise UsageError(f"--fix {name}={word(value)} is not a value of this setting", hint=f"choose from {choices}")
    return value


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _plain(name: str) -> str:
    return name.strip().replace("-", "_")


def _known(option: str, name: str) -> str:
    name = current_name(_plain(name))
    if name in SETTINGS:
        return name
    hint = did_you_mean(name, SETTINGS, otherwise=f"choose from {', '.join(SETTINGS)}, {NONE} or {ALL}")
    raise UsageError(f"{option}: a loader has no setting {name!r}", hint=hint)


def backends(
    names: Sequence[str] | None, *, exact: bool = False, on_gpu: bool = True
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The decode backends to sweep, and notes on those left out.

    Args:
        names: those that were asked for; ``None``: all that are installed.
        on_gpu: the accelerator is a CUDA device; without one, backends that need it are left out.
        exact: leave out those whose pixels differ from the reference's by more than ``EXACT_PSNR_DB`` allows.

    Raises:
        UsageError: a name that no backend has, or none is left.
    """
    if names is not None and OWN.name in names:
        raise UsageError(
            f"--backends {','.join(names)}: a loader of your own is swept from Python",
            hint="call pipetune.sweep(make_loader)",
        )
    if names is not None:
        chosen, without_device = _usable_ones(tuple(dict.fromkeys(find_backend(name).name for name in names)), on_gpu)
        chosen, inexact = _exact_ones(chosen, exact)
        return chosen, (*without_device, *inexact)
    usable = {name: backend for name, backend in BACKENDS.items() if on_gpu or without_cuda(backend) is None}
    present = tuple(name for name, backend in usable.items() if installed_version(backend))
    chosen, inexact = _exact_ones(present, exact)
    return chosen, (
        *_note_missing({name: backend for name, backend in usable.items() if name not in present}),
        *inexact,
    )


def _note_missing(missing: Mapping[str, Backend]) -> tuple[str, ...]:
    """One line on the backends that are left out because they are not there; empty: none is."""
    if len(missing) == 1:
        ((name, backend),) = missing.items()
        return (f"backend {name} {why_missing(backend)} and left out: {backend.install}",)
    parts = [f"{name} {why_missing(backend)} ({backend.install})" for name, backend in missing.items()]
    return (f"backends left out: {'; '.join(parts)}",) if parts else ()


def _usable_ones(names: tuple[str, ...], on_gpu: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those that this accelerator allows, and notes on the others.

    Raises:
        UsageError: it allows none.
    """
    reasons = {name: None if on_gpu else without_cuda(find_backend(name)) for name in names}
    notes = tuple(f"backend {name} is left out: {reason}" for name, reason in reasons.items() if reason is not None)
    chosen = tuple(name for name, reason in reasons.items() if reason is None)
    if not chosen:
        raise UsageError(notes[0], hint="name another one with --backends, or a device: --device cuda")
    return chosen, notes


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
