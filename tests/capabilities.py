"""Capabilities of the calling thread (capabilities(7)), by libc's capget and capset."""

from __future__ import annotations

import ctypes
import os

#: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, as bits.
READ_EVERYTHING = 1 << 1 | 1 << 2
#: _LINUX_CAPABILITY_VERSION_3: two words of 32 bits each for effective, permitted and inheritable ones.
_VERSION = 0x20080522

#: The six words, the three of the lower 32 capabilities first.
Kept = tuple[int, ...]


def without(rights: int) -> Kept:
    """Take away what the thread may do now; it may take it back with :func:`restore`.

    Raises:
        OSError: the kernel refuses.
    """
    words = _words()
    _call("capget", words)
    kept = tuple(words)
    words[0] &= ~rights
    _call("capset", words)
    return kept


def restore(kept: Kept) -> None:
    """Give back what :func:`without` took.

    Raises:
        OSError: the kernel refuses.
    """
    _call("capset", _words(*kept))


def _words(*values: int) -> ctypes.Array[ctypes.c_uint32]:
    return (ctypes.c_uint32 * 6)(*values)


def _call(name: str, words: ctypes.Array[ctypes.c_uint32]) -> None:
    header = (ctypes.c_uint32 * 2)(_VERSION, 0)  # 0: the calling thread
    if getattr(ctypes.CDLL(None, use_errno=True), name)(header, words) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
