"""The class of each image in shards: its own label, the folder that it lies in, or the name of its shard. Pure but for
``classes.json``, which ``pipetune pack`` writes beside shards."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pipetune.datasets.labels import MAX_CLASSES
from pipetune.datasets.parts import PARTS
from pipetune.datasets.shard_members import Member, Tally
from pipetune.errors import UsageError
from pipetune.records.audit import FOLDER_NAMES, FOLDER_NUMBERS, NO_LABELS, OWN_LABELS, SHARD_NAMES
from pipetune.store.regular import read_whole

_CLASSES = "classes.json"
_MOST_CLASSES_BYTES = 64 << 20
#: ImageNet's training archives hold one class each, and are named after it: ``n01440764.tar``.
_IMAGENET_SHARD = re.compile(r"(n\d{8})\.tar", re.IGNORECASE)
_NO_CLASS = "images"


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of a data set."""

    names: tuple[str, ...]
    """In the order of their numbers."""
    members: list[Member]
    """The images that have a class."""
    numbers: list[int]
    """The class of each of these."""
    source: str
    """See :attr:`pipetune.records.audit.Audit.label_source`."""
    shared_folder: str = ""
    """See :attr:`pipetune.records.audit.Audit.shared_folder`."""


def find_classes(members: list[Member], tally: Tally, shards: Sequence[str]) -> Classes:
    """The class of each image.

    Images without a label beside others that have one are left out and told: they would be a class that gives the
    others new numbers.

    Args:
        members: of all shards.
        tally: takes what is left out.
        shards: all of them.

    Raises:
        UsageError: labels are numbers and names in about equal parts, or folders divide the data set into parts.
    """
    if tally.labels:
        return _own_labels(members, tally, shards)
    if members and all(_is_of_imagenet(member) for member in members):
        labels = [os.path.splitext(os.path.basename(member.shard))[0].lower() for member in members]
        return _by_name(members, labels, SHARD_NAMES)
    return _folders(members, tally)


def _own_labels(members: list[Member], tally: Tally, shards: Sequence[str]) -> Classes:
    labelled = [member for member in members if member.label is not None]
    for member in members:
        if member.label is None:
            tally.reject(f"{member.shard}/{member.name}", "has no label")
    numbered = [member for member in labelled if isinstance(member.label, int)]
    if not numbered:
        return _by_name(labelled, [str(member.label) for member in labelled], OWN_LABELS)
    if len(numbered) < len(labelled):
        _reject_names(labelled, len(numbered), tally)
    numbers = [member.label for member in numbered if isinstance(member.label, int)]
    stored, largest = _read_stored_classes(shards), max(numbers)
    names = stored if len(stored) > largest else tuple(str(number) for number in range(largest + 1))
    return Classes(names, numbered, numbers, OWN_LABELS)


def _reject_names(labelled: list[Member], numbered: int, tally: Tally) -> None:
    """Leave out the images whose labels are names where those of most are numbers."""
    named = [member for member in labelled if isinstance(member.label, str)]
    if numbered <= len(named):
        number = next(member for member in labelled if isinstance(member.label, int))
        raise UsageError(
            f"labels are numbers and names: {number.label} of {number.name!r}, {named[0].label!r} of "
            f"{named[0].name!r}; {numbered:,} are numbers and {len(named):,} are names",
            hint="write numbers into all label files, or names into all",
        )
    for member in named:
        tally.unmatched += 1
        tally.reject(
            f"{member.shard}/{member.name}", f"a label of {member.label!r}, and those of most images are numbers"
        )


def _folders(members: list[Member], tally: Tally) -> Classes:
    """Folders are the classes, below one that all images lie in: ``tar cf train.tar train`` puts it before them."""
    paths = [member.folder.split("/") if member.folder else [] for member in members]
    shared: list[str] = []
    depth = 0
    while True:
        firsts = {path[depth] for path in paths if len(path) > depth}
        is_shared = len(firsts) == 1 and all(len(path) > depth for path in paths)
        if not is_shared or not any(len(path) > depth + 1 for path in paths):
            break
        shared += firsts
        depth += 1
    if not firsts:
        return Classes((_NO_CLASS,), members, [0] * len(members), NO_LABELS)
    _refuse_parts(firsts)
    kept, labels = [], []
    for member, path in zip(members, paths, strict=True):
        if len(path) > depth:
            kept.append(member)
            labels.append(path[depth])
        else:
            tally.reject(f"{member.shard}/{member.name}", "is not in a folder, so it has no class")
    if _are_numbers(firsts):
        numbers = [int(label) for label in labels]
        names = tuple(str(number) for number in range(max(numbers) + 1))
        as_imagefolder = [int(label) for label in sorted(firsts)] == list(range(len(firsts)))
        source = FOLDER_NAMES if as_imagefolder else FOLDER_NUMBERS
        return Classes(names, kept, numbers, source, "/".join(shared))
    found = _by_name(kept, labels, FOLDER_NAMES if len(firsts) > 1 else NO_LABELS)
    return Classes(found.names, found.members, found.numbers, found.source, "/".join(shared))


def _are_numbers(folders: set[str]) -> bool:
    """Whether the folders are called by numbers of classes, no two of them by the same one: ``1`` and ``01`` are."""
    are_decimal = all(name.isdecimal() and name.isascii() and int(name) < MAX_CLASSES for name in folders)
    return are_decimal and len({int(name) for name in folders}) == len(folders)


def _refuse_parts(folders: set[str]) -> None:
    if len({PARTS.get(folder.lower(), folder) for folder in folders}) > 1 and all(
        folder.lower() in PARTS for folder in folders
    ):
        raise UsageError(
            f"its folders {', '.join(sorted(folders))} are parts of a data set, and no classes",
            hint="make a tar file of each part: tar cf train.tar train",
        )


def _by_name(members: list[Member], labels: list[str], source: str) -> Classes:
    names = tuple(sorted(set(labels)))
    numbers = {name: number for number, name in enumerate(names)}
    return Classes(names, members, [numbers[label] for label in labels], source)


def _is_of_imagenet(member: Member) -> bool:
    match = _IMAGENET_SHARD.fullmatch(os.path.basename(member.shard))
    return match is not None and os.path.basename(member.name).lower().startswith(f"{match[1].lower()}_")


def _read_stored_classes(shards: Sequence[str]) -> tuple[str, ...]:
    """The names of the classes that ``pipetune pack`` has written beside the shards; ``()``: there are none."""
    try:
        names = json.loads(read_whole(os.path.join(os.path.dirname(shards[0]), _CLASSES), _MOST_CLASSES_BYTES))
    except (OSError, ValueError, RecursionError):
        return ()
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else ()
