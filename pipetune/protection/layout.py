"""What a script sees under an overlay: which folders are copy-on-write layers, and which are passed through.

In its own mount namespace root may lay one layer over ``/`` and one over each file system below. In a user namespace
the kernel refuses a layer over a folder that has mounts below it (they are locked), so the layers go over the largest
folders without any. A folder that has some and is writable gets a shadow: a folder of links to its files.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipetune.protection.mount_table import LIVE_FOLDERS, Mount, is_below

#: Kinds of layers: copy-on-write; the same over a shadow; the real folder; the real one, read-only.
OVERLAY, SHADOW, OPEN, READ_ONLY = "overlay", "shadow", "open", "read_only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What stands at one path of the view."""

    kind: str
    path: str
    """Absolute; the script sees the layer here, and its former contents below it."""
    recursive: bool = False
    """Mounts below come along (``open`` only)."""


def lay_over_mounts(mounts: Sequence[Mount]) -> list[Layer]:
    """The layers where the kernel lets one stand over a folder with mounts below it (root).

    Args:
        mounts: each before those below it; the first is ``/``.
    """
    layers: list[Layer] = []
    live: list[str] = []
    for mount in mounts:
        if mount.is_live:
            if not is_below(mount.point, live):
                layers.append(Layer(kind=OPEN, path=mount.point, recursive=True))
                live.append(mount.point)
        else:
            layers.append(Layer(kind=_kind(mount), path=mount.point))
    return layers


def lay_over_folders(mounts: Sequence[Mount], folders: FolderReader) -> list[Layer]:
    """The layers where the kernel refuses one over a folder with mounts below it (user namespace).

    Args:
        mounts: each before those below it; the first is ``/``.
    """
    points = {mount.point: mount for mount in mounts}
    layers = [
        layer
        for mount in mounts
        if not mount.is_live and not mount.read_only
        for layer in _split(mount.point, points, folders, is_mount=True)
    ]
    # Mounts below a shadow are covered by it, and have to be put on it again.
    shadows = [layer.path for layer in layers if layer.kind == SHADOW]
    covered = [layer.path for layer in layers]
    for mount in mounts:
        if mount.point not in covered and is_below(mount.point, shadows):
            layers.append(Layer(kind=OPEN, path=mount.point, recursive=True))
    return layers


class FolderReader:
    """What the layout asks of the disk."""

    def children(self, folder: str) -> Iterable[str]:
        """Paths of the folders in a folder, links left out."""
        try:
            with os.scandir(folder) as entries:
                return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError:
            return ()

    def is_writable(self, folder: str) -> bool:
        """Whether this user may make files in a folder."""
        return os.access(folder, os.W_OK | os.X_OK)


def _split(folder: str, points: Collection[str], folders: FolderReader, *, is_mount: bool = False) -> Iterator[Layer]:
    """The largest folders without mounts below, of one file system."""
    if not is_mount and (folder in points or is_below(folder, map(str, LIVE_FOLDERS))):
        return
    if not any(point != folder and is_below(point, [folder]) for point in points):
        if not os.path.isdir(folder):  # a file that is mounted over another, as containers do for /etc/hosts
            yield Layer(kind=READ_ONLY, path=folder)
        else:
            yield Layer(kind=OVERLAY, path=folder)
        return
    if folder != "/" and folders.is_writable(folder):  # nothing can be laid over / itself from below it
        yield Layer(kind=SHADOW, path=folder)
    for child in folders.children(folder):
        yield from _split(child, points, folders)


def _kind(mount: Mount) -> str:
    if mount.read_only:
        return OPEN
    return OVERLAY if os.path.isdir(mount.point) else READ_ONLY


def open_places(layers: Iterable[Layer], places: Iterable[Path], *, recursive: bool) -> list[Layer]:
    """Layers that put real folders, files and sockets over the copy-on-write ones. A place that is missing has none.

    Args:
        recursive: mounts below the places come along.
    """
    covered = [layer.path for layer in layers if layer.kind in (OVERLAY, SHADOW)]
    return [
        Layer(kind=OPEN, path=str(place), recursive=recursive)
        for place in dict.fromkeys(places)
        if is_below(str(place), covered) and place.exists()
    ]


def in_mount_order(layers: Iterable[Layer]) -> list[Layer]:
    """Layers so that none covers one that was put there before."""
    return sorted(layers, key=lambda layer: (layer.path.rstrip("/").count("/"), layer.path))
