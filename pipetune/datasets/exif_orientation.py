"""The orientation in an EXIF block, read as OpenCV, torchvision, TorchCodec and DALI read it.

Those four take the first two bytes of the value as a number, whatever type and count the tag names: a little-endian
LONG turns the image, a big-endian one does not. Pillow's ``exif_transpose`` obeys the type, and alone turns the latter
(compared with OpenCV 5.0, torchvision 0.29, TorchCodec 0.17, DALI 2.4 and Pillow 13).
Sources: TIFF 6.0 section 2, EXIF 2.3 tag 0x0112; ``exif.cpp`` of OpenCV and of torchvision.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

#: ``take(offset, count)`` -> exactly that many bytes; raises :class:`pipetune.datasets.image_header.NotAnImage` past
#: the end.
Take = Callable[[int, int], bytes]

_ORIENTATION_TAG, _SHORT = 0x0112, 3
#: Bytes of a directory's entry, and how many of them the four libraries need to read an orientation.
_ENTRY, _READ_OF_ENTRY = 12, 10


class Orientation(NamedTuple):
    """How an image is turned upright."""

    value: int
    """1..8; 1 where there is no tag or another value."""
    disputed: bool
    """Some libraries read another one, because the EXIF block is damaged or has the tag in another type than SHORT."""


UPRIGHT = Orientation(1, disputed=False)


def read_orientation(take: Take, tiff: int, end: int) -> Orientation:
    """The tag of the first directory in the TIFF structure at ``tiff``, which ends at ``end`` (bytes).

    Raises:
        NotAnImage: the file ends within it.
    """
    order = take(tiff, 8)
    if order[:4] == b"II*\0":
        mark = "<"
    elif order[:4] == b"MM\0*":
        mark = ">"
    else:
        return UPRIGHT
    directory = tiff + struct.unpack_from(mark + "I", order, 4)[0]
    if directory + 2 > end:
        return UPRIGHT
    count = struct.unpack(mark + "H", take(directory, 2))[0]
    # DALI ignores a directory that is longer than its segment, and the others read what is there.
    disputed = directory + 2 + _ENTRY * count > end
    for entry in range(directory + 2, min(directory + 2 + _ENTRY * count, end - _READ_OF_ENTRY + 1), _ENTRY):
        tag, kind, number, value = struct.unpack(mark + "HHIH", take(entry, _READ_OF_ENTRY))
        if tag == _ORIENTATION_TAG:
            is_usual = (kind, number) == (_SHORT, 1)
            value = value if 1 <= value <= 8 else 1
            return Orientation(value, disputed=not is_usual or (disputed and value != 1))
    return UPRIGHT
