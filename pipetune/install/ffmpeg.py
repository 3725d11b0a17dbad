"""FFmpeg's shared libraries, which SPDL decodes with and which pip does not install: are they there?

Nothing is loaded here. SPDL takes whichever of FFmpeg 4 to 9 the dynamic linker finds.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

#: The one that needs all the others.
_LIBRARY = "avdevice"
INSTALL = "pip install 'pipetune[spdl]' && apt-get install ffmpeg"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spdl:
    """An installed ``spdl_io`` with FFmpeg beside it."""

    version: str
    folder: str | None = None
    """It is imported from where all packages are."""

    @property
    def name(self) -> str:
        """``spdl_io 0.8.0``."""
        return f"spdl_io {self.version}"


def find_spdl() -> Spdl | None:
    """SPDL, where FFmpeg is there, too."""
    import importlib.metadata

    try:
        version = importlib.metadata.version("spdl_io")
    except importlib.metadata.PackageNotFoundError:
        return None
    return Spdl(version=version) if has_ffmpeg() else None


def has_ffmpeg() -> bool:
    """Whether the dynamic linker has something to find: on its path, in a conda environment, or in the system."""
    import ctypes.util

    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep), f"{sys.prefix}/lib"]
    beside = any(next(Path(folder).glob(f"lib{_LIBRARY}.so.*"), None) for folder in folders if folder)
    return beside or ctypes.util.find_library(_LIBRARY) is not None
