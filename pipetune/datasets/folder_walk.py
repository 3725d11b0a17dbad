"""The walk through a folder of images: which directories are classes, which files are images, and what is left out.

A class folder may hold anything, links to ``/`` included. So the kernel's own file systems are not entered, and a class
folder in which nothing but other files is found is given up at some number of them, with its name.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pipetune.datasets.index import MAX_SKIPPED_KEPT
from pipetune.errors import UsageError
from pipetune.machine.mounts import kernel_devices

ENDINGS = (".jpg", ".jpeg", ".png", ".webp")
#: Image formats that no decode backend reads, and unusual endings of others: reported as skipped. Files with other
#: endings are not images.
OTHER_IMAGE_ENDINGS = (
    *(".gif", ".bmp", ".tif", ".tiff", ".heic", ".heif", ".avif", ".jxl", ".jp2", ".ppm", ".pgm"),
    *(".jfif", ".jpe", ".apng"),
)
#: Files and directories in succession without an image after which a class folder is given up.
MAX_WITHOUT_IMAGE = 1_000_000
#: From so many in succession on, the number of them is reported.
_REPORTED_FROM = 2048
#: What macOS adds to a folder on other file systems, and to ZIP files: metadata of each file, under a name like it.
_MACOS_PREFIX, _MACOS_FOLDER = "._", "__MACOSX"
#: Empty class folders that are named.
_MAX_NAMED = 3
#: Endings of other files that are counted apart.
_MAX_OTHER_KINDS = 32


#: Takes the name of a stage, the amount done, and the total or ``None``.
Progress = Callable[[str, int, int | None], None]
#: ``st_dev`` and ``st_ino``.
Identity = tuple[int, int]


@dataclass(slots=True)
class Found:
    """Images and skipped files that the walk has found so far."""

    paths: list[Sequence[str]] = field(default_factory=list)
    """The image paths of each class."""
    classes: list[str] = field(default_factory=list)
    other_files: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)
    skipped_count: int = 0
    strict: bool = False
    """A directory that cannot be listed, or a class folder without images, is an error."""
    files: int = 0
    """Files, those of all kinds."""
    rejected: int = 0
    """Files that are images and are not used; directories are skipped, too."""
    other: Counter[str] = field(default_factory=Counter)
    """Files that are no images: ending -> how many."""
    has_class_folders: bool = False
    empty_classes: list[str] = field(default_factory=list)
    """Names of folders beside the classes that hold no image."""
    odd_images: int = 0
    """Images that a library's usual call decodes otherwise (see :attr:`.image_header.Header.is_odd`)."""
    hidden_folders: int = 0
    """Hidden folders beside the classes that hold no image; ``ImageFolder`` takes them for classes."""

    def skip(self, path: str, reason: str) -> None:
        """Count what is not used, and keep the first of them."""
        self.skipped_count += 1
        if len(self.skipped) < MAX_SKIPPED_KEPT:
            self.skipped.append((path, reason))

    def reject(self, path: str, reason: str) -> None:
        """Skip an image."""
        self.rejected += 1
        self.skip(path, reason)


def shown(path: str) -> str:
    """A path on one line of plain text, whatever bytes it holds."""
    return f"'{path}'" if path.isprintable() else ascii(path)


@dataclass(slots=True)
class _Walk:
    """What the walks through all class folders have in common."""

    found: Found
    report: Progress
    root: Identity | None
    foreign: frozenset[int]
    """``st_dev`` of file systems that are not entered."""
    barren: set[Identity] = field(default_factory=set)
    """Directories of class folders in which there was no image: another class folder need not lead there."""
    images: int = 0
    without: int = 0
    """Entries in succession without an image."""

    def image(self) -> None:
        """Count an image."""
        self.images, self.without = self.images + 1, 0
        if self.images % 256 == 0:
            self.report("finding images", self.images, None)

    def entries(self, count: int) -> None:
        """Count what a directory holds."""
        self.without += count
        if self.without >= _REPORTED_FROM:
            self.report("looking for images", self.without, None)


def find_images(
    root: str, report: Progress, *, strict: bool, skip_empty_classes: bool = False,
    keep: Callable[[Iterator[str]], Sequence[str]] = list,
) -> Found:  # fmt: skip
    """Walk through the folder.

    Args:
        root: can be listed.
        report: called for every 256 images and, where none is found for long, for every directory.
        strict: refuse what would give classes other numbers than ``ImageFolder`` does.
        skip_empty_classes: accept class folders without images also then; they are no classes.
        keep: makes what keeps the paths of a class.

    Raises:
        UsageError: ``strict`` refuses.
    """
    found = Found(strict=strict)
    beside: list[str] = []
    directories: list[os.DirEntry[str]] = []
    for entry in _list(root, found):
        directory = _is_directory(entry, found)
        if directory:
            directories.append(entry)
        elif directory is not None and _is_image(entry, found):
            beside.append(entry.path)
    identity = _identity(root)
    # Who names such a folder gets it.
    foreign = kernel_devices() - {identity[0]} if identity else kernel_devices()
    walk = _Walk(found=found, report=report, root=identity, foreign=foreign)
    for entry in directories:
        if entry.name == _MACOS_FOLDER:
            found.skip(entry.path, "macOS metadata, no class")
            continue
        paths = keep(_class_folder(entry.path, walk))
        if len(paths):
            found.classes.append(entry.name)
            found.paths.append(paths)
        elif entry.name.startswith("."):
            found.hidden_folders += 1
        else:
            found.empty_classes.append(entry.name)
    if strict and found.classes and found.empty_classes and not skip_empty_classes:
        raise UsageError(
            describe_empty_classes(root, found.empty_classes),
            hint="put images into them, or move them elsewhere, because ImageFolder counts them as classes; "
            "open_loader(…, skip_empty_classes=True) leaves them out",
        )
    found.has_class_folders = bool(found.classes)
    if found.classes:
        for path in beside:
            found.reject(path, "is not in a class folder, so it has no class")
    elif beside:
        found.classes.append(os.path.basename(root) or root)
        found.paths.append(keep(iter(beside)))
    return found


def describe_empty_classes(root: str, names: Sequence[str]) -> str:
    """``1 class folder has no images: '/data/cats'``."""
    have = "class folder has" if len(names) == 1 else "class folders have"
    paths = ", ".join(shown(os.path.join(root, name)) for name in names[:_MAX_NAMED])
    return f"{len(names):,} {have} no images: {paths}{', …' if len(names) > _MAX_NAMED else ''}"


def _class_folder(directory: str, walk: _Walk) -> Iterator[str]:
    """Image paths below ``directory`` in a fixed order. A stack and not recursion, because hostile trees are deep."""
    found, before = walk.found, walk.images
    entered: set[Identity] = set()
    walk.without = 0
    stack = [directory]
    while stack:
        current = stack.pop()
        identity = _identity(current)
        if identity is not None:  # otherwise listing it gives the reason
            if identity[0] in walk.foreign:
                found.skip(current, "is of a file system that the kernel makes, such as /proc")
                continue
            if identity == walk.root or identity in entered or identity in walk.barren:
                found.skip(current, "a link to a directory that was already read")
                continue
            entered.add(identity)
        below = []
        entries = _list(current, found)
        walk.entries(len(entries))
        for entry in entries:
            is_below = _is_directory(entry, found)
            if is_below:
                below.append(entry.path)
            elif is_below is not None and _is_image(entry, found):
                walk.image()
                yield entry.path
        stack.extend(reversed(below))
        if walk.without > MAX_WITHOUT_IMAGE:
            _give_up(directory, current, found)
            break
    if walk.images == before:
        walk.barren |= entered


def _give_up(directory: str, current: str, found: Found) -> None:
    reason = f"no image among {MAX_WITHOUT_IMAGE:,} files and directories, up to {shown(current)}"
    if found.strict:
        raise UsageError(
            f"{shown(directory)}: {reason}",
            hint="is there a link in it that leads out of the data set? remove it, or move the folder elsewhere",
        )
    found.skip(directory, f"{reason}: the rest of it was not read")


def _list(directory: str, found: Found) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        if found.strict:
            raise UsageError(
                f"cannot list {shown(directory)}: {error.strerror}",
                hint="check its permissions; without it, images would be missing and classes have other numbers",
            ) from error
        found.skip(directory, f"cannot list the directory: {error.strerror}")
        return []


def _identity(directory: str) -> Identity | None:
    try:
        status = os.stat(directory)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_directory(entry: os.DirEntry[str], found: Found) -> bool | None:
    """Whether it is a directory; ``None``: that cannot be seen, and it is named as if it were one."""
    try:
        return entry.is_dir()
    except OSError as error:
        if entry.name.lower().endswith(ENDINGS):
            return False
        if found.strict:
            raise UsageError(
                f"cannot access {shown(entry.path)}: {error.strerror}",
                hint="mend or remove it: were it a folder, images would be missing and classes have other numbers",
            ) from error
        found.skip(entry.path, f"cannot be accessed: {error.strerror}")
        return None


def _is_image(entry: os.DirEntry[str], found: Found) -> bool:
    """Whether its name ends as an image's does; an unusable one is skipped with the reason."""
    name = entry.name.lower()
    found.files += 1
    if name.startswith(_MACOS_PREFIX) and name.endswith((*ENDINGS, *OTHER_IMAGE_ENDINGS)):
        found.other["macOS metadata"] += 1
        found.other_files += 1
        found.skip(entry.path, "macOS metadata, no image")
        return False
    if not name.endswith(ENDINGS):
        found.other_files += 1
        ending = os.path.splitext(name)[1]
        if name.endswith(OTHER_IMAGE_ENDINGS):
            found.reject(entry.path, f"{ending} images are not read")
        else:
            kind = ending.lstrip(".") or "no ending"
            found.other[kind if kind in found.other or len(found.other) < _MAX_OTHER_KINDS else "others"] += 1
        return False
    try:
        usable = entry.is_file()
        reason = "a dangling link" if entry.is_symlink() else "not a regular file"
    except OSError as error:
        usable, reason = False, f"cannot be accessed: {error.strerror}"
    if not usable:
        found.reject(entry.path, reason)
    return usable
