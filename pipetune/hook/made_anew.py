"""Whether a loader is the one that is trained on, made anew for another epoch. Imports no torch."""

from __future__ import annotations

from typing import Any

from pipetune.hook.backward import gradients_enabled
from pipetune.hook.describe import true_length
from pipetune.hook.registry import Loaders

#: Data that are made anew for each epoch may be filtered otherwise: their lengths differ by no more than this share.
MAX_OTHER_LENGTH_FRAC = 0.1


def is_made_anew(loaders: Loaders, first: Any, loader: Any, *, was_alone: bool) -> bool:
    """Whether a loader takes the place of the first one, because the same call has made it.

    From the same data set; or from another one of the same class and about the same length, where the call had made no
    other loader when the training was recognised. Not to evaluate: gradients are not recorded then.

    Args:
        loaders: of the process.
        first: the loader that is trained on.
        was_alone: the call that made ``first`` had made no other one then.
    """
    known, now = loaders.of(first), loaders.of(loader)
    if known is None or now is None:
        return False
    if (known.identity.key, known.identity.position) != (now.identity.key, now.identity.position):
        return False
    if getattr(first, "dataset", known) is getattr(loader, "dataset", None):
        return True
    return was_alone and gradients_enabled() and _are_as_long(first, loader)


def _are_as_long(first: Any, loader: Any) -> bool:
    lengths = true_length(first), true_length(loader)
    if None in lengths:
        return lengths[0] == lengths[1]
    shorter, longer = sorted(length for length in lengths if length is not None)
    return shorter >= (1 - MAX_OTHER_LENGTH_FRAC) * longer
