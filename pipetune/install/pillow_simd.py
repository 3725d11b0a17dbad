"""Builds Pillow-SIMD from source into a folder of its own, where it does not replace Pillow.

Source and build tools are these files and no others, wherever pip gets them from: each has its hash.

Why the tools are installed first and pip isolates nothing: pip would fetch the newest ones into its isolated build, and
how hashes are given for that differs between its versions.
"""

from __future__ import annotations

import os
import platform
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipetune.errors import PipetuneError
from pipetune.install.build_tools import PILLOW_SIMD, compiler, require_build_tools
from pipetune.install.find import PILLOW_SIMD as NAME
from pipetune.install.find import Pillow, importable_pillow, pillow_in, why_refused
from pipetune.install.pip import cause_of, not_the_wanted, run_pip, unreachable
from pipetune.install.place import installing, place_of

VERSION = "12.1.1.post0"
#: Lines of pip's requirements files (https://pip.pypa.io/en/stable/topics/secure-installs/). A newer one is got from
#: PyPI's page of the files; ``pip hash FILE`` prints the same.
SOURCE = f"{NAME}=={VERSION} --hash=sha256:8e9694ec94c59d12f16753cbf48a3080266bdd704b0c51a630318c7a325625b1"
#: What its ``pyproject.toml`` wants for the build; both are wheels for every Python and machine.
TOOLS = (
    "setuptools==84.2.1 --hash=sha256:ca140b45d5325a9478f880e351484f62fef15f336462e449ca0c03c873d589c2",
    "pybind11==3.1.0 --hash=sha256:b8488090f8acffbcb6b5d6a85571a6827a0a2981ffb75e5a0b27b87c4a6b7dd0",
)

#: Program that decodes and resizes a JPEG, as the backend does; an instruction that the processor lacks ends it.
_TRIAL = """
import io, os, sys
sys.path.insert(0, sys.argv[1])
import PIL
if PIL.__file__ is None or not os.path.samefile(os.path.join(sys.argv[1], "PIL", "__init__.py"), PIL.__file__):
    sys.exit(f"import PIL gives {PIL.__file__}")
from PIL import Image
colour, file = (200, 100, 50), io.BytesIO()
Image.new("RGB", (64, 48), colour).save(file, "JPEG")
small = Image.open(io.BytesIO(file.getvalue())).resize((8, 8), Image.Resampling.BILINEAR)
if max(abs(a - b) for a, b in zip(small.getpixel((4, 4)), colour)) > 8:
    sys.exit(f"{colour} became {small.getpixel((4, 4))}")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The installed Pillow-SIMD."""

    pillow: Pillow
    built: bool
    """``False``: it was already installed."""


def install_pillow_simd(
    report: Callable[[str], None],
    *,
    place: Path | None = None,
    environment: Mapping[str, str] | None = None,
    proc: str | Path = "/proc",
) -> Installation:
    """Build Pillow-SIMD, try it, and put it in place; about a minute, and needs the network.

    Args:
        report: is called with one line when something takes time.
        place: its folder; default: :func:`pipetune.install.place.place_of`.
        environment: environment variables of pip and the compiler; default: this process's own.
        proc: where the proc file system is.

    Raises:
        UsageError: it does not run on this processor, ``CC`` names a compiler that fails, or this user has no folder.
        MissingPackageError: a compiler, a header or pip is missing.
        PipetuneError: the build or the disk failed; an earlier build is kept.
        KeyboardInterrupt: asked to stop; pip has been ended.
    """
    place = place.absolute() if place is not None else place_of(NAME)
    variables = dict(os.environ if environment is None else environment)
    if (found := _usable(place)) is not None:
        return Installation(pillow=found, built=False)
    variables["CC"] = compiler(variables, proc=proc)
    require_build_tools(PILLOW_SIMD, variables["CC"], variables, machine=platform.machine())
    with installing(place, report) as (work, put_in_place):
        if (found := _usable(place)) is not None:  # another process built it meanwhile
            return Installation(pillow=found, built=False)
        report(f"building Pillow-SIMD {VERSION} from source ({variables['CC']}): about a minute")
        _build(work, variables)
        put_in_place()
    built = pillow_in(place)
    assert built is not None  # it was in the folder that has been renamed
    return Installation(pillow=built, built=True)


def _usable(place: Path) -> Pillow | None:
    """The wanted version, if it is installed and works: a library that it was built against may have been removed."""
    beside = pillow_in(place) if why_refused(place) is None else None  # to try it is to run it
    for found in (beside, importable_pillow()):
        if found is not None and found.version == VERSION and _trial(found.folder) is None:
            return found
    return None


def _trial(folder: str | Path) -> str | None:
    """Why the ``PIL`` of this folder fails to decode and resize; ``None``: it works."""
    tried = subprocess.run(
        [sys.executable, "-P", "-c", _TRIAL, str(folder)], capture_output=True, text=True, errors="replace", check=False
    )
    if tried.returncode < 0:
        return signal.strsignal(-tried.returncode) or f"signal {-tried.returncode}"
    return None if tried.returncode == 0 else cause_of(tried.stderr)


def _arguments(file: Path, lines: Sequence[str], target: Path, *how: str) -> list[str]:
    """Of pip, to install these requirements, whose files have to have these hashes, into a folder.

    A prefix in PIP_PREFIX or pip.conf excludes ``--target``. An empty option overrules both, and pip ignores an empty
    variable. ``--isolated`` would drop the variables that name a package index, too.
    """
    file.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    return [
        "install", "--no-deps", "--require-hashes", *how, "--no-cache-dir", "--no-input", "--disable-pip-version-check",
        "--prefix=", "--target", str(target), "--requirement", str(file),
    ]  # fmt: skip


def _variables(environment: Mapping[str, str], scratch: Path, tools: Path) -> dict[str, str]:
    """The environment of pip, in which settings of the user's do not exclude what is done here.

    A setting that forces ``--user`` excludes ``--target``. The user's constraints are of other packages, or without
    hashes; an empty variable would leave those of pip.conf in force.
    """
    return {
        **environment, "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PIP_CONSTRAINT": os.devnull,
        "TMPDIR": str(scratch),  # a killed pip's files are removed with the work folder
        "PYTHONPATH": os.pathsep.join([str(tools), *filter(None, [environment.get("PYTHONPATH")])]),
    }  # fmt: skip


def _build(work: Path, environment: Mapping[str, str]) -> None:
    site, scratch, tools = work / "site", work / "tmp", work / "tools"
    scratch.mkdir()
    variables = _variables(environment, scratch, tools)
    code, output = run_pip(_arguments(work / "tools.txt", TOOLS, tools, "--only-binary", ":all:"), variables)
    if code == 0:
        how = ("--no-binary", NAME, "--no-build-isolation")
        code, output = run_pip(_arguments(work / "source.txt", (SOURCE,), site, *how), variables)
    if code != 0 and not_the_wanted(output):
        raise PipetuneError(
            f"pip got another file than the one that this pipetune builds from: {cause_of(output)}",
            hint="is the package index a mirror that changes files? set PIP_INDEX_URL=https://pypi.org/simple",
        )
    if code != 0:
        by_hand = f"python -m pip wheel --no-deps --no-binary {NAME} {NAME}=={VERSION}"
        settings = "settings in pip.conf count, too: python -m pip config list"
        hint = f"see its whole output with: CC={shlex.quote(environment['CC'])} {by_hand}; {settings}"
        if unreachable(output):
            hint = "is the package index reachable? set HTTPS_PROXY or PIP_INDEX_URL"
        raise PipetuneError(f"pip could not build Pillow-SIMD: {cause_of(output)}", hint=hint)
    built = pillow_in(site)
    if built is None or not built.simd:
        message = f"pip built {built.name if built else 'no PIL'} in place of Pillow-SIMD"
        raise PipetuneError(f"{message}: {cause_of(output)}", hint="is the package index a mirror of PyPI?")
    if (problem := _trial(site)) is not None:
        raise PipetuneError(f"Pillow-SIMD was built but does not work: {problem}", hint="try another compiler: CC=gcc")
