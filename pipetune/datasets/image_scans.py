"""Whether a progressive JPEG has so many scans that decoding it takes minutes.

A progressive JPEG may repeat scans as often as it likes. Each of them takes some bytes only and visits every block of
the image, so that a file of 3 MB can keep any decoder busy for hours, without a warning. Encoders write about ten.
Source: ITU-T T.81 G.1.1.1.1 sets no limit; libjpeg-turbo's authors advise applications to set one.
"""

from __future__ import annotations

import os

from pipetune.datasets.image_header import Header

#: More are refused; also in ``jpeg_roi.c``.
MOST_SCANS = 100
#: A scan's header and its shortest data (bytes).
_LEAST_SCAN_BYTES = 12
#: Visits of blocks (8 x 8 px) up to which scans are not counted, however many there may be: two seconds or less.
_HARMLESS_VISITS = 3e8
_SCAN = b"\xff\xda"


def why_too_slow(path: str | bytes, header: Header, size_bytes: int, *, start: int = 0) -> str | None:
    """Why an image takes too long to decode, in a few words; ``None``: it does not.

    Only a large progressive JPEG is read for it, and then whole.

    Args:
        path: a file whose header was readable.
        header: of the image.
        size_bytes: size of the image.
        start: offset of the image in the file (bytes).

    Raises:
        OSError: the file could not be opened or read.
    """
    if header.format != "jpeg" or not header.progressive:
        return None
    blocks = header.width * header.height / 64
    if blocks * size_bytes / _LEAST_SCAN_BYTES <= _HARMLESS_VISITS:
        return None
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        # Within the pixels every FF is followed by 00 or a restart marker; a thumbnail's few scans do no harm.
        scans = os.pread(fd, size_bytes, start).count(_SCAN)
    finally:
        os.close(fd)
    return None if scans <= MOST_SCANS else f"a progressive JPEG with {scans:,} scans, more than {MOST_SCANS}"
