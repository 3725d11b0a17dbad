"""An environment with the packages of the rented machine's image, and nothing else: ``.venv-rehearse``.

torch is that image's and takes half a gigabyte. NVIDIA's libraries would take two more, so those of the environment
that runs this are linked; their versions differ a little, which the stand-in CUDA runtime does not notice.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.pack.__main__ import require_programs
from benchmarks.gpu.pack.dali import PACKAGES
from benchmarks.gpu.pack.machine import PYTHON
from benchmarks.gpu.pack.wheels import CARRIED, download_wheels, find_cache
from pipetune.errors import PipetuneError
from tests import ROOT, fake_cuda

PLACE = ROOT / ".venv-rehearse"
IMAGE = ROOT / "benchmarks" / "gpu" / "image.txt"
_CONSTRAINTS = ROOT / "constraints.txt"
_VERSION = ".".join(map(str, PYTHON))
#: Folders of site-packages/nvidia that torch loads libraries from; DALI and nvImageCodec are not in the image.
_LINKED = ("cudnn", "cusparselt", "nccl", "nvshmem")
_TOOLKIT = "cu13"
#: DALI brings it; torchvision has a copy of its own.
_NOT_IN_IMAGE = "libnvjpeg."


class CannotRehearse(Exception):
    """Something is missing that no test can bring; the text says what."""


def make_environment(place: Path) -> Path:
    """Make the environment, unless it is there already; returns its Python.

    Raises:
        CannotRehearse: there is no Python of that version, or pip could not get the packages.
    """
    interpreter = place / "bin" / "python"
    made_from = hashlib.sha256(IMAGE.read_bytes() + _CONSTRAINTS.read_bytes()).hexdigest()
    mark = place / "made-from"
    if mark.exists() and mark.read_text() == made_from:
        return interpreter
    nvidia = fake_cuda.torch_folder().parent / "nvidia"
    if not (nvidia / _TOOLKIT).is_dir():
        raise CannotRehearse("this environment's torch has no CUDA 13 libraries to borrow: pip install 'torch>=2.11'")
    base = find_python()
    print(f"making {place.name} with {base}: torch is downloaded", flush=True)
    shutil.rmtree(place, ignore_errors=True)
    _run([str(base), "-m", "venv", str(place)])
    constraints = place / "constraints.txt"
    constraints.write_text(read_constraints(IMAGE.read_text(), _CONSTRAINTS.read_text()))
    _run(
        [
            str(interpreter),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary=:all:",
            "--requirement",
            str(IMAGE),
            "--constraint",
            str(constraints),
        ]
    )
    link_libraries(nvidia, next(place.glob("lib/python*/site-packages")) / "nvidia")
    mark.write_text(made_from)
    return interpreter


def pack() -> bool:
    """Pack the parts; returns whether pack.sh could, which says why where it could not.

    Raises:
        CannotRehearse: a program is missing, or pip could not get the wheels.
    """
    try:
        require_programs()
        for packages in (CARRIED, PACKAGES):
            download_wheels(packages, find_cache())
    except PipetuneError as error:
        raise CannotRehearse(str(error)) from error
    packed = subprocess.run(
        ["bash", "benchmarks/gpu/pack.sh"], cwd=ROOT, env={**os.environ, "PYTHON": sys.executable}, check=False
    )
    return packed.returncode == 0


def find_python() -> Path:
    """An interpreter of the image's version.

    Raises:
        CannotRehearse: there is none.
    """
    named = shutil.which(f"python{_VERSION}")
    folder = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for path in [*([Path(named)] if named else []), *sorted(folder.glob(f"{_VERSION}.*/bin/python"))]:
        # A shim of pyenv's is there for versions that are installed and not chosen: it does not start.
        program = f"import sys, venv; sys.exit(sys.version_info[:2] != {PYTHON})"
        if subprocess.run([str(path), "-c", program], capture_output=True, check=False).returncode == 0:
            return path
    raise CannotRehearse(
        f"there is no python{_VERSION}: apt-get install python{_VERSION}-venv, or pyenv install {_VERSION}"
    )


def read_constraints(image: str, constraints: str) -> str:
    """The lines of constraints.txt but those of packages that the image has in another version."""
    others = {line.partition("==")[0].lower() for line in image.splitlines() if "==" in line}
    return "".join(line for line in constraints.splitlines(True) if re.split("==", line)[0].lower() not in others)


def link_libraries(nvidia: Path, target: Path) -> None:
    """Link NVIDIA's libraries and headers that torch needs into another environment's ``nvidia``."""
    (target / _TOOLKIT / "lib").mkdir(parents=True)
    for name in _LINKED:
        (target / name).symlink_to(nvidia / name)
    for path in (nvidia / _TOOLKIT).iterdir():
        if path.name != "lib":
            (target / _TOOLKIT / path.name).symlink_to(path)
    for path in (nvidia / _TOOLKIT / "lib").iterdir():
        if not path.name.startswith(_NOT_IN_IMAGE):
            (target / _TOOLKIT / "lib" / path.name).symlink_to(path)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        from pipetune.install.pip import cause_of

        raise CannotRehearse(f"{' '.join(command[1:4])} failed: {cause_of(done.stdout + done.stderr)}")
