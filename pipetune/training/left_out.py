"""What a training leaves out of a data set, and the warnings that say so: images are never left out in silence."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipetune.datasets.image_notes import count_noun, list_folder_notes, list_label_notes
from pipetune.datasets.index import ImageSet
from pipetune.errors import UsageError

#: So many files that are left out are named.
_MAX_NAMED = 5


def find_undecodable(known: Mapping[str, Any], images: ImageSet) -> list[str]:
    """Paths of the images that a sweep has found not to decode, also where the data set lies elsewhere now.

    Args:
        known: of the run, from :func:`pipetune.training.choice.choose_candidate`; empty: there is none.
        images: of the training.
    """
    names = {os.path.relpath(path, known["root"]) for path in known.get("undecodable", ())}
    unusable = {os.path.join(images.root, name) for name in names}
    return [image.path for image in images.images if image.path in unusable] if unusable else []


def leave_out_images(images: ImageSet, paths: Collection[str | Path]) -> ImageSet:
    """The data set without some images.

    Raises:
        UsageError: none would be left.
    """
    if not paths:
        return images
    unwanted = {os.path.abspath(path) for path in paths}
    kept = tuple(image for image in images.images if image.path not in unwanted)
    if not kept:
        raise UsageError("leave_out names every image", hint="name fewer of them")
    return replace(images, images=kept)


def warn_of_data(images: ImageSet, undecodable: Sequence[str]) -> None:
    """Warn the caller's caller of what is left out, and of labels.

    Args:
        undecodable: from :func:`find_undecodable`.
    """
    left_out = [*((path, "did not decode in the sweep") for path in undecodable), *images.skipped]
    count = len(undecodable) + images.skipped_count
    if count:
        named = "; ".join(f"{path!r}: {reason}" for path, reason in left_out[:_MAX_NAMED])
        more = f"; and {count - _MAX_NAMED} more" if count > _MAX_NAMED else ""
        warnings.warn(f"pipetune leaves out {count_noun(count, 'file', 'files')}: {named}{more}", stacklevel=3)
    labels = () if images.audit is None else list_label_notes(images.audit)
    for note in (*list_folder_notes(images), *labels):
        warnings.warn(note, stacklevel=3)
