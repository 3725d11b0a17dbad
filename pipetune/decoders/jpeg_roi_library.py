"""The C library of jpeg-roi, called through ctypes; see ``jpeg_roi.c`` and ``jpeg_roi_fill.c``."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from functools import cache

import numpy as np

from pipetune.datasets.image_scans import MOST_SCANS
from pipetune.decoders.contract import Array, Files, Window
from pipetune.decoders.crop import LOG_RATIO, SCALE
from pipetune.install.load_jpeg_roi import load_jpeg_roi
from pipetune.records.imagenet import MEAN, STD

_INTERFACE = 4
_OK, _NO_MEMORY, _TOO_MANY_SCANS = 0, 3, 4
_MASK = (1 << 64) - 1
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


class CFiles(ctypes.Structure):
    """``Files`` of jpeg_roi_fill.c; the arrays of ``files`` have to outlive it."""

    _fields_ = (
        ("paths", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("flags", ctypes.c_void_p),
        ("places", ctypes.c_void_p),
        ("held", ctypes.c_void_p),
        ("sizes", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("scale", ctypes.c_double * 2),
        ("log_ratio", ctypes.c_double * 2),
    )

    @classmethod
    def of(cls, files: Files) -> CFiles:
        """The structure with the addresses of these arrays."""
        places = None if files.places is None else files.places.ctypes.data
        held = None if files.held is None else files.held.ctypes.data
        return cls(
            files.paths.ctypes.data, files.starts.ctypes.data, files.flags.ctypes.data, places, held,
            files.sizes.ctypes.data, len(files.flags), SCALE, LOG_RATIO,
        )  # fmt: skip


class Reader:
    """A JPEG decoder for one thread."""

    def __init__(self) -> None:
        self._library = require_library()
        self._pid = os.getpid()
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
        # In a forked child its memory may be as another thread left it in the middle of a call.
        if getattr(self, "_reader", None) and self._pid == os.getpid():
            self._library.pipetune_jpeg_roi_close(self._reader)

    def crop(self, data: memoryview, window: Window, out: Array, *, approximate: bool) -> bool:
        """Decode one crop (see :func:`pipetune.decoders.jpeg_roi.decode_crop`); ``data`` is the file.

        Raises:
            MemoryError: there is too little memory for the resize.
            ValueError: decoding would take far too long, whatever decoder did it.
        """
        start = np.frombuffer(data, np.uint8).ctypes.data if data else None
        if self._library.pipetune_jpeg_roi_header(self._reader, start, len(data), self._size) != _OK:
            return False
        top, left, height, width, flip = window(self._size[0], self._size[1])
        self._crop[:] = [top, left, height, width]
        target = self._aim(out)
        target.flip = flip
        code = self._library.pipetune_jpeg_roi_crop(self._reader, self._crop, approximate, ctypes.byref(target))
        if code == _NO_MEMORY:
            raise MemoryError("no memory to resize an image")
        if code == _TOO_MANY_SCANS:
            raise ValueError(f"a JPEG with more than {MOST_SCANS} scans")
        return bool(code == _OK)

    def fill(self, files: Files, sample_indices: Sequence[int], seed: int, samples: Array, *, approximate: bool) -> int:
        """Decode several samples (see :data:`pipetune.decoders.contract.FillFunction`)."""
        wanted = np.asarray(sample_indices, np.int64)
        if len(samples) < len(wanted):
            raise IndexError(f"{len(wanted)} samples for {len(samples)} places")
        filled: int = self._library.pipetune_jpeg_roi_fill(
            self._reader, ctypes.byref(CFiles.of(files)), wanted.ctypes.data, len(wanted), seed & _MASK, approximate,
            ctypes.byref(self._aim(samples[0])), samples.strides[0],
        )  # fmt: skip
        return filled

    def _aim(self, out: Array) -> _Target:
        target = self._target
        target.at = out.ctypes.data
        target.row, target.column, target.channel = out.strides
        target.size, target.as_float = len(out), out.dtype != np.uint8
        return target


def own_reader() -> Reader:
    """The calling thread's reader."""
    reader: Reader | None = getattr(_own, "reader", None)
    if reader is None:
        reader = _own.reader = Reader()
    return reader


@cache
def require_library() -> ctypes.CDLL:
    """The C library.

    Raises:
        MissingPackageError: it has not been built, or others could have written it.
    """
    library = load_jpeg_roi()
    assert library.pipetune_jpeg_roi_interface() == _INTERFACE, "built from the same source"
    library.pipetune_jpeg_roi_open.restype = ctypes.c_void_p
    library.pipetune_jpeg_roi_close.argtypes = [ctypes.c_void_p]
    library.pipetune_jpeg_roi_close.restype = None
    library.pipetune_jpeg_roi_header.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    library.pipetune_jpeg_roi_crop.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    fill, draw = library.pipetune_jpeg_roi_fill, library.pipetune_jpeg_roi_draw
    fill.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_void_p,
        ctypes.c_ssize_t,
    ]  # fmt: skip
    draw.argtypes = [
        ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int, ctypes.c_int, ctypes.c_void_p
    ]  # fmt: skip
    return library
