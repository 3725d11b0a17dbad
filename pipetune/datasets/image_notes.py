"""What to know about a data set before anything is measured or trained with it, in words. Pure."""

from __future__ import annotations

from pipetune.datasets.folder_walk import describe_empty_classes, shown
from pipetune.datasets.index import ImageSet
from pipetune.datasets.shard_names import SHARD_ENDINGS
from pipetune.records.audit import FILES, FOLDER_NAMES, FOLDER_NUMBERS, NO_LABELS, RECORDS, SHARD_NAMES, Audit

#: Kinds of other members, and columns, that are named.
_MAX_NAMED = 4
#: Endings of shards.
_SHARD_KINDS = tuple(ending.lstrip(".") for ending in SHARD_ENDINGS)


def list_image_notes(images: ImageSet) -> list[str]:
    """Notes about the subset, what was skipped, the account of shards, and labels."""
    notes = list_folder_notes(images)
    if len(images.images) < images.usable_count:
        how = "of shards in random order" if images.in_shards else "drawn at random over all classes"
        notes.append(f"measured on {len(images.images):,} of {images.usable_count:,} images, {how}")
    if images.skipped_count:
        path, reason = images.skipped[0]
        many = f"{images.skipped_count:,} files were skipped, the first"
        notes.append(f"{'1 file was skipped' if images.skipped_count == 1 else many}: {path!r} ({reason})")
    if images.audit is not None:
        if images.audit.unit != FILES:
            notes.append(describe_audit(images.audit))
        notes.extend(list_label_notes(images.audit))
    return notes


def list_folder_notes(images: ImageSet) -> list[str]:
    """A line about class folders without images."""
    if not images.empty_classes:
        return []
    are = "it is no class" if len(images.empty_classes) == 1 else "they are no classes"
    empty = describe_empty_classes(images.root, images.empty_classes)
    return [f"{empty}; {are} here, and ImageFolder refuses such a folder"]


def list_label_notes(audit: Audit) -> list[str]:
    """A line for each thing to know about labels, and about members that other readers see otherwise."""
    notes = []
    if audit.split:
        others = f", and not {' or '.join(map(repr, audit.other_splits))}" if audit.other_splits else ""
        notes.append(f"the folder {audit.split!r} is used, as the training split{others}")
    if audit.label_source == NO_LABELS and audit.used:
        notes.append(describe_missing_labels(audit))
    if audit.label_source == SHARD_NAMES:
        notes.append("the classes are the names of the tar files, as ImageNet's training archives have them")
    if audit.unit != FILES and audit.label_source == FOLDER_NAMES and not audit.shared_folder:
        notes.append("no KEY.cls: the classes are the folders in the members' names")
    if audit.label_source == FOLDER_NUMBERS:
        notes.append("the classes are the numbers that the folders are called; ImageFolder numbers them by their order")
    if audit.doubtful_classes:
        notes.append(describe_doubtful_classes(audit))
    if audit.unit == FILES:
        notes += _list_shards_beside(audit)
    if audit.shared_folder:
        notes.append(f"the classes are the folders below {audit.shared_folder!r}, which all images lie in")
    if audit.dotted:
        notes.append(
            f"{count_noun(audit.dotted, 'member has', 'members have')} dots in the name: pipetune divides such a name "
            "at its last dot, and webdataset at its first, so it reads no KEY.jpg there"
        )
    if audit.links:
        notes.append(
            f"{count_noun(audit.links, 'link was', 'links were')} followed within the tar files; webdataset leaves "
            "links out"
        )
    if audit.unread_columns and audit.unit != RECORDS:
        notes.append(f"columns that are not read: {_join_some(audit.unread_columns)}")
    return notes


def describe_doubtful_classes(audit: Audit) -> str:
    """``'images', 'masks' are taken for classes, as by ImageFolder``, and what to do if they are none."""
    names = audit.doubtful_classes
    taken = f"{_join_some([shown(name) for name in names])} {'is' if len(names) == 1 else 'are'} taken for "
    taken += "a class" if len(names) == 1 else "classes"
    are_none = "if it is none" if len(names) == 1 else "if they are none"
    if audit.unit != FILES:
        return f"{taken}: {are_none}, write class numbers into KEY.cls"
    remedy = "move it elsewhere" if len(names) == 1 else "name one of them, or move some elsewhere"
    return f"{taken}, as by ImageFolder: {are_none}, {remedy}"


def _list_shards_beside(audit: Audit) -> list[str]:
    """A line about shards that lie among the files of a folder of images."""
    counts = {f".{kind}": count for kind, count in audit.other.items() if kind.startswith(_SHARD_KINDS)}
    if not counts:
        return []
    shards = count_noun(sum(counts.values()), "shard lies", "shards lie")
    return [
        f"{shards} beside the images ({_join_some([*counts])}), and only the images are used: to use shards, name one, "
        "or a folder that holds nothing else"
    ]


def describe_audit(audit: Audit) -> str:
    """``24 members: 16 images used, 8 rejected, 0 other; 16 labels: 16 matched, 0 unmatched``."""
    kinds = [f"{count:,} {kind}" for kind, count in sorted(audit.other.items(), key=lambda item: (-item[1], item[0]))]
    other = f"{audit.other_count:,} other{f' ({_join_some(kinds)})' if kinds else ''}"
    members = count_noun(audit.members, audit.unit.removesuffix("s"), audit.unit)
    text = f"{members}: {count_noun(audit.used, 'image', 'images')} used, {audit.rejected:,} rejected, {other}"
    if audit.labels:
        text += (
            f"; {count_noun(audit.labels, 'label', 'labels')}: {audit.matched:,} matched, {audit.unmatched:,} unmatched"
        )
    if audit.damaged:
        text += f"; {count_noun(audit.damaged, 'shard is damaged or missing', 'shards are damaged or missing')}"
    return text


def describe_missing_labels(audit: Audit) -> str:
    """``24 images, no labels found: all are class 0``, and why other members are no labels."""
    images = count_noun(audit.used, "image", "images")
    why = ""
    if audit.other.get("json"):
        why = "; KEY.json is not read as a label: write the class number into KEY.cls"
    elif audit.other.get("txt"):
        why = "; KEY.txt is not read as a label: write the class number into KEY.cls"
    elif audit.unread_columns:
        names = "image/class/label, label or class" if audit.unit == RECORDS else "label, class, cls, y or target"
        kind = "feature" if audit.unit == RECORDS else "column"
        why = f"; no {kind} of integers is called {names} ({_join_some(audit.unread_columns)})"
    if audit.unit == FILES:
        why = ""
        if audit.lone_folder:
            why = (
                f"; all lie in {shown(audit.lone_folder)}: name that folder, if the folders in it are classes or splits"
            )
    return f"{images}, no labels found: all are class 0{why}"


def count_noun(count: int, singular: str, plural: str) -> str:
    """``1 image``, ``1,200 images``."""
    return f"{count:,} {singular if count == 1 else plural}"


def _join_some(names: list[str] | tuple[str, ...]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{', '.join(names[:_MAX_NAMED])}{more}"
