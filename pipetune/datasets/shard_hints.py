"""What to do about a folder that has no images of its own, but shards beside folders, or one folder deeper."""

from __future__ import annotations

import os

from pipetune.datasets.folder_walk import shown
from pipetune.datasets.shard_names import list_shards

#: Folders of which the names are looked at.
_MAX_FOLDERS = 256


def find_shard_hint(root: str) -> str | None:
    """A hint where shards lie in ``root`` or in a folder of it; ``None``: there are none."""
    try:
        with os.scandir(root) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return None
    folders = [entry.path for entry in listed if entry.is_dir() and not entry.name.startswith(".")]
    shards = list_shards(root, [entry.name for entry in listed if entry.is_file()])
    if shards and folders:
        return (
            f"{len(shards):,} {'shard lies' if len(shards) == 1 else 'shards lie'} beside folders such as "
            f"{shown(folders[0])}: move the shards into a folder of their own, or name one of them"
        )
    below = [folder for folder in folders[:_MAX_FOLDERS] if _has_shards(folder)]
    if not below:
        return None
    others = f" or {shown(below[1])}" if len(below) > 1 else ""
    return f"its shards lie one folder deeper: name {shown(below[0])}{others}"


def _has_shards(folder: str) -> bool:
    try:
        return bool(list_shards(folder, os.listdir(folder)))
    except OSError:
        return False
