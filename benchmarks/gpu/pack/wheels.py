"""Wheels for the other machine's Python, in the versions of constraints.txt; a folder of the user keeps them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.gpu.pack.machine import PLATFORMS, PYTHON
from pipetune.errors import MissingPackageError, PipetuneError
from pipetune.install.pip import cause_of, unreachable

CONSTRAINTS = Path(__file__).resolve().parents[3] / "constraints.txt"
#: What pipetune needs and the machine's image lacks, then what it can use.
CARRIED = ("msgspec", "platformdirs", "py-spy", "simplejpeg", "google-crc32c")
#: What was not used for this long is deleted.
MAX_UNUSED_S = 30 * 24 * 3600


def find_cache() -> Path:
    """The folder that keeps downloads and DALI's archive between two calls."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "pipetune-gpu-pack")


def download_wheels(names: Sequence[str], cache: Path) -> list[Path]:
    """The wheels of these packages, without those of the packages that they need.

    Raises:
        MissingPackageError: this Python has no pip.
        PipetuneError: pip could not get one of them.
    """
    versions = read_versions(names)
    key = hashlib.sha256(repr((versions, PYTHON, PLATFORMS)).encode()).hexdigest()[:16]

    def download(folder: Path) -> None:
        folder.mkdir()
        requirements = [f"{name}=={version}" for name, version in versions.items()]
        platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
        python = ["--python-version", ".".join(map(str, PYTHON)), "--implementation", "cp"]
        run_pip(
            "download", "--no-deps", "--only-binary=:all:", "--dest", str(folder), *python, *platforms, *requirements
        )

    return sorted(keep_in_cache(cache / f"wheels-{key}", download).glob("*.whl"))


def read_versions(names: Sequence[str], file: Path = CONSTRAINTS) -> dict[str, str]:
    """Package -> its version in constraints.txt.

    Raises:
        PipetuneError: the file does not name one of them.
    """
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", file.read_text(encoding="utf-8"), re.MULTILINE))
    versions = {normalise_name(name): version for name, version in pinned.items()}
    if missing := [name for name in names if normalise_name(name) not in versions]:
        raise PipetuneError(f"{file.name} has no version of {', '.join(missing)}", hint="add it there")
    return {name: versions[normalise_name(name)] for name in names}


def normalise_name(name: str) -> str:
    """A package's name as PyPI compares it: https://peps.python.org/pep-0503/#normalized-names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def run_pip(*arguments: str) -> None:
    """Run this Python's pip.

    Raises:
        MissingPackageError: this Python has no pip.
        PipetuneError: pip failed; with the line of its output that says why.
    """
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments, "--quiet"]
    # A constraints file of the user's names other versions.
    environment = {**os.environ, "PIP_CONSTRAINT": os.devnull}
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=environment)
    output = done.stdout + done.stderr
    if done.returncode and "No module named pip" in output:
        raise MissingPackageError(f"{sys.executable} has no pip", hint=f"{sys.executable} -m ensurepip")
    if done.returncode:
        hint = "is the package index reachable? set HTTPS_PROXY or PIP_INDEX_URL" if unreachable(output) else ""
        raise PipetuneError(f"pip could not {arguments[0]} the wheels: {cause_of(output)}", hint=hint or None)


def keep_in_cache(place: Path, make: Callable[[Path], None]) -> Path:
    """A file or folder that is made once; a killed program leaves nothing that looks complete.

    Args:
        place: its path in the cache; the name says what it was made from.
        make: is called with the path to make it at.
    """
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=place.parent) as work:
            made = Path(work, place.name)
            make(made)
            if not place.exists():  # another process may have made it meanwhile
                made.rename(place)
    os.utime(place)
    _delete_unused(place.parent)
    return place


def unpack_wheels(wheels: Iterable[Path], site: Path, is_needed: Callable[[str], bool] = lambda name: True) -> None:
    """Unpack wheels into one folder, with the modes of their files; their scripts and data files are left out.

    Args:
        wheels: the files.
        site: the folder.
        is_needed: is asked about each name in the wheel.
    """
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                if ".data/" in entry.filename or entry.is_dir() or not is_needed(entry.filename):
                    continue
                path = Path(archive.extract(entry, site))
                if mode := entry.external_attr >> 16 & 0o777:
                    path.chmod(mode)


def _delete_unused(cache: Path) -> None:
    for path in cache.iterdir():
        if time.time() - path.stat().st_mtime > MAX_UNUSED_S:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
