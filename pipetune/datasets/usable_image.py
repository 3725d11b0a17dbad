"""Reads what an index says of an image, and refuses one that no decoder could use."""

from __future__ import annotations

from pipetune.datasets.image_header import Header, NotAnImage, read_header
from pipetune.datasets.image_scans import why_too_slow
from pipetune.datasets.image_tail import why_incomplete

#: A larger file is not read: no photograph is, and each worker would hold it in memory. jpeg-roi has the same limit.
MAX_FILE_BYTES = 64 << 20


def read_usable(path: str | bytes, size_bytes: int, *, start: int = 0, count_scans: bool = True) -> Header:
    """The header of an image that is complete and can be decoded in a reasonable time.

    Args:
        path: the file.
        size_bytes: size of the image.
        start: offset of the image in the file (bytes).
        count_scans: read large progressive JPEGs to their ends (see :mod:`pipetune.datasets.image_scans`).

    Raises:
        NotAnImage: it is not; with the reason.
        OSError: the file could not be opened or read.
    """
    header = read_header(path, start=start)
    reason = why_incomplete(path, header.format, size_bytes, start=start)
    if reason is None and count_scans:
        reason = why_too_slow(path, header, size_bytes, start=start)
    if reason is not None:
        raise NotAnImage(reason)
    return header
