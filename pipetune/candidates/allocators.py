"""The malloc implementation of a process, chosen by environment variables before the program starts.

With glibc's default thresholds a block above 128 KiB (rising with use, up to 32 MiB) is a mapping of its own: every
batch and many decoded images are mapped, filled page by page by the kernel, and unmapped. Thresholds of 1 GiB keep
freed blocks in the process. tcmalloc does the same by design.
"""

from __future__ import annotations

import functools
import glob
from collections.abc import Mapping

DEFAULT, GLIBC, TCMALLOC = "default", "glibc", "tcmalloc"
NAMES = (DEFAULT, GLIBC, TCMALLOC)

#: mallopt(3): M_MMAP_THRESHOLD and M_TRIM_THRESHOLD, bytes.
_GLIBC = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "1073741824"}
#: Hint where tcmalloc is missing.
INSTALL = "apt-get install libtcmalloc-minimal4, or --fix allocator=default"
_PRELOAD = "LD_PRELOAD"
#: The name by which the dynamic linker finds it.
_TCMALLOC_NAME = "libtcmalloc_minimal.so.4"
_TCMALLOC_PLACES = (
    "/usr/lib/*/libtcmalloc_minimal.so.4", "/usr/lib64/libtcmalloc_minimal.so.4", "/usr/lib/libtcmalloc_minimal.so.4",
    "/usr/local/lib/libtcmalloc_minimal.so*", "/usr/lib/*/libtcmalloc.so.4", "/usr/lib64/libtcmalloc.so.4",
)  # fmt: skip


@functools.cache
def find_tcmalloc() -> str | None:
    """Path of the library (Debian: ``libtcmalloc-minimal4``); ``None``: not on this machine."""
    return next((path for pattern in _TCMALLOC_PLACES for path in sorted(glob.glob(pattern))), None)


def available() -> tuple[str, ...]:
    """The allocators that a process on this machine can have."""
    return NAMES if find_tcmalloc() else (DEFAULT, GLIBC)


def environment_of(allocator: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that choose the allocator, for a child of a process with this environment.

    Raises:
        ValueError: there is no such allocator on this machine.
    """
    if allocator == DEFAULT:
        return {}
    if allocator == GLIBC:
        return dict(_GLIBC)
    path = find_tcmalloc()
    if allocator != TCMALLOC or path is None:
        raise ValueError(f"no allocator {allocator!r} on this machine")
    already = environment.get(_PRELOAD, "")
    return {_PRELOAD: f"{path}:{already}" if already else path}


def lines_before(allocator: str) -> tuple[str, ...]:
    """The lines to run in a shell before the training command."""
    variables = {GLIBC: _GLIBC, TCMALLOC: {_PRELOAD: _TCMALLOC_NAME}}.get(allocator, {})
    return tuple(f"export {name}={value}" for name, value in variables.items())


def set_here(allocator: str, environment: Mapping[str, str]) -> bool:
    """Whether a process that was started with this environment has the allocator."""
    if allocator == TCMALLOC:
        return "tcmalloc" in environment.get(_PRELOAD, "")
    return allocator == DEFAULT or all(environment.get(name) == value for name, value in _GLIBC.items())
