"""The two folders to carry: what they hold, their sizes, and the limit."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.pack.machine import MAX_CARRIED_MIB, PROCESSOR, PYTHON
from pipetune.errors import PipetuneError

NAMES = (".gpu1", ".gpu2")
MANIFEST = "parts.json"
_MIB = 1 << 20
#: Left free below the limit, for the tar headers and the like of whatever carries the folders.
_SLACK_BYTES = _MIB
#: What enters the parts on the other machine; in each part, because either may be all that is beside the tree.
_ENTRANCE = tuple(Path(__file__).with_name(name) for name in ("enter.sh", "enter.py"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What is to be carried."""

    wheels: Sequence[Path]
    data: Path
    """Folder that ``XDG_DATA_HOME`` will name, with jpeg-roi."""
    dali: Path
    """DALI's archive."""
    versions: dict[str, str]
    """Package -> version, to be shown."""


@dataclass(frozen=True, slots=True)
class Part:
    """One folder to carry."""

    name: str
    size_bytes: int
    holds: str


def write_parts(contents: Contents, root: Path, limit_bytes: int) -> list[Part]:
    """Write the folders into ``root``; the earlier ones are replaced, or stay if the new ones cannot be had.

    Args:
        contents: what is carried.
        root: the checkout.
        limit_bytes: the largest size of a folder.

    Raises:
        PipetuneError: they would be larger than the limit.
    """
    with tempfile.TemporaryDirectory(prefix=".gpu-new-", dir=root) as work:
        first, second = (Path(work, name) for name in NAMES)
        for folder in (first, second):
            folder.mkdir()
            for file in _ENTRANCE:
                shutil.copy(file, folder)
        (first / "whl").mkdir()
        for wheel in contents.wheels:
            shutil.copy(wheel, first / "whl")
        shutil.copytree(contents.data, first / "data")
        room = [limit_bytes - _SLACK_BYTES - measure_size(folder) for folder in (first, second)]
        write_manifest(contents, first)
        shutil.copy(first / MANIFEST, second)
        count = split_file(contents.dali, [first, second], room)
        parts = [Part(first.name, measure_size(first), describe(contents, count))]
        if count == 2:
            parts.append(Part(second.name, measure_size(second), f"DALI {contents.versions['DALI']}, part 2 of 2"))
        for name in NAMES:
            shutil.rmtree(root / name, ignore_errors=True)
        for part in parts:
            Path(work, part.name).rename(root / part.name)
    return parts


def split_file(file: Path, folders: Sequence[Path], room_bytes: Sequence[int]) -> int:
    """Write a file as ``dali.0`` and ``dali.1`` into folders; returns how many it took.

    Raises:
        PipetuneError: there is no room for it.
    """
    size = file.stat().st_size
    if size > sum(max(0, room) for room in room_bytes) or min(room_bytes) < 0:
        rooms = " and ".join(f"{max(0, room) / _MIB:.1f}" for room in room_bytes)
        raise PipetuneError(
            f"DALI takes {size / _MIB:.1f} MiB, and the parts have room for {rooms} MiB", hint="raise --limit-mib"
        )
    with file.open("rb") as source:
        for index, (folder, room) in enumerate(zip(folders, room_bytes, strict=True)):
            (folder / f"dali.{index}").write_bytes(source.read(room))
            if source.tell() == size:
                return index + 1
    raise AssertionError("the file has grown")


def write_manifest(contents: Contents, folder: Path) -> None:
    """Write what enter.py has to know: for which Python the parts are, and whether DALI's are complete."""
    dali = contents.dali.read_bytes()
    manifest = {
        "python": list(PYTHON),
        "processor": PROCESSOR,
        "versions": contents.versions,
        "dali": {"bytes": len(dali), "sha256": hashlib.sha256(dali).hexdigest()},
        "wheels": {wheel.name: hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in contents.wheels},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def describe(contents: Contents, count: int) -> str:
    """The words for the first part's contents."""
    others = [f"{name} {version}" for name, version in contents.versions.items() if name != "DALI"]
    whole = f"DALI {contents.versions['DALI']}" + (f", part 1 of {count}" if count > 1 else "")
    return ", ".join([*others, whole])


def measure_size(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def measure_tree(root: Path) -> int | None:
    """Bytes of the tree that travels with every call: tracked files, and others that git does not ignore.

    ``None``: this is no checkout, or git is not installed.
    """
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    paths = [root / name for name in set(listed.split("\0")) if name]
    return sum(path.lstat().st_size for path in paths if path.is_symlink() or path.is_file())


def describe_sizes(parts: Sequence[Part], tree_bytes: int | None) -> list[str]:
    """Lines with each part's size, and the sum."""
    rows = [(part.name, part.size_bytes, part.holds) for part in parts]
    total = sum(part.size_bytes for part in parts)
    if tree_bytes is None:
        rows.append(("sum", total, "without the tree: this is no git checkout"))
    else:
        largest = max(parts, key=lambda part: part.size_bytes)
        call_mib = (tree_bytes + largest.size_bytes) / _MIB
        rows.insert(0, ("tree", tree_bytes, "what git tracks or does not ignore"))
        rows.append(("sum", total + tree_bytes, f"largest call: {call_mib:.1f} MiB, the tree and {largest.name}"))
    return [f"{name:<8}{size / _MIB:6.1f} MiB  {words}" for name, size, words in rows]


def compute_limit(limit_mib: int, tree_bytes: int | None) -> int:
    """The largest size of a part in bytes: the limit asked for, or less where tree and part exceed a call's limit."""
    return min(limit_mib * _MIB, MAX_CARRIED_MIB * _MIB - (tree_bytes or 0))
