"""The C functions of ``jpeg_pack.c``, in the library of jpeg-roi."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from pipetune.install.load_jpeg_roi import load_jpeg_roi

_OK, _NOT_FOR_US, _NO_MEMORY, _DIFFERENT = 0, 2, 3, 5
#: Images that are made of a JPEG at once.
MOST_ORDERS = 8
_own = threading.local()


class CannotPack(ValueError):
    """The JPEG is damaged; the text is libjpeg's."""


class Order(NamedTuple):
    """An image that is to be made of a JPEG."""

    size: tuple[int, int]
    """(width, height) in px that it is resized to."""
    quality: int = 90
    """1..100, as libjpeg has it."""
    sampling: int = 0
    """Of the colours: 444, 422, 420; 0: as in the source."""
    orientation: int = 1
    """Of the EXIF tag that is written, 1..8; 1: none."""
    square: int = 0
    """0: a JPEG; else pixels, uint8 ``[square, square, 3]``, from the middle."""


class _Order(ctypes.Structure):
    """``Order`` of jpeg_pack.h."""

    _fields_ = tuple(
        (name, ctypes.c_int) for name in ("width", "height", "quality", "sampling", "orientation", "turn", "square")
    )


class Packer:
    """For one thread."""

    def __init__(self) -> None:
        self._library = require_library()
        self._pid = os.getpid()
        self._packer = ctypes.c_void_p(self._library.pipetune_jpeg_pack_open())
        if not self._packer:
            raise MemoryError("no memory for a JPEG encoder")
        self._outs, self._lengths = (ctypes.c_void_p * MOST_ORDERS)(), (ctypes.c_size_t * MOST_ORDERS)()

    def __del__(self) -> None:
        if getattr(self, "_packer", None) and self._pid == os.getpid():
            self._library.pipetune_jpeg_pack_close(self._packer)

    def made(self, data: bytes, orders: Sequence[Order]) -> list[bytes] | None:
        """The JPEG as it is ordered; ``None``: it has colours that the function does not know (CMYK, RGB), or is too
        large.

        Args:
            orders: at most :data:`MOST_ORDERS`.

        Raises:
            CannotPack: it is damaged.
            MemoryError: there is too little memory.
        """
        return self._call(
            data, [_Order(*one.size, one.quality, one.sampling, one.orientation, 0, one.square) for one in orders]
        )

    def transcoded(self, data: bytes, *, orientation: int) -> bytes:
        """The JPEG of the same coefficients, in one scan, with Huffman tables of its own.

        Raises:
            CannotPack: it is damaged.
            MemoryError: there is too little memory.
        """
        found = self._call(data, [_Order(orientation=orientation)])
        assert found is not None
        return found[0]

    def turned(self, data: bytes, orientation: int) -> bytes | None:
        """The JPEG of the same coefficients, brought upright; ``None``: its edges are no multiples of its blocks.

        Args:
            orientation: of its EXIF tag, 2..8, which is left out.

        Raises:
            CannotPack: it is damaged.
            MemoryError: there is too little memory.
        """
        found = self._call(data, [_Order(orientation=1, turn=orientation)])
        return None if found is None else found[0]

    def same(self, one: bytes, other: bytes) -> bool:
        """Whether two JPEGs have the same coefficients, so that they decode to the same pixels.

        Raises:
            CannotPack: one of them is damaged.
        """
        code = self._library.pipetune_jpeg_pack_same(self._packer, one, len(one), other, len(other))
        if code not in (_OK, _DIFFERENT):
            self._refuse(code)
        return bool(code == _OK)

    def _call(self, data: bytes, orders: Sequence[_Order]) -> list[bytes] | None:
        count = len(orders)
        if count > MOST_ORDERS:
            raise ValueError(f"{count} orders, and {MOST_ORDERS} at most are made at once")
        code = self._library.pipetune_jpeg_pack(
            self._packer, data, len(data), (_Order * count)(*orders), count, self._outs, self._lengths
        )
        if code == _NOT_FOR_US:
            return None
        if code != _OK:
            self._refuse(code)
        return [ctypes.string_at(self._outs[place] or 0, self._lengths[place]) for place in range(count)]

    def _refuse(self, code: int) -> None:
        if code == _NO_MEMORY:
            raise MemoryError("no memory to pack an image")
        message = self._library.pipetune_jpeg_pack_message(self._packer).decode("utf-8", "replace")
        raise CannotPack(message or "it has too many scans")


def own_packer() -> Packer:
    """The calling thread's."""
    packer: Packer | None = getattr(_own, "packer", None)
    if packer is None:
        packer = _own.packer = Packer()
    return packer


@cache
def require_library() -> ctypes.CDLL:
    """The C library.

    Raises:
        MissingPackageError: it has not been built.
    """
    library = load_jpeg_roi()
    pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    library.pipetune_jpeg_pack_open.restype = pointer
    library.pipetune_jpeg_pack_close.argtypes = [pointer]
    library.pipetune_jpeg_pack_close.restype = None
    library.pipetune_jpeg_pack_message.argtypes = [pointer]
    library.pipetune_jpeg_pack_message.restype = text
    library.pipetune_jpeg_pack.argtypes = [pointer, text, size, pointer, ctypes.c_int, pointer, pointer]
    library.pipetune_jpeg_pack_same.argtypes = [pointer, text, size, text, size]
    return library
