"""What a journal says, by path and by inode: which change of a path would be its first.

A path needs nothing any more when it was kept before, or when it did not exist. Nothing below a folder existed that did
not exist itself. Standard library only.
"""

from __future__ import annotations

import os
import stat

from pipetune.protection.journal import Entry

Inode = tuple[int, int]


class KeptTable:
    """The entries of a journal, as far as they have been added.

    Args:
        device: of the file system on which the copies are: what is kept there holds on to its inode, so that no other
            file gets its number.
    """

    def __init__(self, device: int) -> None:
        self._device = device
        self._kinds: dict[str, str] = {}
        self._attributes: dict[str, Entry] = {}
        self._by_inode: dict[Inode, Entry] = {}
        """Inode with several names -> its first entry."""
        self.copied: dict[Inode, Entry] = {}
        """Inode with several names -> the entry whose copy has its content."""
        self.count = 0

    def add(self, entry: Entry) -> None:
        """Take in one entry."""
        self.count += 1
        if entry.links > 1 and entry.device == self._device and not stat.S_ISDIR(entry.mode):
            self._by_inode.setdefault((entry.device, entry.inode), entry)
        if entry.kind == "attributes":
            self._attributes.setdefault(entry.path, entry)
        elif entry.kind == "asked":
            self._kinds[entry.path] = "changed"
        else:
            self._kinds.setdefault(entry.path, entry.kind)

    def is_prepared(self, path: str) -> bool:
        """Whether a path was copied in advance, and no process of the script has asked to change it yet."""
        return self._kinds.get(path) == "prepared"

    def is_settled(self, path: str) -> bool:
        """Whether a change of the path needs neither a copy nor an entry."""
        if path in self._kinds:
            return True
        while len(path) > 1:
            path = path.rpartition("/")[0]
            if self._kinds.get(path) == "created":
                return True
        return False

    def existed(self, path: str) -> bool:
        """Whether there may have been a file of this path at the start that is not kept yet."""
        if path in self._kinds:
            return False
        while len(path) > 1:
            path = path.rpartition("/")[0]
            # What was in a folder that is gone has been kept with it, or one by one before.
            if self._kinds.get(path) in ("created", "removed"):
                return False
        return True

    def has_attributes(self, path: str) -> bool:
        """Whether an entry has the mode, owner and times of a path."""
        return path in self._attributes or path in self._kinds

    def first_attributes(self, path: str, state: os.stat_result) -> Entry | None:
        """The entry with the attributes that a path had at the start, by this name or another; ``None``: its present
        ones are the first."""
        return self._attributes.get(path) or self._by_inode.get((state.st_dev, state.st_ino))
