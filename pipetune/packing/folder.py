"""The folder of a pack: whether it can take one, who writes into it, and ``pack.json``."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from pipetune.datasets.synthetic_uri import SCHEME
from pipetune.errors import PipetuneError, UsageError
from pipetune.packing.formats.shard_file import UNFINISHED
from pipetune.packing.layout import TRAINING, VALIDATION
from pipetune.packing.manifest import PARTS
from pipetune.packing.options import AS_IS, LOSSLESS, PackOptions
from pipetune.records.convert import from_dict
from pipetune.records.pack import PackPlan, PackResult
from pipetune.store.files import os_errors_as, remove_unfinished_files, replace_file
from pipetune.store.regular import read_whole

PACK_FILE, CLASSES = "pack.json", "classes.json"
#: Held by who writes shards, and by who decides how many there are. Two files, because on NFS a lock of any kind is one
#: of the whole file.
LOCK, PLANNING_LOCK = ".pipetune-lock", ".pipetune-planning"
#: So begins the name of what pipetune itself leaves in a folder in which no pack was begun.
_OWN = ".pipetune-"
_MOST_BYTES = 1 << 24


def refuse_folder(options: PackOptions) -> None:
    """Refuse a folder that cannot take the pack.

    Raises:
        UsageError: it lies in the source or contains it, is a file, or has something else in it.
    """
    source, out = (os.path.realpath(os.path.expanduser(path)) for path in (options.source, options.out))
    synthetic = options.source.startswith(SCHEME)
    for inner, outer, text in () if synthetic else ((out, source, "lies in"), (source, out, "contains")):
        if os.path.commonpath([inner, outer]) == outer:
            raise UsageError(f"{str(options.out)!r} {text} {options.source!r}, so a pack would pack itself",
                             hint="name a folder beside it")  # fmt: skip
    if options.out.exists() and not options.out.is_dir():
        raise UsageError(f"{str(options.out)!r} is a file", hint="name a folder, new or empty")
    if not options.out.is_dir():
        return
    folders = (TRAINING, VALIDATION, *(name for name, _ in options.sizes))
    with os_errors_as("read", options.out):
        present = [name for name in sorted(os.listdir(options.out)) if not _is_own(options.out / name, folders)]
    packs = [name for name in present if name == PACK_FILE or _has_pack(options.out / name, folders)]
    if present and not packs:
        raise UsageError(f"{str(options.out)!r} has other things in it, such as {present[0]!r}",
                         hint="name a folder, new or empty")  # fmt: skip
    if packs and not (options.resume or options.part is not None):
        raise UsageError(f"{str(options.out)!r} has a pack in it", hint="--resume goes on with it, or name another")


def _has_pack(path: Path, names: Collection[str]) -> bool:
    return (path / PACK_FILE).is_file() or any((path / name / PACK_FILE).is_file() for name in names)


def refuse_others(out: Path, folders: Collection[Path]) -> None:
    """Refuse a folder in which there are other packs than those that are wanted.

    Raises:
        UsageError: there are.
    """
    # Not every folder in it: a pack may be a folder for each of many classes.
    parts = (TRAINING, VALIDATION)
    sizes = [path for path in _folders(out) if path.name.isdecimal() or path.name in (AS_IS, LOSSLESS)]
    for folder in (out, *(one / part for one in (out, *sizes) for part in parts), *sizes):
        path = folder / PACK_FILE
        if folder not in folders and path.is_file():
            raise UsageError(
                f"{str(folder)!r} has a pack in it that these options do not make",
                hint=f"{str(path)!r} has its options; repeat them, or name another folder",
            )


def _folders(out: Path) -> list[Path]:
    return sorted(path for path in out.iterdir() if path.is_dir()) if out.is_dir() else []


def _is_own(path: Path, names: Collection[str]) -> bool:
    """Something that a call has left that had not begun a pack yet.

    Args:
        names: of the folders that calls make.
    """
    if path.name.startswith(_OWN):
        return True
    return path.name in names and path.is_dir() and all(_is_own(one, names) for one in path.iterdir())


def stored_pack(folder: Path, mark: str) -> tuple[PackPlan, PackResult | None] | None:
    """Plan and result of a pack that was begun; ``None``: none was.

    Raises:
        UsageError: it was begun with other images or options, or cannot be read.
    """
    path = folder / PACK_FILE
    try:
        stored = json.loads(read_whole(path, _MOST_BYTES))
        same = stored["mark"] == mark
        result = stored["result"]
        found = from_dict(PackPlan, stored["plan"]), None if result is None else from_dict(PackResult, result)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, OSError, TypeError) as error:
        raise UsageError(f"{str(path)!r} cannot be read: {error}", hint="name another folder, or delete it") from error
    if not same:
        raise UsageError(
            f"{str(folder)!r} was begun with other images or other options",
            hint=f"{str(path)!r} has the options; repeat them, or name another folder",
        )
    return found


def _named(source: str) -> str:
    return source if source.startswith(SCHEME) else os.path.abspath(source)


def write_pack_file(folder: Path, options: PackOptions, mark: str, plan: PackPlan, result: PackResult | None) -> None:
    """Write ``pack.json``.

    Raises:
        PipetuneError: the disk refuses.
    """
    from dataclasses import asdict

    from pipetune.version import __version__

    stored: dict[str, Any] = {
        "schema": 1, "pipetune": __version__, "mark": mark, "source": _named(options.source),
        "options": {
            "format": options.format, **asdict(options.pixels), "shard_bytes": options.shard_bytes,
            "shuffle": options.shuffle, "validation": options.validation, "min_per_class": options.min_per_class,
        },
        "plan": asdict(plan), "result": None if result is None else asdict(result),
    }  # fmt: skip
    replace_file(folder / PACK_FILE, [json.dumps(stored, indent=1).encode("ascii"), b"\n"])


@contextlib.contextmanager
def writing(folder: Path, part: tuple[int, int] | None) -> Iterator[None]:
    """One process at a time writes a pack, or with ``--part`` several at the same time, each another part.

    Raises:
        PipetuneError: another one does.
    """
    parts = folder / PARTS
    parts.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_locked(folder, folder / LOCK, shared=part is not None))
        if part is not None:
            stack.enter_context(_locked(folder, parts / f"lock-{part[0] + 1}-of-{part[1]}", shared=False))
        yield


@contextlib.contextmanager
def planning(folder: Path, report: Callable[[str, int, int | None], None]) -> Iterator[None]:
    """One process at a time decides how many shards there are; the others wait for it.

    Args:
        report: is told that it waits.
    """
    fd = os.open(folder / PLANNING_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report("waiting for another process, which plans this pack", 0, None)
                fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def _locked(folder: Path, target: Path, *, shared: bool) -> Iterator[None]:
    fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PipetuneError(
                f"another process writes {str(folder)!r}", hint="wait until it has ended, or name another folder"
            ) from error
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(fd)


def remove_unfinished(folder: Path, names: Iterator[str]) -> None:
    """What a call that was killed has left of these shards, and of files that belong to all of them."""
    remove_unfinished_files(folder)
    ours = set(names)
    for path in folder.glob(f"*{UNFINISHED}"):
        shard = path.name.removesuffix(UNFINISHED).rpartition(".")[0]
        if shard in ours:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def remove_parts(folder: Path) -> None:
    """The parts, once they are in the manifest."""
    for path in (folder / PARTS).iterdir():
        path.unlink()
    (folder / PARTS).rmdir()
