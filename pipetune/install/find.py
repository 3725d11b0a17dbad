"""Libraries that pip cannot put beside the others live in a folder of their own: where they are.

Pillow-SIMD is a build of Pillow with vectorised resizing. Both are imported as ``PIL``, so a process has one of them.
The side directory is put first on the path of those children that measure Pillow-SIMD, and of nobody else. Nothing is
imported here: the version stands in a file of the package.

Our own C source for ROI decoding is compiled there, for the libjpeg-turbo of the machine.
"""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import platformdirs

#: Pillow-SIMD numbers its releases as Pillow's with this behind them.
_SIMD_MARK = ".post"
_VERSION = re.compile(r"""^__version__\s*=\s*["']([^"']+)["']""", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pillow:
    """An installed package ``PIL``."""

    version: str
    folder: str
    """Folder that has to be on the path."""

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
    """Our C library, built from the source of this version."""

    library: str
    """Version of libjpeg-turbo that it was built against."""
    path: str
    """Of the shared library."""
    folder: str | None = None
    """Nothing of it is imported from a folder."""

    @property
    def name(self) -> str:
        """``jpeg-roi with libjpeg-turbo 2.1.5``."""
        return f"{JPEG_ROI} with libjpeg-turbo {self.library}"


#: What the two backends that decode regions share, and ``doctor --install`` builds.
JPEG_ROI = "jpeg-roi"


def is_simd(version: str) -> bool:
    """Whether a version of ``PIL`` is Pillow-SIMD's."""
    return _SIMD_MARK in version


def side_directory(name: str) -> Path:
    """Where the library of a backend lives that cannot be installed beside the others; for this Python and machine."""
    tag = f"{name}-{sys.implementation.cache_tag}-{platform.machine()}"
    return Path(platformdirs.user_data_dir("pipetune", appauthor=False)) / "side" / tag


def pillow_in(folder: str | Path) -> Pillow | None:
    """The ``PIL`` in one folder; ``None`` where there is none."""
    try:
        text = Path(folder, "PIL", "_version.py").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = _VERSION.search(text)
    return Pillow(version=found[1], folder=str(folder)) if found else None


def importable_pillow() -> Pillow | None:
    """The ``PIL`` that ``import PIL`` would give; the working directory is not looked at, as in the children."""
    return next((found for folder in sys.path if folder and (found := pillow_in(folder))), None)


def find_pillow() -> Pillow | None:
    """Pillow itself, if that is what ``import PIL`` gives."""
    found = importable_pillow()
    return found if found and not found.simd else None


def roi_sources() -> list[Path]:
    """The C sources in this package; headers come first."""
    folder = Path(__file__).parents[1] / "decoders"
    return [folder / name for name in ("jpeg_roi.h", "jpeg_roi.c", "jpeg_roi_fill.c")]


def source_mark() -> str:
    """Changes with the sources: what an older version built is not taken for this one's."""
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
    """The library for ROI decoding, if it was built."""
    return compiled_in(side_directory(JPEG_ROI))


def find_pillow_simd() -> Pillow | None:
    """Pillow-SIMD: from its side directory, or in place of Pillow."""
    found = pillow_in(side_directory("pillow-simd")) or importable_pillow()
    return found if found and found.simd else None
