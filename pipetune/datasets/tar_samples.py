"""Which members of a tar file belong together: images and their labels, by WebDataset's rule for names. Pure.

A key is a member's path up to the first dot of its base name, the rest is its ending in lower case. Members with the
same key are one sample, also where others lie between them, unless an ending comes twice: then only members that follow
each other are one, as webdataset groups them. A sample has one image: the one whose ending has no dot in it (``jpg``,
before ``jpeg``, ``png`` and ``webp``), or else its only image. ``KEY.seg.png`` beside ``KEY.jpg`` is no image to train
with. Source: webdataset's ``tariterators.py`` (``base_plus_ext``, ``group_by_keys``).

A key none of whose members has an ending without dots, as in ``IMG_20.05.jpg`` and ``IMG_20.05.cls``, is no sample for
webdataset. Such names are divided at their last dot instead, and counted, so that it can be told.
"""

from __future__ import annotations

import itertools
import operator
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pipetune.datasets.folder_walk import ENDINGS

LABEL_ENDING = "cls"
_PLAIN_IMAGES = tuple(ending.removeprefix(".") for ending in ENDINGS)


@dataclass(slots=True, eq=False)
class Entry:
    """An image or a label file in a shard."""

    name: str
    is_label: bool
    run: int
    """Number of the members in succession that have its key."""
    start: int
    """First byte in the shard."""
    size: int
    """Bytes."""
    reason: str = ""
    """Why it cannot be used; ``""``: it can."""

    @property
    def base(self) -> str:
        """The name without folders."""
        return os.path.basename(self.name)

    @property
    def ending(self) -> str:
        """What follows the first dot of the base name, in lower case."""
        return split_name(self.name)[1]


@dataclass(frozen=True, slots=True)
class Assembled:
    """The samples of a shard."""

    images: list[tuple[Entry, Entry | None]] = field(default_factory=list)
    """(image, label file) of each sample."""
    rejected: list[tuple[Entry, str]] = field(default_factory=list)
    """(image, why it is not used)."""
    unmatched: list[tuple[Entry, str]] = field(default_factory=list)
    """(label file, why it is no image's)."""
    dotted: list[Entry] = field(default_factory=list)
    """Members whose names were divided at their last dot."""


@dataclass(frozen=True, slots=True)
class _Sample:
    key: str
    images: list[Entry]
    labels: list[Entry]
    is_dotted: bool = False

    @property
    def plain(self) -> list[Entry]:
        """The images whose endings have no dots, the likeliest first; formats that are not read come last.

        A damaged ``KEY.jpg`` stays the image: what else its sample has may be a mask.
        """
        if self.is_dotted:
            return self.images
        images = [entry for entry in self.images if "." not in entry.ending]
        return sorted(images, key=lambda entry: _rank(entry.ending))


def split_name(name: str) -> tuple[str, str]:
    """``(key, ending)`` of a member, as ``('train/0001', 'seg.png')``; the ending is in lower case."""
    folder, slash, base = name.rpartition("/")
    stem, _, ending = base.partition(".")
    return f"{folder}{slash}{stem}", ending.lower()


def assemble(entries: Iterable[Entry], plain_keys: set[str]) -> Assembled:
    """Put images and labels together.

    Args:
        entries: of one shard, in its order.
        plain_keys: keys with other members whose endings have no dots, such as ``json``.
    """
    result = Assembled()
    samples = list(_divide(entries, plain_keys, result))
    first_images = {sample.key for sample in samples if sample.plain}
    seconds = {entry.ending for sample in samples if not sample.is_dotted and sample.plain for entry in sample.images}
    lone = {sample.images[0].ending for sample in samples if len(sample.images) == 1 and not sample.plain}
    may_be_lone = len(lone) == 1 and not any(sample.plain for sample in samples)
    for sample in samples:
        image, reason = _choose_image(sample, may_be_lone)
        if sample.is_dotted and image is not None:
            result.dotted.extend([image, *sample.labels])
            if image.ending in seconds or not first_images.isdisjoint(_shorter_keys(sample.key)):
                image, reason = None, "a second image of its sample, or one without the first"
        result.rejected.extend((entry, reason) for entry in sample.images if entry is not image)
        if not sample.images:
            result.unmatched.extend((label, "a label without an image") for label in sample.labels)
        elif image is None:
            result.unmatched.extend((label, f"its image is not used: {reason}") for label in sample.labels)
        else:
            result.images.append((image, next(iter(sample.labels), None)))
    return result


def _divide(entries: Iterable[Entry], plain_keys: set[str], result: Assembled) -> Iterator[_Sample]:
    """The samples; what comes twice in one is told in the result, and left out."""
    by_key: dict[str, list[Entry]] = {}
    for entry in entries:
        by_key.setdefault(split_name(entry.name)[0], []).append(entry)
    for key, members in by_key.items():
        for sample in _divide_key(members):
            counts = Counter(entry.ending for entry in sample)
            if max(counts.values()) > 1:
                _reject_repeated(sample, counts, result)
            elif key in plain_keys or any("." not in entry.ending for entry in sample):
                yield from _plain_sample(key, sample, result)
            else:
                yield from _dotted_samples(key, sample)


def _divide_key(members: list[Entry]) -> list[list[Entry]]:
    if len({entry.ending for entry in members}) == len(members):
        return [members]
    return [list(run) for _, run in itertools.groupby(members, key=operator.attrgetter("run"))]


def _reject_repeated(sample: list[Entry], counts: Counter[str], result: Assembled) -> None:
    ending, count = counts.most_common(1)[0]
    reason = f"its key has {count} members .{ending}, so its label is not clear"
    result.rejected.extend((entry, reason) for entry in sample if not entry.is_label)
    result.unmatched.extend((entry, reason) for entry in sample if entry.is_label)


def _plain_sample(key: str, members: list[Entry], result: Assembled) -> Iterator[_Sample]:
    labels = [entry for entry in members if entry.is_label]
    result.unmatched.extend((entry, f"is not KEY.{LABEL_ENDING}") for entry in labels if entry.ending != LABEL_ENDING)
    plain_labels = [entry for entry in labels if entry.ending == LABEL_ENDING]
    images = [entry for entry in members if not entry.is_label]
    if images or plain_labels:
        yield _Sample(key, images, plain_labels)


def _dotted_samples(key: str, members: list[Entry]) -> Iterator[_Sample]:
    by_stem: dict[str, list[Entry]] = {}
    for entry in members:
        by_stem.setdefault(entry.ending.rpartition(".")[0], []).append(entry)
    for stem, parts in by_stem.items():
        images = sorted((e for e in parts if not e.is_label), key=lambda e: _rank(e.ending.rpartition(".")[2]))
        yield _Sample(f"{key}.{stem}", images, [entry for entry in parts if entry.is_label], is_dotted=True)


def _choose_image(sample: _Sample, may_be_lone: bool) -> tuple[Entry | None, str]:
    """The image of a sample, and why its others are not used."""
    if sample.plain:
        image = sample.plain[0]
        return image, f"a second image of its sample, whose image is {image.base}"
    if len(sample.images) == 1 and may_be_lone:
        return sample.images[0], ""
    if len(sample.images) == 1:
        return None, "the only image of its sample, which others call KEY.jpg"
    names = ", ".join(sorted(entry.ending for entry in sample.images)[:3])
    return None, f"one of {len(sample.images)} images of its sample ({names}), none of which is KEY.jpg"


def _shorter_keys(key: str) -> Iterator[str]:
    """Keys that a dotted key begins with: ``a/b.1``, ``a/b`` for ``a/b.1.seg``."""
    folder, slash, base = key.rpartition("/")
    while "." in base:
        base = base.rpartition(".")[0]
        yield f"{folder}{slash}{base}"


def _rank(ending: str) -> int:
    return _PLAIN_IMAGES.index(ending) if ending in _PLAIN_IMAGES else len(_PLAIN_IMAGES)
