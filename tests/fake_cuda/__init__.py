"""Our own stand-in for CUDA: torch's real CUDA code runs on a machine without a GPU.

``LD_PRELOAD`` puts our functions before those of libcudart and cuBLAS, which torch is linked with. Kernels do nothing
but take time, so values that a device computes are meaningless (zeros, or what was there); what is copied is right.
There is no cuDNN (``site/sitecustomize.py`` switches it off), no NCCL, no CUDA graph. ``knobs.h`` documents the
environment variables, ``timeline.h`` how time and copies work.

The dynamic loader reads ``LD_PRELOAD`` when a program starts: a test runs its code in a child process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests import ROOT, fake_nvml
from tests.fake_cuda.fork_server import ForkServer

HERE = Path(__file__).resolve().parent
_LIBRARY = "libfakecuda.so"

#: As the devices are called; ``fake_nvml`` gets the same.
UUIDS = [f"GPU-{n:08x}-0000-0000-0000-{n:012x}" for n in range(8)]

#: Put before a program: ``counted()`` is what the stand-in has counted so far, as a dictionary.
COUNTED = """
import ctypes, json
def counted():
    report = ctypes.CDLL(None).fake_cuda_report
    report.restype = ctypes.c_char_p
    return json.loads(report())
"""


@cache
def why_not() -> str | None:
    """Why it cannot be built or used here; ``None``: it can."""
    if sys.platform != "linux":
        return "LD_PRELOAD is Linux's"
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    version = torch_cuda()
    if version is None:
        return "torch is a build for the CPU"
    if version < (13, 0):
        return f"the stand-in knows the runtime of CUDA 13, torch is built for {version[0]}.{version[1]}"
    if _headers() is None:
        return "NVIDIA's headers are not installed (nvidia-cuda-runtime)"
    return None if shutil.which("g++") and shutil.which("cc") else "there is no compiler (g++)"


def torch_folder() -> Path:
    """Where torch is installed; it is not imported for that."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def torch_cuda() -> tuple[int, int] | None:
    """The version of CUDA that torch is built for; ``None``: a build for the CPU."""
    found = re.search(r"^cuda\b.*= *'(\d+)\.(\d+)", (torch_folder() / "version.py").read_text(), re.MULTILINE)
    return (int(found[1]), int(found[2])) if found else None


def _headers() -> Path | None:
    for header in sorted((torch_folder().parent / "nvidia").glob("*/include/driver_types.h")):
        return header.parent
    return None


def build(folder: Path) -> Path:
    """Compile the libraries into ``folder``, which exists already, and return it.

    Raises:
        subprocess.CalledProcessError: the compiler failed; its messages are on standard error.
    """
    version = torch_cuda()
    assert version is not None, why_not()
    runtime = f"-DCUDA_RUNTIME={1000 * version[0] + 10 * version[1]}"
    includes = [f"-I{HERE / 'include'}", f"-I{_headers()}"]
    warnings = ["-Wall", "-Wextra"]
    sources = [str(path) for path in sorted(HERE.glob("*.cpp"))]
    target = folder / _LIBRARY
    partial = folder / f"{_LIBRARY}.{os.getpid()}"
    flags = ["-std=c++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden"]
    subprocess.run(["g++", *flags, *warnings, *includes, runtime, "-o", str(partial), *sources], check=True)
    driver = [str(HERE / "driver.c"), "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(folder / "libcuda.so.1"), *driver], check=True)
    partial.rename(target)
    return folder


def environment(
    lib_dir: Path, place: Path, *, nvml: str | None = None, nvml_dir: Path | None = None, **knobs: object
) -> dict[str, str]:
    """The whole environment of a child process that shall see the stand-in's devices.

    Args:
        lib_dir: from :func:`build`.
        place: a folder for this child's log of races and for NVML's scenario; exists.
        nvml: a scenario of :mod:`tests.fake_nvml` for the same devices; without one there is no NVML.
        nvml_dir: from :func:`tests.fake_nvml.build`.
        knobs: of ``knobs.h``, without ``FAKE_CUDA_`` and in lower case: ``kernel_us=50``.
    """
    env = dict(os.environ)
    libraries = [str(lib_dir)]
    if nvml is not None:
        assert nvml_dir is not None
        names = "".join(f"uuid@{n} {uuid}\nname@{n} Fake GPU {n}\n" for n, uuid in enumerate(UUIDS))
        env = fake_nvml.environment(nvml_dir, names + nvml, folder=place)
        libraries.append(str(nvml_dir))
    paths = [str(HERE / "site"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **{name: value for name, value in env.items() if name not in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")},
        "LD_PRELOAD": str(lib_dir / _LIBRARY),
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        "PYTHONPATH": os.pathsep.join(paths),
        "FAKE_CUDA_LOG": str(place / "races.log"),
        **{f"FAKE_CUDA_{name.upper()}": str(value) for name, value in knobs.items()},
    }


def races(place: Path) -> list[str]:
    """Buffers that were written or released too early by a child with this ``place``, and by its children."""
    log = place / "races.log"
    return log.read_text().splitlines() if log.exists() else []


def run(program: str, env: dict[str, str], *arguments: str, timeout_s: float = 120) -> Any:
    """What a program prints last, as JSON; ``counted()`` is defined in it.

    Without NVML it runs in a fork of a process that has imported torch.

    Raises:
        AssertionError: it failed; with its standard error.
    """
    argv = [COUNTED + program, *arguments]
    if os.pathsep in env["LD_LIBRARY_PATH"]:
        done = subprocess.run(
            [sys.executable, "-c", *argv],
            env=env, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=ROOT,
        )  # fmt: skip
        code, stdout, stderr = done.returncode, done.stdout, done.stderr
    else:
        folder = Path(env["FAKE_CUDA_LOG"]).parent
        code, stdout, stderr = _fork_server(env["LD_LIBRARY_PATH"]).run(argv, env, folder, timeout_s)
    assert code == 0, stderr
    return json.loads(stdout.splitlines()[-1])


_fork_servers: dict[str, ForkServer] = {}


def _fork_server(lib_dir: str) -> ForkServer:
    if lib_dir not in _fork_servers or not _fork_servers[lib_dir].alive:
        _fork_servers[lib_dir] = ForkServer(environment(Path(lib_dir), Path(lib_dir)), ROOT)
    return _fork_servers[lib_dir]


def run_each(programs: Mapping[str, tuple[str, Mapping[str, object]]], env: dict[str, str]) -> dict[str, Any]:
    """As :func:`run` for several programs, each with knobs of its own."""
    return {
        name: run(program, {**env, **{f"FAKE_CUDA_{knob.upper()}": str(value) for knob, value in knobs.items()}})
        for name, (program, knobs) in programs.items()
    }
