"""Where the libraries are that have a folder of their own: Pillow-SIMD and the compiled jpeg-roi.

Pillow-SIMD is a build of Pillow with vectorised resizing. Both are imported as ``PIL``, so a process has one of them:
the folder comes first on the path of those children that measure Pillow-SIMD, and of no other process. Nothing is
imported here; a file of the package holds the version.

jpeg-roi is pipetune's C source for decoding a region of a JPEG, compiled for the libjpeg-turbo of this machine.

Their code runs in the process that finds them. Such a folder counts only if nobody but root and this user can have
written it: ``XDG_DATA_HOME`` may be shared, or below ``/tmp``.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from pipetune.machine.user_folders import data_folder
from pipetune.store.ownership import everything_in, why_foreign

#: Pillow-SIMD's version is Pillow's with this suffix.
_SIMD_MARK = ".post"
_VERSION = re.compile(r"""^__version__\s*=\s*["']([^"']+)["']""", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pillow:
    """An installed package ``PIL``."""

    version: str
    folder: str
    """Folder that has to be on the path to import it."""

    @property
    def simd(self) -> bool:
        """It is Pillow-SIMD."""
        return is_simd(self.version)

    @property
    def name(self) -> str:
        """``Pillow 12.1.0`` or ``Pillow-SIMD 12.1.1.post0``."""
        return f"{'Pillow-SIMD' if self.simd else 'Pillow'} {self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The jpeg-roi library, built from the source of this version."""

    library: str
    """Version of the libjpeg-turbo that it was built against."""
    path: str
    """Path of the shared library."""
    folder: str | None = None
    """Always ``None``: no folder has to be on the path, since nothing is imported."""

    @property
    def name(self) -> str:
        """``jpeg-roi with libjpeg-turbo 2.1.5``."""
        return f"{JPEG_ROI} with libjpeg-turbo {self.library}"


#: Name of the library that both region-decoding backends share, as ``doctor --install`` takes it.
JPEG_ROI = "jpeg-roi"
PILLOW_SIMD = "pillow-simd"


def is_simd(version: str) -> bool:
    """Whether this version of ``PIL`` is Pillow-SIMD's."""
    return _SIMD_MARK in version


def side_directory(name: str) -> Path | None:
    """The folder of a library that cannot be installed beside the others, for this Python and processor.

    ``None``: this user has no folder for data.
    """
    data = data_folder()
    return None if data is None else data / side_path(name)


def side_path(name: str, cache_tag: str | None = None) -> Path:
    """The folder of such a library below pipetune's folder for data.

    Args:
        name: of the library.
        cache_tag: ``sys.implementation.cache_tag`` of the Python that will load it; default: this one's.
    """
    return Path("side", f"{name}-{cache_tag or sys.implementation.cache_tag}-{platform.machine()}")


def folders_above(place: Path) -> tuple[Path, ...]:
    """pipetune's own folders above a library's, the topmost first."""
    return place.parent.parent, place.parent


def why_refused(place: Path | None) -> str | None:
    """Why the library in its own folder is not used although it is there; ``None``: it is, or there is none.

    Args:
        place: from :func:`side_directory`.
    """
    if place is None or not os.path.exists(place):  # Path.exists raises where a folder above may not be entered
        return None
    return why_foreign((*folders_above(place), *everything_in(place)))


def pillow_in(folder: str | Path) -> Pillow | None:
    """The ``PIL`` in one folder; ``None`` where there is none."""
    try:
        text = Path(folder, "PIL", "_version.py").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = _VERSION.search(text)
    return Pillow(version=found[1], folder=str(folder)) if found else None


def importable_pillow() -> Pillow | None:
    """The ``PIL`` that ``import PIL`` would give; the working directory does not count, as in the children."""
    return next((found for folder in sys.path if folder and (found := pillow_in(folder))), None)


def find_pillow() -> Pillow | None:
    """Pillow, if ``import PIL`` gives it; ``None``: it gives Pillow-SIMD or nothing."""
    found = importable_pillow()
    return found if found and not found.simd else None


def roi_sources() -> list[Path]:
    """The C sources in this package; headers come first."""
    folder = Path(__file__).parents[1] / "decoders"
    return [
        folder / name
        for name in (
            "jpeg_axis.h", "jpeg_roi.h", "jpeg_rows.h", "jpeg_plane.h", "jpeg_resize.h", "jpeg_pack.h", "jpeg_packer.h",
            "jpeg_roi.c", "jpeg_roi_fill.c", "raw_crop.c", "jpeg_pack.c",
        )
    ]  # fmt: skip


def source_mark() -> str:
    """A hash of the sources: a library that an older version built is not taken for this one's."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in roi_sources())).hexdigest()[:16]


def compiled_in(folder: str | Path) -> Compiled | None:
    """The library in one folder; ``None`` where there is none, or one of another version."""
    try:
        library, mark = Path(folder, "VERSION").read_text(encoding="ascii", errors="replace").split()
    except (OSError, ValueError):
        return None
    path = Path(folder, "jpeg_roi.so")
    return Compiled(library=library, path=str(path)) if mark == source_mark() and path.is_file() else None


def find_jpeg_roi() -> Compiled | None:
    """The jpeg-roi library; ``None`` where it was not built, or is refused (see :func:`why_refused`)."""
    place = side_directory(JPEG_ROI)
    found = None if place is None else compiled_in(place)
    return found if found and why_refused(place) is None else None


def find_pillow_simd() -> Pillow | None:
    """Pillow-SIMD, from its own folder or installed in place of Pillow; ``None``: neither."""
    place = side_directory(PILLOW_SIMD)
    found = None if place is None else pillow_in(place)
    if found is None or why_refused(place) is not None:
        found = importable_pillow()
    return found if found and found.simd else None
