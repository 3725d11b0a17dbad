"""Names what a path is that holds no images which pipetune can read, and says what to do about it."""

from __future__ import annotations

import glob
import os
import re
import shlex

from pipetune.errors import UsageError

#: Ending -> what such a file is, and what to do. ``{}`` is the quoted path.
_FILES = {
    ".zip": ("a ZIP file", "unpack it: unzip {} -d DIR"),
    ".7z": ("a 7-Zip file", "unpack it: 7z x {}"),
    ".rar": ("a RAR file", "unpack it: unrar x {}"),
    ".parquet": ("a Parquet file", "write its images into class folders or WebDataset shards; {} is not read"),
    ".arrow": ("an Arrow file", "write its images into class folders or WebDataset shards; {} is not read"),
    ".beton": ("an FFCV data set", "name the images that it was written from, or sweep the script that reads it"),
    ".h5": ("an HDF5 file", "sweep the script that reads it: pipetune sweep -- python train.py"),
    ".hdf5": ("an HDF5 file", "sweep the script that reads it: pipetune sweep -- python train.py"),
    ".mdb": ("an LMDB database", "sweep the script that reads it: pipetune sweep -- python train.py"),
    ".lmdb": ("an LMDB database", "sweep the script that reads it: pipetune sweep -- python train.py"),
    ".npz": ("arrays of numpy", "sweep the script that reads them: pipetune sweep -- python train.py"),
    ".pkl": ("a pickle", "sweep the script that reads it: pipetune sweep -- python train.py"),
    ".csv": ("a table", "name the folder that holds the images"),
    ".json": ("a JSON file", "name the folder that holds the images"),
    ".jsonl": ("a JSON file", "name the folder that holds the images"),
    ".txt": ("a text file", "name the folder that holds the images"),
}
_IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp")
#: ``s3://bucket/x``; not ``synthetic:x``.
_URL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
_PATTERN = re.compile(r"[*?\[{]")
#: Names in a folder that are looked at.
_MAX_LOOKED_AT = 10_000


def refuse_other_kinds(spec: str) -> None:
    """Refuse what is no path: a URL, or a pattern.

    Raises:
        UsageError: it is one.
    """
    url = _URL.match(spec)
    if url is not None:
        raise UsageError(
            f"{spec!r} is a URL, and a data set is a local path",
            hint=f"copy it, or mount it and name its folder, or sweep the script that reads {url[1].lower()}://",
        )
    pattern = os.path.expanduser(spec)
    if _PATTERN.search(pattern) and not os.path.lexists(pattern):
        count = len(glob.glob(pattern))
        files = f" of {count:,} files" if count > 1 else ""
        folder = os.path.dirname(_PATTERN.split(pattern)[0]) or "."
        raise UsageError(
            f"{spec!r} is a pattern{files}, and a data set is one path", hint=f"name a folder: {shlex.quote(folder)}"
        )


def describe_file(path: str) -> tuple[str, str]:
    """What a file is that is no shard, and what to do."""
    ending = os.path.splitext(path)[1].lower()
    if ending in _IMAGE_ENDINGS:
        return "is one image", f"name the folder that holds it: {shlex.quote(os.path.dirname(path) or '.')}"
    what, hint = _FILES.get(ending, ("a file, not a directory", "name the folder that holds the images"))
    return f"is {what}", hint.format(shlex.quote(path))


def find_other_kind(root: str) -> str | None:
    """A hint about a folder without images, by the files that it holds; ``None``: none of them is known."""
    for looked_at, name in enumerate(_walk_names(root)):
        if looked_at > _MAX_LOOKED_AT:
            break
        path = os.path.join(root, name)
        known = _FILES.get(os.path.splitext(name)[1].lower())
        if known is not None and known[0] not in ("a table", "a JSON file", "a text file"):
            return f"{os.path.relpath(path, root)!r} is {known[0]}: {known[1].format(shlex.quote(path))}"
    return None


def _walk_names(root: str) -> list[str]:
    names: list[str] = []
    for folder, _, files in os.walk(root):
        names += (os.path.join(os.path.relpath(folder, root), name) for name in sorted(files))
        if len(names) > _MAX_LOOKED_AT:
            break
    return names
