"""What comes back: a stage's log and run folders beside its result, and all results of a call in one archive.

A machine that is lent gives back few files of limited size. So there is one archive, written anew after each stage and
put in its place at once; what would make it too large goes into further ones.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

from benchmarks.gpu.leasing.clean import clean_names, clean_text

#: A file that comes back may have 16 MiB, all together 64.
MAX_ARCHIVE_BYTES = 15 << 20
MAX_ARCHIVES = 4
_CLEANED = (".json", ".jsonl", ".txt", ".csv", ".html", ".log", ".md", ".toml", ".xml", ".py")
#: Fast: the next stage waits for it.
_RUN_PRESET: Final = 2
_ALL_PRESET: Final = 0
#: A stage's folder while it runs, beside its result; hidden, and not tracked.
_WORK = ".{}.work"
LOG, RUNS = "log.txt", "runs"


def make_work_folder(folder: Path, name: str) -> Path:
    """The folder of a stage that is about to run: its log and its run folders."""
    work = folder / _WORK.format(name)
    (work / RUNS).mkdir(parents=True)
    return work


def publish(folder: Path, name: str) -> list[Path]:
    """Turn a stage's folder into ``NAME.log`` and, where it has run folders, ``NAME.tar.xz``; the new files."""
    work = folder / _WORK.format(name)
    files = []
    with contextlib.suppress(FileNotFoundError):
        log = folder / f"{name}.log"
        log.write_text(clean_text((work / LOG).read_text(errors="replace")))
        files.append(log)
    if any((work / RUNS).glob("*")):
        packed = folder / f"{name}.tar.xz"
        pack_folder(work / RUNS, packed)
        files.append(packed)
    shutil.rmtree(work, ignore_errors=True)
    return files


def list_abandoned(folder: Path) -> list[str]:
    """The stages that a lease which was killed has not published."""
    prefix, suffix = _WORK.split("{}")
    return [path.name[len(prefix) : -len(suffix)] for path in sorted(folder.glob(_WORK.format("*")))]


def pack_folder(folder: Path, target: Path) -> None:
    """Pack a folder without owners, hosts and folders of the machine."""
    with _replacing(target, _RUN_PRESET) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                _add(archive, path, str(path.relative_to(folder)), clean=path.suffix in _CLEANED)


def write_archives(out: Path, name: str, folder: Path, files: Iterable[Path]) -> list[str]:
    """Pack the results of a call.

    Args:
        out: folder of the archives; is made.
        name: of the first archive, without its ending; the second one is ``NAME-2``.
        folder: the device's; its name is the first part of each path.
        files: all that the call has written so far.

    Returns:
        What was left out, and why, one line each.
    """
    out.mkdir(parents=True, exist_ok=True)
    groups, left_out = split_by_size(sorted({file for file in files if file.exists()}))
    for number, group in enumerate(groups, 1):
        target = out / f"{name}{f'-{number}' if number > 1 else ''}.tar.xz"
        with _replacing(target, _ALL_PRESET) as archive:
            for path in group:
                _add(archive, path, f"{folder.name}/{path.name}", clean=False)
    return [f"{path.name} was left out of the archives: they would be larger than what comes back" for path in left_out]


def split_by_size(files: Sequence[Path], limit_bytes: int = MAX_ARCHIVE_BYTES) -> tuple[list[list[Path]], list[Path]]:
    """The files in groups that fit an archive each, results and logs first; and those that fit none."""
    groups: list[list[Path]] = []
    used, left_out = 0, []
    for path in sorted(files, key=lambda file: (file.name.endswith(".tar.xz"), file.name)):
        size = path.stat().st_size
        if size > limit_bytes or (groups and used + size > limit_bytes and len(groups) == MAX_ARCHIVES):
            left_out.append(path)
            continue
        if not groups or used + size > limit_bytes:
            groups.append([])
            used = 0
        groups[-1].append(path)
        used += size
    return groups, left_out


@contextlib.contextmanager
def _replacing(target: Path, preset: Literal[0, 2]) -> Iterator[tarfile.TarFile]:
    """An archive that takes its place when it is complete; where that fails, nothing of it is left."""
    partial = target.with_name(f".{target.name}.new")
    try:
        with tarfile.open(partial, "w:xz", preset=preset) as archive:
            yield archive
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def _add(archive: tarfile.TarFile, path: Path, name: str, *, clean: bool) -> None:
    data = path.read_bytes()
    if clean:
        text = data.decode(errors="replace")
        data = (clean_names(text) if path.suffix == ".html" else clean_text(text)).encode()
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = len(data), int(path.stat().st_mtime), 0o644
    archive.addfile(entry, io.BytesIO(data))
