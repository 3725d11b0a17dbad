"""A folder with files of a user's, changed at random, and what has to be the same afterwards."""

from __future__ import annotations

import os
import random
import shutil
import stat
from pathlib import Path
from typing import Any

from pipetune.protection import before_change
from pipetune.protection.keeper import Keeper


def make_tree(root: Path) -> None:
    """Files, links, names that share an inode, folders."""
    (root / "a/deep").mkdir(parents=True)
    (root / "b").mkdir()
    (root / "empty").mkdir()
    for number, name in enumerate(["one", "two", "a/three", "a/deep/four", "b/five", "b/six", "seven"]):
        (root / name).write_bytes(f"content of {name}\n".encode() * (number + 1))
        os.chmod(root / name, 0o600 + number % 5)
        os.utime(root / name, ns=(10**18 + number, 10**18 + 7 * number))
    os.link(root / "one", root / "b/one-again")
    (root / "link").symlink_to("two")
    (root / "a/broken").symlink_to("nowhere")


def describe_tree(root: Path, names: list[str] | None = None) -> dict[str, Any]:
    """Content, mode and time of change of each path; the target of a link."""
    described: dict[str, Any] = {}
    paths = sorted(root.rglob("*")) if names is None else [root / name for name in names]
    for path in paths:
        name = str(path.relative_to(root))
        state = os.lstat(path)
        if stat.S_ISDIR(state.st_mode):
            described[name] = ("folder", state.st_mode)
        elif stat.S_ISLNK(state.st_mode):
            described[name] = ("link", os.readlink(path))
        else:
            described[name] = ("file", path.read_bytes(), state.st_mode, state.st_mtime_ns)
    return described


def _without_links(path: str) -> str:
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


class KeptCalls:
    """The calls that change files, with what is kept before each."""

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper

    def write(self, path: str, data: bytes, flags: int) -> None:
        path = os.path.realpath(path)
        before_change.before_open(self.keeper, path, os.O_WRONLY | flags)
        fd = os.open(path, os.O_WRONLY | flags, 0o644)
        os.write(fd, data)
        os.close(fd)

    def rename(self, old: str, new: str) -> None:
        before_change.before_rename(self.keeper, _without_links(old), _without_links(new))
        os.rename(old, new)

    def remove(self, path: str) -> None:
        before_change.before_remove(self.keeper, _without_links(path))
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        before_change.before_rmdir(self.keeper, _without_links(path))
        os.rmdir(path)

    def link(self, old: str, new: str) -> None:
        before_change.before_link(self.keeper, _without_links(old), _without_links(new))
        os.link(old, new, follow_symlinks=False)

    def symlink(self, target: str, path: str) -> None:
        before_change.before_making(self.keeper, _without_links(path))
        os.symlink(target, path)

    def mkdir(self, path: str) -> None:
        before_change.before_making(self.keeper, _without_links(path))
        os.mkdir(path)

    def chmod(self, path: str, mode: int) -> None:
        before_change.before_attributes(self.keeper, os.path.realpath(path))
        os.chmod(path, mode)

    def utime(self, path: str, seconds: int) -> None:
        before_change.before_attributes(self.keeper, os.path.realpath(path))
        os.utime(path, (seconds, seconds))

    def truncate(self, path: str, size: int) -> None:
        before_change.before_truncate(self.keeper, os.path.realpath(path))
        os.truncate(path, size)

    def rmtree(self, path: str) -> None:
        for name in os.listdir(path):
            inner = os.path.join(path, name)
            if os.path.isdir(inner) and not os.path.islink(inner):
                self.rmtree(inner)
            else:
                self.remove(inner)
        self.rmdir(path)


class PlainCalls:
    """The calls alone, as a script makes them."""

    def write(self, path: str, data: bytes, flags: int) -> None:
        fd = os.open(path, os.O_WRONLY | flags, 0o644)
        os.write(fd, data)
        os.close(fd)

    rename = staticmethod(os.rename)
    remove = staticmethod(os.unlink)
    rmdir = staticmethod(os.rmdir)
    symlink = staticmethod(os.symlink)
    mkdir = staticmethod(os.mkdir)
    chmod = staticmethod(os.chmod)
    truncate = staticmethod(os.truncate)
    rmtree = staticmethod(shutil.rmtree)

    def link(self, old: str, new: str) -> None:
        os.link(old, new, follow_symlinks=False)

    def utime(self, path: str, seconds: int) -> None:
        os.utime(path, (seconds, seconds))


def change_at_random(root: Path, calls: Any, seed: int, count: int = 25) -> list[str]:
    """Make calls at random below a folder; those that fail are part of it. Returns what was done."""
    rng = random.Random(seed)
    done = []
    for number in range(count):
        paths = [str(path) for path in sorted(root.rglob("*"))] or [str(root / "new")]
        path, other = rng.choice(paths), rng.choice(paths)
        new = os.path.join(rng.choice([os.path.dirname(path), str(root)]), f"new{rng.randrange(4)}")
        data = f"script {number} ".encode() * rng.randrange(1, 9)
        choices: list[tuple[Any, ...]] = [
            (calls.write, path, data, 0),
            (calls.write, path, data, os.O_APPEND | os.O_CREAT),
            (calls.write, path, data, os.O_TRUNC | os.O_CREAT),
            (calls.write, new, data, os.O_CREAT),
            (calls.rename, path, other),
            (calls.rename, path, new),
            (calls.remove, path),
            (calls.rmdir, path),
            (calls.rmtree, path),
            (calls.link, path, new),
            (calls.symlink, os.path.basename(other), new),
            (calls.mkdir, new),
            (calls.chmod, path, 0o755 if os.path.isdir(path) else 0o640),
            (calls.utime, path, 12345),
            (calls.truncate, path, 3),
        ]
        call, *arguments = rng.choice(choices)
        words = f"{call.__name__} {arguments}"
        try:
            call(*arguments)
        except OSError as error:
            words += f" -> {error.strerror}"
        done.append(words.replace(f"{root}/", ""))
    return done
