"""Protection by the kernel: the script sees every writable file system as a copy-on-write layer (overlayfs).

It runs in a mount namespace of its own: root as it is, others in a user namespace in which each ID stands for itself.
What it writes is in the upper layers, which all starts of a sweep share. Afterwards the new files are moved to their
place, and the new versions of files that existed are thrown away: the files themselves were never touched.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from pipetune.processes.temporary_folder import prefix_of_folders
from pipetune.protection.contract import Request, Unavailable
from pipetune.protection.foreign_folders import copy_folder, copy_rights, prepare_folders
from pipetune.protection.layout import (
    OVERLAY,
    READ_ONLY,
    SHADOW,
    FolderReader,
    Layer,
    in_mount_order,
    lay_over_folders,
    lay_over_mounts,
    open_places,
)
from pipetune.protection.live_places import live_places
from pipetune.protection.mount_table import LIVE_FOLDERS, is_below, reachable_mounts
from pipetune.protection.room import RoomWatch, measure_disk_use
from pipetune.protection.settle_overlay import settle_overlay
from pipetune.protection.state import ProtectionFolder, remove_tree
from pipetune.records.written import OVERLAY as MECHANISM
from pipetune.records.written import WrittenFiles

_ENTER = str(Path(__file__).with_name("enter.py"))
_TRIAL_S = 30.0
#: A shadow holds hard links, and copies where the file system has none: of so many bytes at most.
MAX_SHADOW_BYTES = 256 << 20
#: Beginning of the names of overlayfs's attributes, and options of a mount, with and without a user namespace. A folder
#: that existed cannot be renamed in one: the script is told that it lies on another file system (EXDEV).
_ATTRIBUTES = {True: "user.overlay.", False: "trusted.overlay."}
_OPTIONS = {True: "userxattr", False: "redirect_dir=on,metacopy=off,index=off"}
#: Folders for the layers are made with this name where the run folder's file system cannot hold them.
_PREFIX = ".pipetune-layers-"


def open_overlay(folder: ProtectionFolder, request: Request) -> Overlay:
    """Begin protection; nothing is started yet.

    Raises:
        Unavailable: this system does not allow it.
        OSError: the disk refuses.
    """
    reasons: list[str] = []
    for base in _bases(folder):
        for user_namespace in (False, True) if os.geteuid() == 0 else (True,):
            overlay = Overlay(folder, request, base, user_namespace=user_namespace)
            try:
                overlay.try_out()
                return overlay
            except Unavailable as reason:
                reasons.append(str(reason))
            except (OSError, subprocess.SubprocessError, ValueError) as error:
                reasons.append(str(error))
            remove_tree(base)
    raise Unavailable(reasons[0] if reasons else "no folder can hold the layers")


def _bases(folder: ProtectionFolder) -> Iterator[str]:
    """Folders that may hold the layers: on the run folder's file system, or else on another one."""
    yield str(folder.path / "layers")
    for place in dict.fromkeys([tempfile.gettempdir(), "/var/tmp", "/dev/shm"]):
        try:
            yield tempfile.mkdtemp(prefix=_PREFIX, dir=place)
        except OSError:
            continue


class Overlay:
    """See :class:`pipetune.protection.contract.Protection`."""

    mechanism = MECHANISM

    def __init__(self, folder: ProtectionFolder, request: Request, base: str, *, user_namespace: bool) -> None:
        self._folder, self._request, self._base, self._user_namespace = folder, request, base, user_namespace
        self._layers = self._lay_out()
        self._room: RoomWatch | None = None
        self._plans = 0
        self._is_complete = True
        """Nothing is in the layers that has no place yet."""

    def _lay_out(self) -> list[Layer]:
        mounts = reachable_mounts()
        return lay_over_folders(mounts, FolderReader()) if self._user_namespace else lay_over_mounts(mounts)

    def _is_inside(self) -> bool:
        return is_below(self._base, [str(self._folder.path)])

    def _stored(self, index: int) -> str:
        return f"{self._base}/{index}"

    def try_out(self) -> None:
        """Make the layers, and find out whether the kernel takes them.

        Raises:
            Unavailable: it does not, where the script is likely to write.
            OSError, SubprocessError: there is no telling.
        """
        os.makedirs(self._base, mode=0o700, exist_ok=True)
        if self._user_namespace:
            _require_user_attributes(self._base)
        important = [str(place) for place in _likely_places(self._request)]
        self._layers = [self._prepare(index, layer, important) for index, layer in enumerate(self._layers)]
        done = subprocess.run(
            [*_python(), _ENTER, "--trial", self._write_plan("trial")],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRIAL_S,
            check=False,
        )
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise Unavailable(said[-1] if said else f"its trial ended with exit code {done.returncode}")
        for path, reason in json.loads(done.stdout)["failed"].items():
            self._give_up(path, reason, important)
        self._room = RoomWatch(str(self._folder.run) if self._is_inside() else self._base, self._measure_stored)
        self._folder.write_state(
            MECHANISM,
            {
                # Relative where it can be: the run folder may be moved after pipetune was killed.
                "base": os.path.relpath(self._base, self._folder.path) if self._is_inside() else self._base,
                "attributes": _ATTRIBUTES[self._user_namespace],
                "began_ns": time.time_ns(),
                "layers": {
                    str(index): layer.path
                    for index, layer in enumerate(self._layers)
                    if layer.kind in (OVERLAY, SHADOW)
                },
            },
        )

    def _give_up(self, path: str, reason: str, important: Sequence[str]) -> None:
        """A layer that the kernel refuses becomes read-only, unless the script is likely to write there."""
        self._require_unimportant(path, f"the kernel refuses a layer over {path}: {reason}", important)
        self._layers = [replace(layer, kind=READ_ONLY) if layer.path == path else layer for layer in self._layers]

    def _require_unimportant(self, path: str, reason: str, important: Sequence[str]) -> None:
        deeper = [layer.path for layer in self._layers if len(layer.path) > len(path)]
        if any(is_below(place, [path]) and not is_below(place, deeper) for place in important):
            raise Unavailable(reason)

    def _prepare(self, index: int, layer: Layer, important: Sequence[str]) -> Layer:
        """Make the folders of a layer; returns it, or what is possible instead."""
        if layer.kind not in (OVERLAY, SHADOW):
            return layer
        stored = self._stored(index)
        for name in ("", "/upper", "/work"):
            os.mkdir(stored + name, 0o700)
        if layer.kind == SHADOW and not make_shadow(layer.path, f"{stored}/lower"):
            reason = f"{layer.path} has mounts below it, and too many files of other users to copy"
            self._require_unimportant(layer.path, reason, important)
            return replace(layer, kind=READ_ONLY, recursive=True)
        if self._user_namespace and layer.kind == OVERLAY:
            prepare_folders(layer.path, f"{stored}/upper", important)
        else:
            copy_rights(layer.path, f"{stored}/upper")
        return layer

    def _write_plan(self, plan_name: str) -> str:
        # Folders that pipetune has made for this start, such as that of the script's socket.
        parent, name_begin = os.path.split(prefix_of_folders())
        with os.scandir(parent) as entries:
            temporary = [Path(entry.path) for entry in entries if entry.name.startswith(name_begin)]
        places = [*LIVE_FOLDERS, *self._request.open_places, self._folder.run, *temporary, *live_places()]
        root = None
        if not self._user_namespace:
            root = f"{self._base}/root"
            os.makedirs(root, exist_ok=True)
        # In a user namespace, where layers lie over the real folders, those would come along, too.
        opened = open_places(self._layers, places, recursive=not self._user_namespace)
        stored = {layer.path: self._stored(index) for index, layer in enumerate(self._layers)}
        plan = {
            "user_namespace": self._user_namespace,
            "root": root,
            "options": _OPTIONS[self._user_namespace],
            "cwd": str(self._request.cwd),
            "layers": [
                {
                    **asdict(layer),
                    "stored": stored.get(layer.path),
                    "lower": f"{stored[layer.path]}/lower" if layer.kind == SHADOW else layer.path,
                }
                for layer in in_mount_order([*self._layers, *opened])
            ],
        }
        path = self._folder.path / f"{plan_name}.json"
        path.write_text(json.dumps(plan), encoding="utf-8")
        return str(path)

    def wrap(self, command: Sequence[str]) -> list[str]:
        """The command that makes the view and becomes another one."""
        self._plans += 1
        self._is_complete = False
        return [*_python(), _ENTER, self._write_plan(f"start-{self._plans}"), *command]

    def variables(self) -> dict[str, str]:
        """None are needed."""
        return {}

    def pulse_fd(self) -> int:
        """The lock."""
        return self._folder.lock_fd

    def require_room(self) -> None:
        """The layers' disk must not be full."""
        if self._room is not None:
            self._room.require_room()

    def _measure_stored(self) -> int:
        return measure_disk_use(f"{self._stored(index)}/upper" for index in range(len(self._layers)))

    def collect(self) -> WrittenFiles:
        """Move what is new to its place, and list what was written."""
        state = self._folder.read_state()
        assert state is not None
        written, self._is_complete = settle_overlay(self._folder, state)
        return written

    def close(self) -> None:
        """Throw the layers away, unless they hold something that has no place yet."""
        if self._is_complete:
            remove_tree(self._base)
        self._folder.close(keep=not self._is_complete)


def make_shadow(folder: str, shadow: str) -> bool:
    """Make a folder that has what another one has: links to its files, and empty folders for its folders.

    Returns:
        Whether it could be made within :data:`MAX_SHADOW_BYTES`.
    """
    copied_bytes = 0
    copy_folder(folder, shadow)
    with os.scandir(folder) as entries:
        for entry in entries:
            target = f"{shadow}/{entry.name}"
            state = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(state.st_mode):
                copy_folder(entry.path, target)
            elif stat.S_ISLNK(state.st_mode):
                os.symlink(os.readlink(entry.path), target)
            elif stat.S_ISREG(state.st_mode):
                copied_bytes += _link_or_copy(entry.path, target, state, MAX_SHADOW_BYTES - copied_bytes)
                if copied_bytes > MAX_SHADOW_BYTES:
                    return False
    return True


def _link_or_copy(path: str, target: str, state: os.stat_result, most_bytes: int) -> int:
    """Returns the bytes that it takes on the disk; nothing is copied where those are more than ``most_bytes``."""
    with contextlib.suppress(OSError):
        os.link(path, target)
        return 0
    if not os.access(path, os.R_OK):  # the script cannot read it, either
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0))
        return 0
    if state.st_size <= most_bytes:
        shutil.copy2(path, target)
    return state.st_size


def _likely_places(request: Request) -> list[Path]:
    """Folders in which the script is likely to write: the current one, those that its command names, home, /tmp."""
    words = [part for word in request.command for part in (word, word.partition("=")[2])]
    named = [request.cwd / word for word in words if word and "{scratch}" not in word and "\0" not in word]
    folders = [place if place.is_dir() else place.parent for place in named]
    places = [request.cwd, Path.home(), Path(tempfile.gettempdir()), *folders]
    return list(dict.fromkeys(place.resolve() for place in places if place.is_dir()))


def _require_user_attributes(base: str) -> None:
    try:
        os.setxattr(base, "user.pipetune", b"1")
    except OSError as error:
        raise Unavailable(f"the file system of {base} has no attributes of users: {error.strerror}") from None


def _python() -> list[str]:
    # -S and -E: nothing of the environment is needed, and the hook must not enter this interpreter.
    return [sys.executable, "-P", "-E", "-S"]
