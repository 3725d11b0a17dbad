"""Folders of other users in which this user may write, or has folders: made in the upper layer before a script starts.

In a user namespace overlayfs cannot copy a folder up that belongs to somebody else, because it may not give the copy
away. Folders that are there already, with this user as their owner, need no copy.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import deque
from collections.abc import Iterable

from pipetune.protection.mount_table import is_below

#: Attribute with the mode (decimal) of a folder that could not get its owner.
MODE_ATTRIBUTE = "user.pipetune.mode"
#: Folders of the system's are not looked through.
_SYSTEM = (
    "/bin",
    "/boot",
    "/etc",
    "/gnu",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/lost+found",
    "/nix",
    "/sbin",
    "/snap",
    "/usr",
    "/var/cache",
    "/var/lib",
    "/var/log",
)
#: So deep below a layer, and so many entries, are looked at; the working folder and its like are prepared at any depth.
MAX_DEPTH, MAX_ENTRIES = 4, 50_000


def prepare_folders(layer: str, upper: str, places: Iterable[str]) -> None:
    """Make the folders of a layer that could not be copied up.

    Args:
        layer: the folder that the layer lies over.
        upper: the layer's folder; empty.
        places: absolute paths in which the script is likely to write.
    """
    user = os.geteuid()
    needed: set[str] = set()
    for place in (*places, *_writable_places(layer, user)):
        if is_below(place, [layer]):
            _add_foreign(place, layer, user, needed)
    copies = {folder: upper + folder[len(layer.rstrip("/")) :] for folder in sorted(needed)}
    for copy in copies.values():
        os.makedirs(copy, exist_ok=True)
    for folder, copy in reversed(list(copies.items())):
        copy_rights(folder, copy)
    copy_rights(layer, upper)


def copy_folder(folder: str, copy: str) -> None:
    """Make a folder with the rights of another one, as far as this user may."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(copy)
    copy_rights(folder, copy)


def copy_rights(folder: str, copy: str) -> None:
    """Give a folder the owner, group, mode and times of another one, as far as this user may.

    Where it cannot get the owner, this user gets what the other folder allows him.
    """
    state = os.stat(folder)
    mode = stat.S_IMODE(state.st_mode)
    try:
        os.chown(copy, state.st_uid, state.st_gid)
    except OSError:
        with contextlib.suppress(OSError):
            os.chown(copy, -1, state.st_gid)
        allowed = sum(bit << 6 for bit in (os.R_OK, os.W_OK, os.X_OK) if os.access(folder, bit))
        mode = (mode & ~stat.S_IRWXU) | allowed
        with contextlib.suppress(OSError):
            os.setxattr(copy, MODE_ATTRIBUTE, str(mode).encode())
    with contextlib.suppress(OSError):
        os.chmod(copy, mode)
    with contextlib.suppress(OSError):
        os.utime(copy, ns=(state.st_atime_ns, state.st_mtime_ns))


def _add_foreign(place: str, layer: str, user: int, needed: set[str]) -> None:
    """Add the folders of others from the layer down to a place."""
    folder = place
    while folder != layer and len(folder) > 1:
        with contextlib.suppress(OSError):
            state = os.lstat(folder)
            if stat.S_ISDIR(state.st_mode):
                if state.st_uid != user:
                    needed.add(folder)
                elif needed and any(is_below(other, [folder]) for other in needed):
                    needed.add(folder)  # it holds one that is made
        folder = os.path.dirname(folder)


def _writable_places(layer: str, user: int) -> list[str]:
    """Folders of others that this user may write in, and his own folders in folders of others."""
    places: list[str] = []
    waiting = deque([(layer, 0)])
    entries_read = 0
    while waiting and entries_read < MAX_ENTRIES:
        folder, depth = waiting.popleft()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    entries_read += 1
                    if entries_read >= MAX_ENTRIES:
                        break
                    if not entry.is_dir(follow_symlinks=False) or is_below(entry.path, _SYSTEM):
                        continue
                    if entry.stat(follow_symlinks=False).st_uid == user:
                        places.append(entry.path)
                        continue
                    if os.access(entry.path, os.W_OK | os.X_OK):
                        places.append(entry.path)
                    if depth < MAX_DEPTH:
                        waiting.append((entry.path, depth + 1))
        except OSError:
            continue
    return places
