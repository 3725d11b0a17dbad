"""Build tools of a library, checked before its build: a compiler, headers and pip, and the packages that install them.

A build that fails with 200 lines of compiler output does not say that ``libjpeg-dev`` is missing.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipetune.errors import MissingPackageError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What one library needs to be built."""

    name: str
    headers: Mapping[str, str]
    """Header -> Debian package."""
    x86: bool = False
    """The library is for x86 processors only."""
    pip: bool = False
    """pip builds it as an extension module, which takes ``Python.h``."""


#: Pillow cannot be built without these two headers.
PILLOW_SIMD = Needs(
    name="Pillow-SIMD", headers={"jpeglib.h": "libjpeg-dev", "zlib.h": "zlib1g-dev"}, x86=True, pip=True
)
JPEG_ROI = Needs(name="jpeg-roi", headers={"jpeglib.h": "libjpeg-dev"})
#: Header -> package of conda, which puts it where this file and Pillow's setup.py look: below ``sys.prefix``.
_CONDA = {"jpeglib.h": "libjpeg-turbo", "zlib.h": "zlib"}
#: Folders that are searched for headers where there is no compiler to ask.
_USUAL_INCLUDES = ("/usr/include", "/usr/local/include")
_X86 = ("x86_64", "i686", "i386", "amd64")


def compiler(environment: Mapping[str, str], *, proc: str | Path = "/proc") -> str:
    """The compiler command (``CC``) for the build: the user's own, else ``cc`` with AVX2 where the processor has it."""
    cpuinfo = ""
    with contextlib.suppress(OSError):
        cpuinfo = Path(proc, "cpuinfo").read_text(encoding="utf-8", errors="replace")
    flags = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "").split()
    return environment.get("CC") or ("cc -mavx2" if "avx2" in flags else "cc")


def require_build_tools(
    needs: Needs, cc: str, environment: Mapping[str, str], *, machine: str, python_include: str | None = None,
    usual_includes: Sequence[str] = _USUAL_INCLUDES,
) -> None:  # fmt: skip
    """Check everything at once, so that one command installs all that is missing.

    Args:
        needs: what is to be built.
        cc: from :func:`compiler`.
        environment: environment variables of the build.
        machine: ``platform.machine()``.
        python_include: the folder of ``Python.h``; default: this Python's own.
        usual_includes: folders that are searched for headers where there is no compiler to ask.

    Raises:
        UsageError: the library is not for this processor, or ``CC`` names a compiler that fails.
        MissingPackageError: something is missing; the hint is the command that installs it.
    """
    if needs.x86 and machine not in _X86:
        raise UsageError(
            f"{needs.name} runs on x86 processors only, and this is {machine}", hint="try the backend opencv"
        )
    missing, packages = [], []
    command = split_command(cc)
    if shutil.which(command[0], path=environment.get("PATH")) is None:
        missing.append(f"a C compiler ({command[0]})")
        packages.append("gcc")
        includes = [*usual_includes, f"{sys.prefix}/include"]
        there = {name for name in needs.headers if any(Path(folder, name).is_file() for folder in includes)}
    else:
        there = _headers_seen_by(command, environment, needs.headers)
    for name, package in needs.headers.items():
        if name not in there:
            missing.append(name)
            packages.append(package)
    if needs.pip and not Path(python_include or sysconfig.get_path("include"), "Python.h").is_file():
        missing.append("Python.h")
        packages.append("python3-dev")
    hints = [f"apt-get install {' '.join(packages)}"] if packages else []
    if from_conda := [_CONDA[name] for name in needs.headers if name not in there]:
        hints[0] += f" (without root, in a conda environment: conda install {' '.join(from_conda)})"
    if needs.pip and not _has_pip(environment):
        missing.append("pip in this Python")
        # Debian's own Python refuses the first one.
        hints.append(f"{sys.executable} -m ensurepip (or: apt-get install python3-pip, uv pip install pip)")
    if missing:
        raise MissingPackageError(f"building {needs.name} needs {_joined(missing)}", hint=", then ".join(hints))


def split_command(cc: str) -> list[str]:
    """The words of ``CC``.

    Raises:
        UsageError: it is not a command.
    """
    command: list[str] = []
    with contextlib.suppress(ValueError):  # a quotation mark without its other half
        command = shlex.split(cc)
    if not command:
        raise UsageError(f"CC={cc!r} is not a command", hint="set CC=gcc, or unset CC")
    return command


def compiler_flags(environment: Mapping[str, str]) -> list[str]:
    """The words of ``CFLAGS``.

    Raises:
        UsageError: a quotation mark in it lacks its other half.
    """
    flags = environment.get("CFLAGS", "")
    try:
        return shlex.split(flags)
    except ValueError as error:
        raise UsageError(f"CFLAGS={flags!r} cannot be split into words: {error}", hint="unset CFLAGS") from None


def _headers_seen_by(command: Sequence[str], environment: Mapping[str, str], headers: Iterable[str]) -> set[str]:
    """Headers that the preprocessor finds; it knows its own folders, CPATH and a cross-compiler's root."""
    question = "".join(f"#if __has_include(<{name}>)\nseen {name}\n#endif\n" for name in headers)
    asked = subprocess.run(
        [*command, *_include_options(environment), "-E", "-P", "-x", "c", "-"],
        input=question, capture_output=True, text=True, errors="replace", env=dict(environment), check=False,
    )  # fmt: skip
    if asked.returncode != 0:
        last = (asked.stderr.strip().splitlines() or [f"exit status {asked.returncode}"])[-1]
        raise UsageError(f"the C compiler {shlex.join(command)!r} fails: {last}", hint="set CC=gcc, or unset CC")
    return {line.removeprefix("seen ").replace(" ", "") for line in asked.stdout.splitlines() if line[:5] == "seen "}


def _include_options(environment: Mapping[str, str]) -> list[str]:
    """Where Pillow's setup.py looks besides the compiler's own folders."""
    options = [*compiler_flags(environment), f"-I{sys.prefix}/include"]
    for name in ("JPEG_ROOT", "ZLIB_ROOT"):
        if environment.get(name):
            options.append(f"-I{os.path.join(environment[name], 'include')}")
    return options


def _has_pip(environment: Mapping[str, str]) -> bool:
    question = [sys.executable, "-P", "-m", "pip", "--version"]
    return subprocess.run(question, capture_output=True, env=dict(environment), check=False).returncode == 0


def _joined(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
