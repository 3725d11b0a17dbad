"""Which image goes where: a function of the list, the seed and the options alone. Pure."""

from __future__ import annotations

import hashlib
import math
import random
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipetune.errors import UsageError

#: The packs of training images and of those for validation, where there are both.
TRAINING, VALIDATION = "train", "validation"


@dataclass(frozen=True, slots=True)
class Split:
    """Images of one pack, by their numbers in the list, and the labels that they get."""

    name: str
    """``train``, ``validation``; ``""``: there is one pack."""
    order: array[int]
    """Numbers in the order in which they are packed."""


def new_labels(counts: Sequence[int], min_per_class: int) -> list[int | None]:
    """The label of each class in the pack; ``None``: it has too few images.

    Raises:
        UsageError: no class is left.
    """
    if min_per_class <= 1:
        return list(range(len(counts)))  # a class without images keeps its label, too
    labels: list[int | None] = []
    used = 0
    for count in counts:
        labels.append(used if count >= min_per_class else None)
        used += count >= min_per_class
    if not used:
        raise UsageError(
            f"--min-per-class {min_per_class} leaves no class: the largest has {max(counts, default=0)} images",
            hint="name fewer",
        )
    return labels


def count_empty_classes(labels: Iterable[int]) -> int:
    """Labels below the largest that no image has. ``ImageFolder`` counts folders, and has no number for them."""
    used = set(labels)
    return max(used) + 1 - len(used) if used else 0


def split(
    numbers_of: Sequence[range], labels: Sequence[int | None], *, share: float, per_class: int, seed: int | None
) -> list[Split]:
    """The packs that images are divided into.

    Args:
        numbers_of: the images of each class.
        labels: from :func:`new_labels`.
        share: of each class that goes to validation; at least one image of it.
        per_class: so many of each class go to validation; share and this are not both positive.
        seed: of the order, and of who goes to validation; ``None``: class by class, as the list is.

    Raises:
        UsageError: a class would have no image left to train with.
    """
    training, validation = array("q"), array("q")
    draw = random.Random(0 if seed is None else seed)
    for numbers, label in zip(numbers_of, labels, strict=True):
        if label is None or not numbers:
            continue
        count = per_class or (max(1, round(share * len(numbers))) if share else 0)
        if count >= len(numbers):
            raise UsageError(
                f"--validation takes {count} of a class with {len(numbers)} images, and leaves none to train with",
                hint="take fewer, or leave small classes out with --min-per-class",
            )
        chosen = set(draw.sample(numbers, count))
        for number in numbers:
            (validation if number in chosen else training).append(number)
    if seed is not None:
        draw.shuffle(training)
        draw.shuffle(validation)
    if not (share or per_class):
        return [Split("", training)]
    return [Split(TRAINING, training), Split(VALIDATION, validation)]


def shards_for(total_bytes: float, count: int, shard_bytes: int) -> int:
    """Number of shards: about as large as asked for, each with an image at least."""
    return max(1, min(count, math.ceil(total_bytes / shard_bytes)))


def positions_of(shard: int, shards: int, count: int) -> range:
    """The places in the order that a shard has: as many as any other, or one more."""
    return range(shard * count // shards, (shard + 1) * count // shards)


def mark_of(parts: Iterable[object]) -> str:
    """16 hex digits of what a pack depends on."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(repr(part).encode("utf-8", "surrogateescape") + b"\0")
    return digest.hexdigest()
