"""Whether a JPEG has so many scans that decoding it takes minutes.

A progressive JPEG may repeat scans as often as it likes, and so may another one whose scans have one colour component
each. A scan takes some bytes only and visits every block of the image, so that a file of 3 MB can keep any decoder busy
for hours, without a warning. Encoders write about ten.
Source: ITU-T T.81 G.1.1.1.1 sets no limit; libjpeg-turbo's authors advise applications to set one.
"""

from __future__ import annotations

import os

from pipetune.datasets.image_header import Header
from pipetune.datasets.image_tail import first_scan

#: More are refused; also in ``jpeg_roi.c``.
MOST_SCANS = 100
#: A scan's header and its shortest data (bytes).
_LEAST_SCAN_BYTES = 12
#: Visits of blocks (8 x 8 px) up to which scans are not counted, however many there may be: two seconds or less.
_HARMLESS_VISITS = 3e8
_SCAN = b"\xff\xda"
#: The first scan is looked for in so many bytes: behind thumbnails and colour profiles, of which cameras write less.
_HEAD_BYTES = 1 << 20
#: The same at first: a header without them.
_SHORT_HEAD_BYTES = 1 << 16


def why_too_slow(path: str | bytes, header: Header, size_bytes: int, *, start: int = 0) -> str | None:
    """Why an image takes too long to decode, in a few words; ``None``: it does not.

    Only a large JPEG is read whole for it that is progressive, or whose first scan lacks colour components.

    Args:
        path: a file whose header was readable.
        header: of the image.
        size_bytes: size of the image.
        start: offset of the image in the file (bytes).

    Raises:
        OSError: the file could not be opened or read.
    """
    if header.format != "jpeg":
        return None
    blocks = header.width * header.height / 64
    if blocks * size_bytes / _LEAST_SCAN_BYTES <= _HARMLESS_VISITS:
        return None
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not header.progressive and not _has_scan_per_component(fd, size_bytes, start):
            return None
        # Within the pixels every FF is followed by 00 or a restart marker; a thumbnail's few scans do no harm.
        scans = os.pread(fd, size_bytes, start).count(_SCAN)
    finally:
        os.close(fd)
    return None if scans <= MOST_SCANS else f"a JPEG with {scans:,} scans, more than {MOST_SCANS}"


def _has_scan_per_component(fd: int, size_bytes: int, start: int) -> bool:
    """Whether the first scan of a JPEG that is not progressive has fewer colour components than the image."""
    for head_bytes in (_SHORT_HEAD_BYTES, _HEAD_BYTES):
        data = os.pread(fd, min(head_bytes, size_bytes), start)
        found = first_scan(data)
        if found is not None and found.offset + 5 <= len(data):
            return data[found.offset + 4] < found.components
    return size_bytes > _HEAD_BYTES  # a header like no other: all scans are counted
