"""``synthetic:caltech256?n=2000&seed=0&classes=20``: photo-like JPEGs, made once and kept in the user's cache folder.

Making is a transaction: everything goes into a folder whose name holds ``.partial-``, the marker with the counts is
flushed to the disk, and one rename makes the set appear. A lock file per set lets one process make it while others
wait; the kernel drops the lock when its holder dies, so a partial folder whose lock is free is garbage and is removed.
Where a file system has no locks, both processes make the set and the second uses the first one's.

Why a lock and not the process id in a name: ids are reused, and mean nothing to another container or host.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import shutil
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass

from pipetune.datasets.folder import DEFAULT_LIMIT_IMAGES, Progress, scan_folder, throttle
from pipetune.datasets.index import ImageSet
from pipetune.datasets.photo_like import GENERATOR_VERSION, PROFILES, PhotoProfile
from pipetune.datasets.photo_makers import PhotoJob, make_photos
from pipetune.errors import PipetuneError, UsageError, did_you_mean
from pipetune.units import format_bytes

SCHEME = "synthetic:"
CACHE_VARIABLE = "PIPETUNE_CACHE_DIR"
DEFAULT_COUNT = 2000
#: Enough for every use here (the whole of ImageNet is 1.28 million) and small enough for a 7-digit file name.
MAX_COUNT = 9_999_999
_MARKER = "complete.json"
_OPTIONS = ("n", "seed", "classes")
_POLL_S = 0.1
#: Files end in a half-empty block, and directories take room too.
_OVERHEAD_BYTES = 3072


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticSpec:
    """What one ``synthetic:`` URI asks for; equal specs share one folder."""

    profile: PhotoProfile
    count: int
    seed: int
    classes: int

    @property
    def uri(self) -> str:
        """The full URI, every option written out."""
        return f"{SCHEME}{self.profile.name}?n={self.count}&seed={self.seed}&classes={self.classes}"

    @property
    def folder_name(self) -> str:
        """Unique per (profile, n, seed, classes, generator version)."""
        return f"{self.profile.name}-n{self.count}-s{self.seed}-c{self.classes}-v{GENERATOR_VERSION}"

    @property
    def expected_bytes(self) -> int:
        """Room that the set takes on the disk, about."""
        return self.count * (self.profile.mean_bytes + _OVERHEAD_BYTES)


def parse_uri(uri: str) -> SyntheticSpec:
    """``synthetic:PROFILE[?n=COUNT&seed=SEED&classes=CLASSES]``.

    Defaults: 2000 images, seed 0, one class per 10 images but no more than the imitated data set has.

    Raises:
        UsageError: unknown profile or option, or a value out of range; names what exists.
    """
    name, _, query = uri.removeprefix(SCHEME).partition("?")
    profile = PROFILES.get(name)
    if profile is None:
        raise UsageError(f"no synthetic data set {name!r}", hint=did_you_mean(name, PROFILES, prefix=SCHEME))
    values: dict[str, int] = {}
    for key, text in urllib.parse.parse_qsl(query, keep_blank_values=True):
        if key not in _OPTIONS:
            raise UsageError(f"synthetic data sets have no option {key!r}", hint=did_you_mean(key, _OPTIONS))
        if key in values:
            raise UsageError(f"option {key!r} is given twice in {uri!r}", hint="keep one of them")
        values[key] = _whole_number(key, text)
    count = values.get("n", DEFAULT_COUNT)
    classes = values.get("classes", min(profile.max_classes, max(1, count // 10)))
    if not 1 <= count <= MAX_COUNT:
        raise UsageError(f"n={count} images cannot be made", hint=f"use 1 to {MAX_COUNT}")
    if not 1 <= classes <= count:
        raise UsageError(f"classes={classes} with n={count} images", hint=f"use 1 to {count} classes")
    return SyntheticSpec(profile=profile, count=count, seed=values.get("seed", 0), classes=classes)


def cache_root() -> str:
    """Where the sets are kept: ``$PIPETUNE_CACHE_DIR``, or the user's cache folder, and ``synthetic`` below it."""
    import platformdirs

    base = os.environ.get(CACHE_VARIABLE) or platformdirs.user_cache_dir("pipetune")
    return os.path.join(os.path.abspath(os.path.expanduser(base)), "synthetic")


def open_synthetic(
    uri: str,
    *,
    workers: int,
    seed: int = 0,
    limit_images: int = DEFAULT_LIMIT_IMAGES,
    limit_bytes: int = 1 << 62,
    progress: Progress | None = None,
) -> ImageSet:
    """The set that ``uri`` names: found in the cache, or made there with ``workers`` processes (see the module).

    Args:
        uri: see :func:`parse_uri`; the pictures depend on the seed in it alone.
        workers: processes that make pictures; about 150 images a second each.
        seed: of the subset that is drawn where the set exceeds a limit.
        limit_images: see :func:`pipetune.datasets.folder.scan_folder`.
        limit_bytes: the same.
        progress: called at most 10 times a second.

    Raises:
        UsageError: see :func:`parse_uri`.
        PipetuneError: the cache folder cannot be written, or has no room.
    """
    spec = parse_uri(uri)
    folder = os.path.join(cache_root(), spec.folder_name)
    if not is_complete(folder, spec):
        _make(folder, spec, workers, throttle(progress))
    image_set = scan_folder(folder, limit_images=limit_images, limit_bytes=limit_bytes, seed=seed, progress=progress)
    return ImageSet(
        name=spec.uri,
        root=image_set.root,
        classes=image_set.classes,
        images=image_set.images,
        found_images=image_set.found_images,
        found_bytes=image_set.found_bytes,
        skipped=image_set.skipped,
        skipped_count=image_set.skipped_count,
    )


def is_complete(folder: str, spec: SyntheticSpec) -> bool:
    """Whether the set is whole: its marker is there and the files on the disk have the count and bytes it names."""
    try:
        with open(os.path.join(folder, _MARKER), encoding="ascii") as file:
            marker = json.load(file)
        return marker["count"] == spec.count and (marker["count"], marker["bytes"]) == _measure(folder)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _measure(folder: str) -> tuple[int, int]:
    """(files, bytes) of the pictures in the class folders of ``folder``."""
    count = total = 0
    with os.scandir(folder) as classes:
        for entry in classes:
            if entry.is_dir():
                with os.scandir(entry.path) as files:
                    for file in files:
                        count += 1
                        total += file.stat().st_size
    return count, total


def _make(folder: str, spec: SyntheticSpec, workers: int, report: Progress) -> None:
    root = os.path.dirname(folder)
    try:
        os.makedirs(root, exist_ok=True)
        with _locked(folder, report) as alone:
            if is_complete(folder, spec):
                return
            if alone:
                _remove_leftovers(root, folder)
            _check_room(root, spec)
            _fill(folder, spec, workers, report)
    except OSError as error:
        raise PipetuneError(
            f"cannot write the synthetic images into {root!r}: {error.strerror or error}",
            hint=f"set {CACHE_VARIABLE} to a folder that you can write",
        ) from error


def _fill(folder: str, spec: SyntheticSpec, workers: int, report: Progress) -> None:
    """Make the set beside its place, then move it there with one rename."""
    temporary = f"{folder}.partial-{secrets.token_hex(4)}"
    try:
        os.mkdir(temporary)
        job = PhotoJob(
            folder=temporary, profile=spec.profile.name, seed=spec.seed, count=spec.count, classes=spec.classes
        )
        make_photos(job, workers=workers, progress=report)
        count, total = _measure(temporary)
        with open(os.path.join(temporary, _MARKER), "w", encoding="ascii") as file:
            json.dump({"uri": spec.uri, "count": count, "bytes": total}, file)
            file.flush()
            os.fsync(file.fileno())
        if os.path.lexists(folder) and not is_complete(folder, spec):
            _remove(folder)
        try:
            os.rename(temporary, folder)
        except OSError:
            # Only where locks do not work: somebody else was first, and made the same files.
            if not is_complete(folder, spec):
                raise
        _flush_directory(os.path.dirname(folder))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_room(os.path.dirname(folder), spec) from error
        raise
    finally:
        if os.path.lexists(temporary):
            _remove(temporary)


@contextlib.contextmanager
def _locked(folder: str, report: Progress) -> Iterator[bool]:
    """Hold the lock of one set; yields whether that proves that nobody else is making it.

    The lock file stays: removing it would let two processes hold locks on two files of one name.
    """
    started_s = time.monotonic()
    with open(f"{folder}.lock", "ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report("waiting for another pipetune that makes these images", int(time.monotonic() - started_s), None)
                time.sleep(_POLL_S)
            except OSError:  # a file system without locks
                yield False
                return
            else:
                yield True
                return


def _remove_leftovers(root: str, folder: str) -> None:
    """Remove partial folders that nobody works on any more: those of ``folder``, and of sets whose lock is free."""
    for name in sorted(os.listdir(root)):
        owner, mark, _ = name.partition(".partial-")
        if not mark:
            continue
        if os.path.join(root, owner) == folder:
            _remove(os.path.join(root, name))
            continue
        with contextlib.suppress(OSError), open(os.path.join(root, f"{owner}.lock"), "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(os.path.join(root, name))


def _remove(folder: str) -> None:
    """Remove a tree. The marker goes first: whatever interrupts this, the rest does not look complete."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder, _MARKER))
    shutil.rmtree(folder, ignore_errors=True)


def _check_room(root: str, spec: SyntheticSpec) -> None:
    if shutil.disk_usage(root).free < spec.expected_bytes:
        raise _no_room(root, spec)


def _no_room(root: str, spec: SyntheticSpec) -> PipetuneError:
    free = shutil.disk_usage(root).free
    return PipetuneError(
        f"{spec.uri} needs about {format_bytes(spec.expected_bytes)} ({spec.expected_bytes} bytes) "
        f"and {format_bytes(free)} ({free} bytes) are free in {root!r}",
        hint=f"use a smaller n, or set {CACHE_VARIABLE} to a folder on another disk",
    )


def _flush_directory(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _whole_number(key: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise UsageError(f"{key}={text!r} is no whole number", hint=f"write it as {key}=100")
    return int(text)
