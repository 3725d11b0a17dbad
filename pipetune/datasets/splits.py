"""A folder that holds the splits of a data set, as ``train`` and ``val``: the training split is the data set.

Splits are recognised where every folder that holds an image is named like one, as those of Keras, ImageNet, Roboflow
and COCO are (``train2017`` beside ``annotations``). With any other folder of images beside them they are classes: a
data set of vehicles may have the classes ``train`` and ``bus``.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import NamedTuple

from pipetune.datasets.folder_walk import ENDINGS, shown
from pipetune.datasets.parts import PARTS
from pipetune.errors import UsageError
from pipetune.records.audit import Audit

#: ``train``, ``val2017``, ``test_2014``.
_SPLIT_NAME = re.compile(rf"({'|'.join(PARTS)}|unlabell?ed)[-_]?(\d{{4}})?")
_TRAINING = "train"
#: Names that are looked at in another folder to see whether it holds an image.
_MAX_LOOKED_AT = 2000


class Split(NamedTuple):
    """The training split of a data set."""

    folder: str
    others: tuple[str, ...]
    """Names of the folders with the other splits."""

    def note_in(self, audit: Audit | None) -> Audit | None:
        """The account of the split's images, which says that they are a split."""
        if audit is None:
            return None
        return replace(audit, split=os.path.basename(self.folder), other_splits=self.others)


def find_training_split(root: str) -> Split | None:
    """The training split below ``root``; ``None``: its folders are no splits.

    Raises:
        UsageError: there are splits, and none or several of them to train with.
    """
    try:
        with os.scandir(root) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        folders = [entry.name for entry in listed if entry.is_dir() and not entry.name.startswith((".", "__"))]
    except OSError:
        return None  # scan_folder reports it
    splits = [name for name in folders if _SPLIT_NAME.fullmatch(name.lower())]
    rest = [name for name in folders if name not in splits]
    if not splits or any(_holds_image(os.path.join(root, name)) for name in rest):
        return None
    with_images = [name for name in splits if _holds_image(os.path.join(root, name))]
    if not with_images:
        return None
    training = [name for name in splits if PARTS.get(re.split(r"[^a-z]", name.lower())[0]) == _TRAINING]
    training = training if len(training) < 2 else [name for name in training if name in with_images]
    if len(training) == 1:
        return Split(os.path.join(root, training[0]), tuple(name for name in splits if name != training[0]))
    named = ", ".join(repr(name) for name in (training or splits))
    raise UsageError(
        f"{shown(root)} holds {'several training splits' if training else 'splits and none to train with'}: {named}",
        hint=f"name one of them: {os.path.join(root, (training or splits)[0])}",
    )


def _holds_image(folder: str) -> bool:
    looked_at = 0
    for _, _, names in os.walk(folder, followlinks=True):
        if any(name.lower().endswith(ENDINGS) and not name.startswith("._") for name in names):
            return True
        looked_at += 1 + len(names)
        if looked_at > _MAX_LOOKED_AT:
            break
    return False
