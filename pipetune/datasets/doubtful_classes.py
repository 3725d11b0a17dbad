"""Class folders that are probably no classes, by their names: splits, folds, images beside masks, hidden folders. Pure.

Their images are used, with the labels that ``ImageFolder`` gives them; a line says so, because a training on such
labels learns nothing and fails nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipetune.datasets.parts import PARTS

#: ``train``, ``val2017``, ``test_images``.
_SPLIT = re.compile(rf"({'|'.join(PARTS)}|unlabell?ed)([-_ ]?(images?|imgs?|data|set|split|\d+))*")
_FOLD = re.compile(r"(cv|fold|part|shard|split|batch)[-_ ]?\d+")
#: What is said of images in data sets for detection and segmentation, such as Pascal VOC, YOLO's and Cityscapes.
_ROLE = re.compile(
    r"(jpeg|png|color_?)?(images?|imgs?)|photos|pictures|rgb|leftimg8bit|rightimg8bit|masks?|(ground_?truths?|gts?)|"
    r"gt(fine|coarse)|labels?|annotations?|annots?|targets?|trimaps?|depths?|segmentations?|segmentation(class|object)|"
    r"seg|semantic|instances?"
)
#: Folders that systems and programs make.
_HIDDEN = re.compile(r"\..*|@eadir|\$recycle\.bin|lost\+found|__.*__|thumbs|thumbnails")


def find_doubtful_classes(names: Sequence[str]) -> tuple[str, ...]:
    """Those of the classes that are probably none, in their order.

    A hidden folder is doubtful among any others. Splits are where there are two or more of them. Folds, and words such
    as ``images`` and ``masks``, are only where all classes are called like that: one class may be called ``masks``.

    Args:
        names: of the class folders.
    """
    lowered = {name: name.lower() for name in names}
    doubtful = {name for name, lower in lowered.items() if _HIDDEN.fullmatch(lower)}
    rest = [name for name in names if name not in doubtful]
    splits = {name for name in rest if _SPLIT.fullmatch(lowered[name])}
    if len(splits) > 1:
        doubtful |= splits
    if len(rest) > 1:
        for pattern in (_FOLD, _ROLE):
            if all(pattern.fullmatch(lowered[name]) for name in rest):
                doubtful.update(rest)
    return tuple(name for name in names if name in doubtful)
