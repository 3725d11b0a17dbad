"""Whether a process reads a data set that is packed into large files already, by the files that it has open."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter

from pipetune.machine.proc import PROC

#: Ending of a file -> what such files are called. Those that are mapped into memory (FFCV's, pixels) are not open.
_ENDINGS = {
    ".tar": "WebDataset shards", ".tgz": "WebDataset shards", ".tar.gz": "WebDataset shards",
    ".rec": "RecordIO files", ".tfrecord": "TFRecord files", ".tfrecords": "TFRecord files", ".mds": "MDS shards",
    ".h5": "HDF5 files", ".hdf5": "HDF5 files", ".mdb": "an LMDB", ".parquet": "Parquet files", ".arrow": "Arrow files",
}  # fmt: skip
#: As TensorFlow's data sets are called, with or without an ending: ``train-00000-of-01024``.
_OF_MANY = re.compile(r".*-\d{5}-of-\d{5}")


def packed_files(pid: int, proc: str = PROC) -> str | None:
    """What the packed files are called that a process has open, those of which it has the most.

    ``None``: it has none, or this user may not see its files.
    """
    folder = f"{proc}/{pid}/fd"
    found: Counter[str] = Counter()
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                kind = kind_of(os.readlink(f"{folder}/{name}"))
                if kind is not None:
                    found[kind] += 1
    return found.most_common(1)[0][0] if found else None


def kind_of(path: str) -> str | None:
    """What such files are called; ``None``: it is none of them."""
    base = os.path.basename(path.removesuffix(" (deleted)")).lower()
    ending = next((known for known in sorted(_ENDINGS, key=len, reverse=True) if base.endswith(known)), None)
    if ending is not None:
        return _ENDINGS[ending]
    return "TFRecord files" if _OF_MANY.fullmatch(base) else None
