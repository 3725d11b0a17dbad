"""Reads what an index says of an image, and refuses one that no decoder could use."""

from __future__ import annotations

from dataclasses import replace

from pipetune.datasets.image_header import Header, NotAnImage, read_header
from pipetune.datasets.image_scans import why_too_slow
from pipetune.datasets.image_tail import has_late_exif, why_incomplete

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
    if header.format == "png" and has_late_exif(path, size_bytes, start=start):
        return replace(header, exif_disputed=True)  # OpenCV and DALI turn it, torchvision and TorchCodec do not
    return header
