"""The account of a data set: what its shards or folders hold, what is used of it, and which labels have an image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Where labels come from: a label of each image's own (a file, a field of its record), the folder that it lies in, the
#: number that this folder is called, the name of its shard, or nowhere.
OWN_LABELS, FOLDER_NAMES, FOLDER_NUMBERS, SHARD_NAMES, NO_LABELS = "own", "folders", "folder_numbers", "shards", "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """Counts of a whole data set, before a subset of it is drawn.

    ``members = used + rejected + other`` and ``labels = matched + unmatched``, for every format.
    """

    unit: str
    """What members are called: ``files``, ``members`` of tar files, ``records`` or ``samples``."""
    members: int
    """All that was found, without label files, directories and what lies behind damage."""
    used: int
    """Images, of which a sweep may draw a subset. The headers of those outside of the subset are not read."""
    rejected: int
    """Images that are not used; the first of them are named, with the reason."""
    other: Mapping[str, int] = field(default_factory=dict)
    """What is no image, as ``{"json": 24}``: endings of names, or kinds of members."""
    labels: int = 0
    """Labels of images' own: label files of tar files, fields of records. Names of folders are not counted."""
    matched: int = 0
    """Labels that an image has."""
    unmatched: int = 0
    """Labels without an image, and those that are no class."""
    label_source: str = NO_LABELS
    """``own``, ``folders``, ``folder_numbers`` (of tar files whose folders are called by numbers, and not by those that
    ``ImageFolder`` would give them), ``shards`` (the names of tar files) or ``none``: all images are class 0."""
    links: int = 0
    """Links within a tar file that were followed; each counts as a member."""
    dotted: int = 0
    """Members whose names have dots that do not begin an ending; WebDataset itself ends a key at the first dot."""
    shared_folder: str = ""
    """The folder that all members lie in, below which the folders are the classes; ``""``: there is none."""
    lone_folder: str = ""
    """Where all images of a folder lie in one class folder, the folder whose own folders divide them; ``""``: there is
    none."""
    doubtful_classes: tuple[str, ...] = ()
    """Classes that are probably none, by the names of their folders: splits, masks, hidden folders."""
    unread_columns: tuple[str, ...] = ()
    """Columns of MDS shards that are neither images nor labels; of TFRecords without labels, features of integers."""
    split: str = ""
    """Name of the training split that is used, a folder; ``""``: the folder that was named holds no splits."""
    other_splits: tuple[str, ...] = ()
    """Folders beside it with other splits of the data set, such as ``val``, which are not used."""
    damaged: int = 0
    """Shards that are damaged from some place on, could not be read, or are missing."""

    @property
    def other_count(self) -> int:
        """What is no image, all kinds together."""
        return sum(self.other.values())

    @property
    def is_complete(self) -> bool:
        """Every member of every shard is an image in use, and every label belongs to one.

        Files beside the images of a folder are not counted: ``ImageFolder`` does not look at them either.
        """
        other = 0 if self.unit == FILES else self.other_count
        return not (self.rejected or self.unmatched or self.damaged or other)


#: :attr:`Audit.unit` of each format.
FILES, MEMBERS, RECORDS, SAMPLES = "files", "members", "records", "samples"
