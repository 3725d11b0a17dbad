"""Brings files into the page cache or drops them from it, and verifies the result.

Works without root: ``posix_fadvise(DONTNEED)`` drops clean pages of any file that can be read, and ``mincore`` says
which pages are resident. Since Linux 5.2 (commit 134fca9063ad) ``mincore`` does so only for files that the caller owns
or may write, and reports every page of other files as resident. Those are not counted, and the state then counts as not
verified.

Why not ``/proc/sys/vm/drop_caches``: it needs root and empties the cache of all users of the machine.

Why by ctypes: neither the standard library nor psutil has ``mincore``.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pipetune.errors import UsageError
from pipetune.machine.host import machine_memory
from pipetune.units import format_bytes

#: More files than this are judged by a sample of this many (standard error of a share below 1.2 %).
SAMPLE_FILES = 2000
#: Shares of resident pages that count as warm and as cold. Not 1 and 0: readahead and other readers touch a few pages.
WARM_FRAC = 0.98
COLD_FRAC = 0.02

_SAMPLE_SEED = 0
_READ_THREADS = 8
_READ_BYTES = 1 << 20
_CHUNK_FILES = 64
_PROGRESS_S = 0.1
_CAP_FOWNER = 3
#: ``f_type`` of statfs(2) -> (states that cannot be reached or not be verified there, why).
_STUBBORN = {
    0x01021994: (("cold",), "they lie on tmpfs, which is memory itself"),
    0x858458F6: (("cold",), "they lie on ramfs, which is memory itself"),
    0x2FC12FC1: (("cold", "warm"), "they lie on ZFS, which keeps a cache of its own that cannot be seen"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheState:
    """What the page cache holds of some files after :func:`equalise`."""

    state: str
    """What was asked for: ``warm`` or ``cold``."""
    resident_frac: float | None
    """Share of the files' pages that are in the page cache (of a sample above 2000 files); ``None``: not known."""
    note: str | None
    """What could not be done or verified, and why; one sentence. ``None``: the state was reached and verified, which is
    at least 98 % resident for ``warm`` and at most 2 % for ``cold``."""


@dataclass(frozen=True, slots=True)
class Residency:
    """What the page cache holds of some files, counted in pages."""

    pages: int
    resident: int
    hidden: int
    """Files that the kernel shows to their owner only."""
    unreadable: int
    """Files that could not be opened, or not be mapped into memory."""

    @property
    def frac(self) -> float | None:
        """Share of the pages that are resident (0..1); ``None``: no page could be counted."""
        return self.resident / self.pages if self.pages else None


def equalise(
    paths: Sequence[str], state: str, *, progress: Callable[[str, int, int | None], None] | None = None
) -> CacheState:
    """Make files warm (read them all) or cold (drop them from the page cache), and verify it.

    Args:
        paths: regular files.
        state: ``warm`` or ``cold``.
        progress: (stage, done, total), called at most 10 times a second.

    Raises:
        UsageError: ``state`` is neither.
        OSError: a file cannot be opened or read; ``filename`` names it.
    """
    if state not in ("warm", "cold"):
        raise UsageError(f"page cache state {state!r} does not exist", hint="use warm or cold")
    if state == "warm":
        _for_all(paths, _read, "reading into the page cache", progress)
        found = residency(paths)
    else:
        _for_all(paths, _drop, "dropping from the page cache", progress)
        found = residency(paths)
        if found.frac is not None and found.frac > COLD_FRAC:
            # Newly written pages are dirty, and only clean ones can be dropped.
            _for_all(paths, _flush_and_drop, "writing back and dropping again", progress)
            found = residency(paths)
    frac = found.frac
    wanted = frac is not None and (frac >= WARM_FRAC if state == "warm" else frac <= COLD_FRAC)
    obstacle = _obstacle(paths, state)
    verified = wanted and obstacle is None and found.hidden == 0 and found.unreadable == 0
    note = None if verified else _explain(state, paths, found, wanted, obstacle)
    return CacheState(state=state, resident_frac=frac, note=note)


def residency(paths: Sequence[str]) -> Residency:
    """Count the files' pages in the page cache, in a sample of at most 2000 files."""
    chosen = paths if len(paths) <= SAMPLE_FILES else random.Random(_SAMPLE_SEED).sample(list(paths), SAMPLE_FILES)
    pages = resident = hidden = unreadable = 0
    for path in chosen:
        try:
            with _opened(path) as fd:
                status = os.fstat(fd)
                if status.st_size == 0:
                    continue
                if not _may_see_residency(path, status.st_uid):
                    hidden += 1
                    continue
                flags = _mincore(fd, status.st_size)
        except OSError:
            unreadable += 1
            continue
        pages += len(flags)
        # Only the lowest bit of each byte has a meaning (mincore(2)); the kernel leaves the others 0.
        resident += len(flags) - flags.count(0)
    return Residency(pages, resident, hidden, unreadable)


def _may_see_residency(path: str, owner: int) -> bool:
    """Whether ``mincore`` shows this process the true state of this file (``can_do_mincore`` in mm/mincore.c)."""
    return owner == os.geteuid() or _owns_all_files() or os.access(path, os.W_OK, effective_ids=True)


@functools.cache
def _owns_all_files() -> bool:
    """CAP_FOWNER over all user ids, as root has outside of user namespaces."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            held = next(int(line.split()[1], 16) for line in file if line.startswith("CapEff:"))
        with open("/proc/self/uid_map", encoding="ascii") as file:
            whole = file.read().split() == ["0", "0", "4294967295"]
    except (OSError, ValueError, StopIteration):
        return False
    return whole and bool(held >> _CAP_FOWNER & 1)


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    number = ctypes.c_int
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, number, number, number, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    return libc


def _mincore(fd: int, size: int) -> bytes:
    """One byte per page, not 0 where it is resident.

    Through libc, because :class:`mmap.mmap` does not give away the address of a read-only mapping.

    Raises:
        OSError: the file system has no page cache that could be mapped, or the file is empty.
    """
    libc = _libc()
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "mmap")
    try:
        pages = -(-size // mmap.PAGESIZE)
        flags = ctypes.create_string_buffer(pages)
        if libc.mincore(address, size, flags) != 0:
            raise OSError(ctypes.get_errno(), "mincore")
        return flags.raw
    finally:
        libc.munmap(address, size)


def _for_all(
    paths: Sequence[str],
    act: Callable[[Iterable[str], threading.Event], None],
    stage: str,
    progress: Callable[[str, int, int | None], None] | None,
) -> None:
    """Act on all files in chunks, from several threads: the kernel does the work, and storage likes a queue.

    Args:
        act: is given a chunk, and an event that is set when it is to end early.
    """
    # Of a few large files, each thread gets some.
    size = max(1, min(_CHUNK_FILES, -(-len(paths) // _READ_THREADS)))
    chunks = [paths[start : start + size] for start in range(0, len(paths), size)]
    stop = threading.Event()
    last_s = -1e9
    done = 0
    pool = ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="page-cache")
    try:
        for chunk, _ in zip(chunks, pool.map(lambda chunk: act(chunk, stop), chunks), strict=True):
            done += len(chunk)
            now_s = time.monotonic()
            if progress is not None and (done == len(paths) or now_s - last_s >= _PROGRESS_S):
                last_s = now_s
                progress(stage, done, len(paths))
    finally:
        stop.set()  # Ctrl-C does not wait for the end of a shard of many gigabytes
        pool.shutdown(cancel_futures=True)


def _read(paths: Iterable[str], stop: threading.Event) -> None:
    buffer = memoryview(bytearray(_READ_BYTES))
    for path in paths:
        with _opened(path) as fd:
            _advise(fd, os.POSIX_FADV_WILLNEED)
            while not stop.is_set() and os.readv(fd, [buffer]):
                pass


def _drop(paths: Iterable[str], stop: threading.Event) -> None:
    for path in paths:
        with _opened(path) as fd:
            _advise(fd, os.POSIX_FADV_DONTNEED)


def _flush_and_drop(paths: Iterable[str], stop: threading.Event) -> None:
    for path in paths:
        with _opened(path) as fd:
            with contextlib.suppress(OSError):  # a file system that cannot: the verification says how it went
                os.fdatasync(fd)
            _advise(fd, os.POSIX_FADV_DONTNEED)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            yield fd
        finally:
            os.close(fd)
    except OSError as error:
        error.filename = path  # a failing read does not know it
        raise


def _advise(fd: int, advice: int) -> None:
    with contextlib.suppress(OSError):  # a file system that takes no advice: the verification says how it went
        os.posix_fadvise(fd, 0, 0, advice)


def _explain(state: str, paths: Sequence[str], found: Residency, wanted: bool, obstacle: str | None) -> str:
    count = min(len(paths), SAMPLE_FILES)
    if not paths:
        return f"there are no files to make {state}"
    if obstacle is not None:
        return f"the files cannot be made {state} and seen to be so: {obstacle}"
    if found.frac is not None and not wanted:
        share = f"{100 * found.frac:.0f} % of the pages are in the page cache"
        if state == "cold":
            return f"{share} although they were dropped: another process maps or reads these files"
        return f"only {share} although all files were read: {_memory_reason(paths)}"
    if found.hidden:
        return (
            f"{found.hidden} of {count} files have another owner: the kernel shows what is cached of a file only "
            "to its owner and to those who may write it"
        )
    if found.unreadable:
        return f"{found.unreadable} of {count} files could not be opened or mapped, so the rest is all that is known"
    return f"the files are empty, so there is nothing to make {state}"


def _memory_reason(paths: Sequence[str]) -> str:
    total = 0
    for path in paths:
        with contextlib.suppress(OSError):
            total += os.stat(path).st_size
    available = machine_memory()[1]
    known = "" if available is None else f" ({format_bytes(available)} are available)"
    return f"their {format_bytes(total)} do not stay in memory{known}"


def _obstacle(paths: Sequence[str], state: str) -> str | None:
    """Why the file system of the first file prevents ``state``: a data set lies on one file system as a rule."""
    for path in paths[:1]:
        # struct statfs begins with f_type, a long, on every Linux; 256 bytes hold the rest on all of them.
        raw = ctypes.create_string_buffer(256)
        if _libc().statfs(os.fsencode(path), raw) == 0:
            states, why = _STUBBORN.get(ctypes.c_long.from_buffer(raw).value & 0xFFFFFFFF, ((), ""))
            return why if state in states else None
    return None
