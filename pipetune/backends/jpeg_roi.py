"""jpeg-roi: decodes only the crop of a JPEG, and resizes it as Pillow does; in C, on libjpeg-turbo.

The pixels are the reference's to within one grey level. What lies outside of the crop is not transformed, no decoded
image lies in memory, and Python's global lock is let go for all of it. What is no JPEG, is to be rotated, has four
colours or is damaged, Pillow decodes, or says why it cannot. See ``jpeg_roi.c``.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache

import numpy as np

from pipetune.backends import pillow
from pipetune.backends.contract import MEAN, STD, Loader, Trial
from pipetune.backends.layout import Array
from pipetune.backends.loading import open_decoding
from pipetune.backends.photos import Photo, Window, trial_of
from pipetune.datasets.index import ImageSet
from pipetune.errors import MissingPackageError
from pipetune.records import Candidate, Workload
from pipetune.side import JPEG_ROI, find_jpeg_roi

_UPRIGHT = 1
_INTERFACE = 1
_OK, _NO_MEMORY = 0, 3
_own = threading.local()


class _Target(ctypes.Structure):
    """``Target`` of jpeg_roi.c."""

    _fields_ = (
        ("at", ctypes.c_void_p),
        ("row", ctypes.c_ssize_t),
        ("column", ctypes.c_ssize_t),
        ("channel", ctypes.c_ssize_t),
        ("size", ctypes.c_int),
        ("flip", ctypes.c_int),
        ("as_float", ctypes.c_int),
        ("scale", ctypes.c_float * 3),
        ("shift", ctypes.c_float * 3),
    )


def open_loader(candidate: Candidate, workload: Workload, images: ImageSet) -> Loader:
    """See :mod:`pipetune.backends.contract`."""
    require_library()  # before any worker is started
    return open_decoding(candidate, workload, images, load)


def open_trial(workload: Workload) -> Trial:
    """See :mod:`pipetune.backends.contract`."""
    return trial_of(load)


def load(photo: Photo, window: Window, out: Array) -> None:
    """Decode the crop, resize (bilinear, antialiased) and flip."""
    if not decode_crop(photo, window, out, approximate=False):
        pillow.load(photo, window, out)


def decode_crop(photo: Photo, window: Window, out: Array, *, approximate: bool) -> bool:
    """Fill ``out`` from the JPEG; ``False``: another decoder has to.

    Args:
        approximate: decode at a fraction of the size where that suffices, with the fast inverse transform.

    Raises:
        MemoryError: there is none for the resize.
    """
    if not photo.is_jpeg or photo.orientation != _UPRIGHT:
        return False
    reader: _Reader | None = getattr(_own, "reader", None)
    if reader is None:
        reader = _own.reader = _Reader()
    return reader.crop(photo.read(), window, out, approximate=approximate)


class _Reader:
    """A decoder of one thread."""

    def __init__(self) -> None:
        self._library = require_library()
        self._reader = ctypes.c_void_p(self._library.pipetune_jpeg_roi_open())
        if not self._reader:
            raise MemoryError("no memory for a JPEG decoder")
        self._size = (ctypes.c_int * 2)()
        self._crop = (ctypes.c_int * 4)()
        self._target = _Target(
            scale=tuple(1 / (255 * std) for std in STD),
            shift=tuple(-mean / std for mean, std in zip(MEAN, STD, strict=True)),
        )

    def __del__(self) -> None:
        if getattr(self, "_reader", None):
            self._library.pipetune_jpeg_roi_close(self._reader)

    def crop(self, data: memoryview, window: Window, out: Array, *, approximate: bool) -> bool:
        """See :func:`decode_crop`; ``data`` is the file."""
        start = np.frombuffer(data, np.uint8).ctypes.data if data else None
        if self._library.pipetune_jpeg_roi_header(self._reader, start, len(data), self._size) != _OK:
            return False
        top, left, height, width, flip = window(self._size[0], self._size[1])
        self._crop[:] = [top, left, height, width]
        target = self._target
        target.at = out.ctypes.data
        target.row, target.column, target.channel = out.strides
        target.size, target.flip, target.as_float = len(out), flip, out.dtype != np.uint8
        code = self._library.pipetune_jpeg_roi_crop(self._reader, self._crop, approximate, ctypes.byref(target))
        if code == _NO_MEMORY:
            raise MemoryError("no memory to resize an image")
        return bool(code == _OK)


@cache
def require_library() -> ctypes.CDLL:
    """The C library.

    Raises:
        MissingPackageError: it has not been built.
    """
    found = find_jpeg_roi()
    if found is None:
        raise MissingPackageError(f"{JPEG_ROI} is not built", hint=f"run: pipetune doctor --install {JPEG_ROI}")
    library = ctypes.CDLL(found.path)
    assert library.pipetune_jpeg_roi_interface() == _INTERFACE, "built from the same source"
    library.pipetune_jpeg_roi_open.restype = ctypes.c_void_p
    library.pipetune_jpeg_roi_close.argtypes = [ctypes.c_void_p]
    library.pipetune_jpeg_roi_close.restype = None
    library.pipetune_jpeg_roi_header.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    library.pipetune_jpeg_roi_crop.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    return library
