"""A folder of images as a data set: class folders as torchvision's ``ImageFolder`` reads them, or one flat folder.

Why a subset is drawn by *rank*: every image gets a position in (0, 1), spread evenly within its class, so that any
prefix of the images in rank order holds each class in proportion. The same order serves a limit in images and one in
bytes, and an image with a broken header is replaced by the next one.
"""

from __future__ import annotations

import os
import random
import stat
import time
from collections.abc import Sequence

from pipetune.datasets.doubtful_classes import find_doubtful_classes
from pipetune.datasets.folder_walk import ENDINGS, Found, Progress, find_images, shown
from pipetune.datasets.image_header import NotAnImage
from pipetune.datasets.index import ImageFile, ImageSet
from pipetune.datasets.other_kinds import describe_file, find_other_kind
from pipetune.datasets.shard_hints import find_shard_hint
from pipetune.datasets.usable_image import MAX_FILE_BYTES, read_usable
from pipetune.errors import UsageError
from pipetune.records.audit import FILES, FOLDER_NAMES, NO_LABELS, Audit

DEFAULT_LIMIT_IMAGES = 50_000
_MIN_PROGRESS_S = 0.1


def scan_folder(
    root: str,
    *,
    limit_images: int = DEFAULT_LIMIT_IMAGES,
    limit_bytes: int,
    seed: int,
    progress: Progress | None = None,
    strict: bool = False,
    skip_empty_classes: bool = False,
) -> ImageSet:
    """Find the images below ``root``; where they are more than a limit, a random subset spread over the classes.

    Top-level folders that hold images, at any depth, are the classes, in the order of their names; images beside them
    are skipped. Without such a folder the images directly in ``root`` are one class. A directory is entered once per
    class, so circular links end; ``/proc`` and the like are not entered, and a class folder without an image among a
    million entries is given up. Files whose ending is not an image's are ignored; files and directories that should be
    usable and are not (dangling links, permissions, broken headers) are skipped, counted and reported.

    Args:
        root: the folder; links are followed.
        limit_images: use at most this many images.
        limit_bytes: use at most this many bytes of images (but at least one image).
        seed: of the subset; the same folder, limits and seed give the same images.
        progress: called at most 10 times a second.
        strict: refuse what would give classes other numbers than ``ImageFolder`` does.
        skip_empty_classes: accept class folders without images also then; they are no classes.

    Raises:
        UsageError: ``root`` does not exist, is not a directory, cannot be listed, or has no usable image; or a limit is
            below one; or, with ``strict``, a directory below it cannot be listed, or a class folder has no images.
    """
    if limit_images < 1 or limit_bytes < 1:
        raise UsageError(f"a limit of {min(limit_images, limit_bytes)} leaves no images", hint="use at least 1")
    root = os.path.abspath(root)
    _check_root(root)
    report = throttle(progress)
    found = find_images(root, report, strict=strict, skip_empty_classes=skip_empty_classes)
    count = sum(map(len, found.paths))
    if count == 0:
        raise _no_images(root, found)
    sizes = _stat_all(found, report) if count <= limit_images else None
    used = 0 if sizes is None else sum(size for size in sizes.values() if size <= MAX_FILE_BYTES)
    subset = count > limit_images or used > limit_bytes
    order = _ranked(found.paths, seed) if subset else _in_order(found.paths)
    images = _take_images(order, sizes, found, limit_images, limit_bytes, report)
    if not images:
        raise _no_images(root, found)
    return ImageSet(
        name=os.path.basename(root) or root,
        root=root,
        classes=tuple(found.classes),
        images=tuple(sorted(images, key=lambda image: (image.label, image.path))),
        found_images=count,
        skipped=tuple(found.skipped),
        skipped_count=found.skipped_count,
        plain=_is_plain(found),
        empty_classes=tuple(found.empty_classes) if found.has_class_folders else (),
        audit=audit_folder(found, root),
    )


def _is_plain(found: Found) -> bool:
    """See :attr:`ImageSet.plain`."""
    paths = (path for paths in found.paths for path in paths)
    empty_folders = found.hidden_folders + len(found.empty_classes) if found.has_class_folders else 0
    is_listed_alike = not (found.skipped_count or empty_folders)
    return is_listed_alike and not found.odd_images and all(path.isascii() or _is_utf8(path) for path in paths)


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def audit_folder(found: Found, root: str) -> Audit:
    """The account of a folder, once its images are known to be usable.

    Args:
        root: the folder, which paths may be relative to.
    """
    has_classes = found.has_class_folders and len(found.classes) > 1
    is_lone = found.has_class_folders and not has_classes
    return Audit(
        unit=FILES, members=found.files, used=found.files - found.rejected - found.other.total(),
        rejected=found.rejected, other=dict(found.other), label_source=FOLDER_NAMES if has_classes else NO_LABELS,
        lone_folder=_find_lone_folder(found.paths[0], root) if is_lone else "",
        doubtful_classes=find_doubtful_classes(found.classes) if has_classes else (),
    )  # fmt: skip


def _find_lone_folder(paths: Sequence[str], root: str) -> str:
    """The folder below ``root`` that all images lie in, where its own folders divide them; ``""``: they do not."""
    folders = {os.path.dirname(path) for path in paths}
    if len(folders) == 1:
        return ""
    shared = os.path.commonpath(folders)
    return os.path.relpath(shared, root) if os.path.isabs(shared) else shared


def throttle(progress: Progress | None, min_interval_s: float = _MIN_PROGRESS_S) -> Progress:
    """``progress``, called at most once per interval, but always for a new stage and when a stage is complete."""
    if progress is None:
        return lambda stage, done, total: None
    last_s, last_stage = -1e9, ""

    def report(stage: str, done: int, total: int | None) -> None:
        nonlocal last_s, last_stage
        now_s = time.monotonic()
        if stage != last_stage or done == total or now_s - last_s >= min_interval_s:
            last_s, last_stage = now_s, stage
            progress(stage, done, total)

    return report


def _check_root(root: str) -> None:
    try:
        is_directory = stat.S_ISDIR(os.stat(root).st_mode)
        if is_directory:
            os.scandir(root).close()
    except FileNotFoundError as error:
        raise UsageError(f"no such directory: {shown(root)}", hint=_nearest_hint(root)) from error
    except OSError as error:
        raise UsageError(f"cannot read {shown(root)}: {error.strerror}", hint="check its permissions") from error
    if not is_directory:
        what, hint = describe_file(root)
        raise UsageError(f"{shown(root)} {what}", hint=hint)


def _nearest_hint(path: str) -> str:
    parent = os.path.dirname(path)
    while not os.path.isdir(parent) and parent != os.path.dirname(parent):
        parent = os.path.dirname(parent)
    return f"{shown(parent)} exists; check the rest of the name, or try synthetic:caltech256"


def _no_images(root: str, found: Found) -> UsageError:
    skipped = f", {found.skipped_count} skipped" if found.skipped_count else ""
    if found.skipped:
        path, reason = found.skipped[0]
        skipped += f" (the first: {shown(path)}: {reason})"
    files = "1 other file" if found.other_files == 1 else f"{found.other_files:,} other files"
    return UsageError(
        f"no images in {shown(root)}: {files}{skipped}",
        hint=find_shard_hint(root)
        or find_other_kind(root)
        or f"name a folder with files that end in {' '.join(ENDINGS)}, or try synthetic:caltech256",
    )


def _stat_all(found: Found, report: Progress) -> dict[str, int]:
    """Bytes per path; files without a readable status are left out, and skipped later when they are opened."""
    sizes: dict[str, int] = {}
    total = sum(map(len, found.paths))
    for number, path in enumerate((path for paths in found.paths for path in paths), 1):
        try:
            sizes[path] = os.stat(path).st_size
        except OSError:
            continue
        if number % 256 == 0:
            report("reading sizes", number, total)
    return sizes


def _in_order(classes: Sequence[Sequence[str]]) -> list[tuple[int, str]]:
    return [(label, path) for label, paths in enumerate(classes) for path in paths]


def _ranked(classes: Sequence[Sequence[str]], seed: int) -> list[tuple[int, str]]:
    """(label, path), every prefix of which holds the classes in proportion: systematic sampling with a random start."""
    rng = random.Random(seed)
    ranked: list[tuple[float, int, str]] = []
    for label, paths in enumerate(classes):
        shuffled = rng.sample(paths, len(paths))
        start = rng.random()
        ranked += [((place + start) / len(paths), label, path) for place, path in enumerate(shuffled)]
    ranked.sort()
    return [(label, path) for _, label, path in ranked]


def _take_images(
    order: list[tuple[int, str]],
    sizes: dict[str, int] | None,
    found: Found,
    limit_images: int,
    limit_bytes: int,
    report: Progress,
) -> list[ImageFile]:
    images: list[ImageFile] = []
    used_bytes = 0
    goal = min(limit_images, len(order))
    for label, path in order:
        if len(images) >= limit_images:
            break
        try:
            size = sizes[path] if sizes is not None and path in sizes else os.stat(path).st_size
            if size > MAX_FILE_BYTES:
                raise NotAnImage(f"has {size:,} bytes, more than {MAX_FILE_BYTES >> 20} MiB")
            if images and used_bytes + size > limit_bytes:
                break
            # A training has the whole data set, which nobody wants to read before it begins.
            header = read_usable(path, size, count_scans=not found.strict)
        except NotAnImage as error:
            found.reject(path, error.reason)
            continue
        except OSError as error:
            found.reject(path, error.strerror or type(error).__name__)
            continue
        used_bytes += size
        found.odd_images += header.is_odd
        images.append(
            ImageFile(
                path=path,
                label=label,
                size_bytes=size,
                width=header.width,
                height=header.height,
                orientation=header.orientation,
                exif_disputed=header.exif_disputed,
                format=header.format,
                progressive=header.progressive,
            )
        )
        if len(images) % 64 == 0:
            report("reading headers", len(images), goal)
    report("reading headers", len(images), len(images))
    return images
