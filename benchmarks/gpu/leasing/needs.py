"""What stages need besides torch: whether it is here, and the command that installs it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipetune.registry import BACKENDS, installed_version, why_missing
from pipetune.sampler.stacks.dump import find_py_spy

PY_SPY = "py-spy"
#: In a stage's needs: every backend of the registry that decodes on a GPU.
GPU_DECODERS = "GPU decoders"


@dataclass(frozen=True, slots=True)
class Missing:
    """A package that is not here."""

    need: str
    reason: str
    command: str
    """Installs it."""


def expand_needs(needs: Iterable[str]) -> tuple[str, ...]:
    """The needs with ``GPU decoders`` replaced by the backends' names."""
    decoders = [backend.name for backend in BACKENDS.values() if backend.decodes_on_cuda]
    return tuple(name for need in needs for name in (decoders if need == GPU_DECODERS else [need]))


def find_missing(needs: Iterable[str]) -> list[Missing]:
    """The needs that are not fulfilled here: names of backends, or ``py-spy``."""
    missing = []
    for need in expand_needs(needs):
        if need == PY_SPY:
            if find_py_spy() is None:
                missing.append(Missing(need, "py-spy is not installed", "pip install py-spy"))
        elif need not in BACKENDS:
            missing.append(Missing(need, f"this version of pipetune has no backend {need}", "git pull"))
        elif installed_version(BACKENDS[need]) is None:
            missing.append(Missing(need, f"{need} {why_missing(BACKENDS[need])}", BACKENDS[need].install))
    return missing


def is_missing(need: str) -> bool:
    """Whether the need is not fulfilled here."""
    return bool(find_missing([need]))
