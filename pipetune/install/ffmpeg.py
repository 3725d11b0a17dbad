"""SPDL and the shared libraries of FFmpeg, which SPDL decodes with and which pip does not install.

Nothing is loaded here. SPDL takes whichever of FFmpeg 4 to 9 the dynamic linker finds.

Why not ``ctypes.util.find_library`` alone: it knows neither ``LD_LIBRARY_PATH`` without a compiler nor a conda folder.
"""

from __future__ import annotations

import contextlib
import glob
import os
import sys
from dataclasses import dataclass

#: The FFmpeg library that needs all the others.
_LIBRARY = "avdevice"
INSTALL = "pip install 'pipetune[spdl]' && apt-get install ffmpeg"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spdl:
    """An installed ``spdl_io`` whose FFmpeg is installed, too."""

    version: str
    folder: str | None = None
    """Folder that has to be on the path; ``None``: it is imported like any package."""

    @property
    def name(self) -> str:
        """``spdl_io 0.8.0``."""
        return f"spdl_io {self.version}"


def find_spdl() -> Spdl | None:
    """SPDL; ``None`` where it or FFmpeg is not installed."""
    import importlib.metadata

    try:
        version = importlib.metadata.version("spdl_io")
    except importlib.metadata.PackageNotFoundError:
        return None
    return Spdl(version=version) if has_ffmpeg() else None


def has_ffmpeg() -> bool:
    """Whether the dynamic linker finds FFmpeg: on its path, in a conda environment, or in the system."""
    import ctypes.util

    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep), f"{sys.prefix}/lib"]
    # Path.glob raises where a folder may not be entered.
    if any(glob.glob(f"{glob.escape(folder)}/lib{_LIBRARY}.so.*") for folder in folders if folder):
        return True
    with contextlib.suppress(OSError):  # it asks the compiler, which takes a folder for temporary files
        return ctypes.util.find_library(_LIBRARY) is not None
    return False
