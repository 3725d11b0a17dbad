"""Libraries that share their import name with another one live in a folder of their own: which Pillow is where.

Pillow-SIMD is a build of Pillow with vectorised resizing. Both are imported as ``PIL``, so a process has one of them.
The side directory is put first on the path of those children that measure Pillow-SIMD, and of nobody else. Nothing is
imported here: the version stands in a file of the package.
"""

from __future__ import annotations

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


def find_pillow_simd() -> Pillow | None:
    """Pillow-SIMD: from its side directory, or in place of Pillow."""
    found = pillow_in(side_directory("pillow-simd")) or importable_pillow()
    return found if found and found.simd else None
