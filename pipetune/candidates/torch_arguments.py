"""A candidate in the arguments of torch's ``DataLoader``. Pure; does not import torch."""

from __future__ import annotations

from typing import Any

from pipetune.candidates.settings import SETTINGS, Setting, has_effect
from pipetune.records.sweep import Candidate

#: Arguments that are settings of a loader.
_SETTINGS: tuple[tuple[str, Setting], ...] = tuple(
    (setting.argument, setting) for setting in SETTINGS.values() if setting.argument is not None
)


def dataloader_arguments(candidate: Candidate) -> dict[str, Any]:
    """Argument -> value. Without workers torch allows no ``prefetch_factor`` and no workers that live on."""
    parallel = candidate.num_workers > 0
    return {
        "batch_size": candidate.batch_size,
        "num_workers": candidate.num_workers,
        "prefetch_factor": candidate.prefetch_depth if parallel else None,
        **{
            name: getattr(candidate, setting.name) if parallel else setting.without_workers
            for name, setting in _SETTINGS
        },
        "pin_memory": candidate.pin_memory,
    }


def written_arguments(candidate: Candidate) -> list[str]:
    """``['batch_size=64', 'num_workers=2', …]``: those that a training script has to write."""
    settings = dict(_SETTINGS)
    written = []
    for name, value in dataloader_arguments(candidate).items():
        setting = settings.get(name)
        if setting is None and (value is None or value is False):
            continue
        if setting is not None and (value in setting.unwritten or not has_effect(setting, candidate)):
            continue
        written.append(f"{name}={value!r}")
    return written
