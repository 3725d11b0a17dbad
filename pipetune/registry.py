"""BACKENDS: one line per decode backend. To add one, write ``backends/NAME.py`` and add its line here.

The command line, the search, the report and the contract tests read this table; nothing else names a backend.
Whether a backend is installed is asked of the package metadata or files, without importing it.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import sys
from collections.abc import Callable
from dataclasses import dataclass

from pipetune.errors import UsageError
from pipetune.side import Pillow, find_pillow, find_pillow_simd, importable_pillow


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """How to find, install and drive one decode backend."""

    name: str
    module: str
    """Module with ``open_loader(candidate, workload, images) -> Loader``; imported in the child only."""
    distributions: tuple[str, ...]
    """Any one of these installed distributions will do."""
    install: str
    """The command that installs it."""
    in_process_workers: bool = False
    """Its workers are threads inside the library (DALI): there is no 0-worker configuration."""
    threads: bool = False
    """Its workers may be threads: it lets go of Python's global lock, and starts no threads of its own."""
    find: Callable[[], Pillow | None] | None = None
    """Finds the library where its distribution's name does not tell (see :mod:`pipetune.side`)."""


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend(name="pillow", module="pipetune.backends.pillow",
                distributions=(), install="pip install --force-reinstall pillow", find=find_pillow,
                threads=True),
        Backend(name="pillow-simd", module="pipetune.backends.pillow_simd", distributions=(),
                install="pipetune doctor --install pillow-simd", find=find_pillow_simd, threads=True),
        Backend(name="opencv", module="pipetune.backends.opencv",
                distributions=("opencv-python-headless", "opencv-python", "opencv-contrib-python-headless",
                               "opencv-contrib-python"),
                install="pip install 'pipetune[opencv]'", threads=True),
        Backend(name="simplejpeg", module="pipetune.backends.simplejpeg", distributions=("simplejpeg",),
                install="pip install 'pipetune[simplejpeg]'", threads=True),
        Backend(name="torchvision", module="pipetune.backends.torchvision",
                distributions=("torchvision",), install="pip install 'pipetune[torch]'"),
        Backend(name="dali", module="pipetune.backends.dali",
                distributions=("nvidia-dali-cuda130", "nvidia-dali-cuda120"),
                install="pip install 'pipetune[dali-cuda130]'", in_process_workers=True),
    )
}  # fmt: skip

#: The loader of the user's own program, which is swept from Python: ``pipetune.sweep(make_loader)``. Not in the table,
#: because it is no way to decode and exists in one run only.
OWN = Backend(
    name="own", module="pipetune.backends.own", distributions=("torch",), install="pip install 'pipetune[torch]'"
)

#: What a training script does when nobody has tuned it: ImageFolder's Pillow loader and DataLoader's num_workers=0.
DEFAULT_BACKEND = "pillow"


def default_backend() -> str:
    """The untuned backend of this environment: whatever ``import PIL`` gives."""
    return "pillow-simd" if (found := importable_pillow()) and found.simd else DEFAULT_BACKEND


def side_folder(backend: Backend) -> str | None:
    """What a child that measures this backend has to put first on its path; ``None``: nothing."""
    found = backend.find() if backend.find is not None else None
    return found.folder if found is not None and found.folder not in sys.path else None


def installed_version(backend: Backend) -> str | None:
    """``'nvidia-dali-cuda130 2.4.0'``, or ``None`` when the backend is not installed."""
    if backend.find is not None:
        found = backend.find()
        return found.name if found is not None else None
    for name in backend.distributions:
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def find_backend(name: str) -> Backend:
    """The backend of that name.

    Raises:
        UsageError: there is none; the nearest names are suggested.
    """
    if name in BACKENDS:
        return BACKENDS[name]
    if name == OWN.name:
        return OWN
    near = difflib.get_close_matches(name, BACKENDS, n=2, cutoff=0.4)
    raise UsageError(
        f"unknown backend {name!r}",
        hint=f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(BACKENDS)}",
    )
