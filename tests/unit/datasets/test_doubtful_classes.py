"""Class folders that are probably none."""

from __future__ import annotations

import pytest

from pipetune.datasets.doubtful_classes import find_doubtful_classes


@pytest.mark.parametrize(
    ("classes", "doubtful"),
    [
        (("ant", "bee"), ()),
        (("plots", "train", "val"), ("train", "val")),
        (("bus", "train"), ()),
        (("train_images", "val_images"), ("train_images", "val_images")),
        (("images", "masks"), ("images", "masks")),
        (("JPEGImages", "SegmentationClass"), ("JPEGImages", "SegmentationClass")),
        (("gtFine", "leftImg8bit"), ("gtFine", "leftImg8bit")),
        (("gloves", "masks"), ()),
        (("fold_0", "fold_1"), ("fold_0", "fold_1")),
        (("fold_0", "ant"), ()),
        ((".ipynb_checkpoints", "@eaDir", "ant", "bee"), (".ipynb_checkpoints", "@eaDir")),
        ((".ipynb_checkpoints", "images"), (".ipynb_checkpoints",)),
        (("masks",), ()),
        ((), ()),
    ],
)
def test_names_that_are_probably_no_classes(classes: tuple[str, ...], doubtful: tuple[str, ...]) -> None:
    assert find_doubtful_classes(classes) == doubtful
