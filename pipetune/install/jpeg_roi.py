"""Compiles jpeg-roi, pipetune's C source for decoding regions, in a few seconds and without the network."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pipetune.errors import PipetuneError
from pipetune.install.build_tools import JPEG_ROI as NEEDS
from pipetune.install.build_tools import compiler_flags, require_build_tools, split_command
from pipetune.install.find import JPEG_ROI, Compiled, compiled_in, roi_sources, source_mark, why_refused
from pipetune.install.pip import cause_of
from pipetune.install.place import SITE, installing, place_of

#: Program that loads the library and prints its libjpeg-turbo's version; it fails where header and library differ.
_TRIAL = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.pipetune_jpeg_roi_open.restype = ctypes.c_void_p
if not library.pipetune_jpeg_roi_open():
    sys.exit("jpeglib.h and libjpeg are of different versions")
number = library.pipetune_jpeg_roi_library()
print(f"{number // 1000000}.{number // 1000 % 1000}.{number % 1000}")
"""
_OPTIONS = ("-O3", "-shared", "-fPIC", "-fvisibility=default")
#: Checks of buffers and of the stack at run time: the library reads files that anybody may have written. -U, because
#: some distributions' compilers define it already. They cost nothing that can be measured: 1.15 ms of CPU time per
#: image with and without them, medians of eight alternated runs.
_HARDENED = ("-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-fstack-protector-strong", "-Wl,-z,relro,-z,now")
#: Products and sums that are rounded once instead of twice would give other crops than Python's. These options come
#: last and override the user's.
_EXACT = ("-fno-fast-math", "-ffp-contract=off")


def install_jpeg_roi(
    report: Callable[[str], None], *, place: Path | None = None, environment: Mapping[str, str] | None = None
) -> tuple[Compiled, bool]:
    """Compile the library, try it, and put it in place.

    Args:
        report: is called with one line when something takes time.
        place: its folder; default: :func:`pipetune.install.place.place_of`.
        environment: environment variables of the compiler; default: this process's own.

    Returns:
        The library, and whether it was built now.

    Raises:
        UsageError: ``CC`` names a compiler that fails, or this user has no folder for it.
        MissingPackageError: a compiler or a header is missing.
        PipetuneError: the build or the disk failed; an earlier library is kept.
    """
    place = place.absolute() if place is not None else place_of(JPEG_ROI)
    variables = dict(os.environ if environment is None else environment)
    if (found := _usable(place)) is not None:
        return found, False
    command = split_command(variables.get("CC") or "cc")
    require_build_tools(NEEDS, variables.get("CC") or "cc", variables, machine=platform.machine())
    with installing(place, report) as (work, put_in_place):
        if (found := _usable(place)) is not None:  # another process built it meanwhile
            return found, False
        build_jpeg_roi(work / SITE, command, variables)
        put_in_place()
    built = compiled_in(place)
    assert built is not None  # it was in the folder that has been renamed
    return built, True


def _usable(place: Path) -> Compiled | None:
    found = compiled_in(place) if why_refused(place) is None else None  # to try it is to run it
    return found if found is not None and _try(found.path)[0] == 0 else None


def build_jpeg_roi(site: Path, command: Sequence[str], environment: Mapping[str, str], *, beside: bool = False) -> None:
    """Compile the library into a new folder, try it, and note its version.

    Args:
        site: the folder, which must not exist.
        command: of the C compiler.
        environment: variables of the compiler.
        beside: the library looks for libjpeg in its own folder first, for a machine that may lack it.

    Raises:
        PipetuneError: the compiler failed, or what it built does not work.
    """
    site.mkdir()
    library = site / "jpeg_roi.so"
    flags = ["-Wl,-rpath,$ORIGIN"] if beside else []
    if root := environment.get("JPEG_ROOT"):
        flags += [f"-I{root}/include", *_library_flags(Path(root, "lib")), *_library_flags(Path(root, "lib64"))]
    # A header belongs to its library: conda has both, a virtual environment neither.
    if Path(sys.prefix, "include", "jpeglib.h").is_file():
        flags += [f"-I{sys.prefix}/include", *_library_flags(Path(sys.prefix, "lib"))]
    flags += [*compiler_flags(environment), *_EXACT]
    sources = [str(path) for path in roi_sources() if path.suffix == ".c"]
    arguments = [*command, *_OPTIONS, *_HARDENED, *flags, "-o", str(library), *sources, "-ljpeg", "-lm"]
    done = subprocess.run(
        arguments, capture_output=True, text=True, errors="replace", env=dict(environment), check=False
    )  # fmt: skip
    if done.returncode != 0:
        hint = "a newer libjpeg-turbo can be named with JPEG_ROOT=/its/folder" if "libjpeg-turbo" in done.stderr else ""
        raise PipetuneError(
            f"the C compiler could not build jpeg-roi: {cause_of(done.stderr)}",
            hint=hint or "set CC=gcc to try another compiler",
        )
    code, text = _try(str(library))
    if code != 0:
        raise PipetuneError(
            f"jpeg-roi was built but does not work: {text}", hint="apt-get install --reinstall libjpeg-dev"
        )
    (site / "VERSION").write_text(f"{text}\n{source_mark()}\n", encoding="ascii")


def _library_flags(folder: Path) -> list[str]:
    return [f"-L{folder}", f"-Wl,-rpath,{folder}"]


def _try(library: str) -> tuple[int, str]:
    """Exit status of a trial run, and the version of libjpeg-turbo or the cause of the failure."""
    tried = subprocess.run(
        [sys.executable, "-P", "-S", "-c", _TRIAL, library], capture_output=True, text=True, errors="replace",
        check=False,
    )  # fmt: skip
    return tried.returncode, tried.stdout.strip() if tried.returncode == 0 else cause_of(tried.stderr)
