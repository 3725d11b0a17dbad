"""DALI and nvImageCodec for one Python and one kind of GPU, in one archive of a third of their wheels' size.

What goes: modules for other Pythons, device code for other GPUs (see fatbin.py), symbols for debuggers, C headers, and
the extensions for JPEG 2000 and TIFF, whose libraries are not carried. ``nvidia/__init__.py`` stays: it joins this
folder ``nvidia`` with that of the machine, where one of them would hide the other.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu.pack import fatbin
from benchmarks.gpu.pack.machine import CACHE_TAG
from benchmarks.gpu.pack.wheels import keep_in_cache, unpack_wheels
from pipetune.errors import PipetuneError

#: What ``import nvidia.dali`` and a decode need. six, packaging and numpy are in the machine's image.
PACKAGES = ("nvidia-dali-cuda130", "nvidia-nvimgcodec-cu13", "nvidia-nvjpeg", "optree", "astunparse", "gast")
#: Patterns of names in the wheels that are left out.
_LEFT_OUT = re.compile(
    rf"\.(?!{CACHE_TAG}-)cpython-[\w-]+\.so$"
    r"|^nvidia/[\w/]*include/|^nvidia/nvimgcodec/tools/|/extensions/lib(nvjpeg2k|nvtiff)_ext\.|\.pyi$"
)
_JOINS_FOLDERS = "nvidia/__init__.py"
#: Of xz. A filter for x86 code saves 4 %; level 6 would save 4 % more and take three times as long.
_COMPRESSION = ("--x86", "--lzma2=preset=4,dict=32MiB")


def build_archive(wheels: Sequence[Path], architecture: int, cache: Path) -> Path:
    """The archive (tar.xz) of what is needed from these wheels.

    Args:
        wheels: of :data:`PACKAGES`.
        architecture: of the GPU: 90 for sm_90.
        cache: folder that keeps the archive until the wheels or this program change.

    Raises:
        PipetuneError: a library cannot be pruned or stripped, or xz failed.
    """
    programs = [Path(__file__).read_bytes(), Path(fatbin.__file__).read_bytes()]
    names = [(wheel.name, wheel.stat().st_size) for wheel in wheels]
    key = hashlib.sha256(repr((programs, names, architecture, CACHE_TAG)).encode()).hexdigest()[:16]

    def build(file: Path) -> None:
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            site = Path(folder)
            unpack_wheels(wheels, site, is_needed)
            if not (site / _JOINS_FOLDERS).is_file():
                raise PipetuneError(f"no wheel has {_JOINS_FOLDERS}", hint="pack nvidia-nvimgcodec-cu13 with DALI")
            shrink_libraries(site, architecture)
            write_archive(site, file)

    return keep_in_cache(cache / f"dali-{key}.tar.xz", build)


def is_needed(name: str) -> bool:
    """Whether a file of a wheel is carried."""
    return _LEFT_OUT.search(name) is None


def shrink_libraries(site: Path, architecture: int) -> None:
    """Keep the device code of one architecture and no symbols for debuggers, in all shared libraries of a folder.

    Raises:
        PipetuneError: a library has another format than the one that is known, or strip failed.
    """
    libraries = sorted(path for path in site.rglob("*.so*") if path.is_file())
    for library in libraries:
        try:
            fatbin.prune_library(library, architecture)
        except ValueError as error:
            raise PipetuneError(f"cannot shrink {library.name}: {error}") from error
    _run("strip", "--strip-unneeded", *map(str, libraries))


def write_archive(site: Path, file: Path) -> None:
    """Write a folder as tar.xz; equal folders give equal archives.

    Raises:
        PipetuneError: xz failed.
    """

    def anonymise(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    plain = file.with_suffix("")
    with tarfile.open(plain, "w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(site.iterdir()):
            archive.add(path, path.name, filter=anonymise)  # sorts what is below
    # Two threads always, because their number decides the blocks.
    _run("xz", "-T2", *_COMPRESSION, str(plain))


def _run(*command: str) -> None:
    program = shutil.which(command[0])
    assert program is not None  # the command has looked for it
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise PipetuneError(f"{command[0]} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
