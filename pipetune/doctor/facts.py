"""Facts that the host's description lacks: limits, kernel counters, rights, an allocator, and the build of torch.

torch is not imported: a file of the package says what it was built for. Sources: ld.so(8), ptrace(2) with the kernel's
LSM/Yama, proc_pid_status(5), the kernel's accounting/psi and scheduler/sched-stats.

Why not psutil: it knows neither pressure, Yama's ptrace_scope nor a process's capabilities.
"""

from __future__ import annotations

import contextlib
import glob
import importlib.metadata
import os
import re
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipetune.machine.pressure import RESOURCES, parse_pressure_some
from pipetune.machine.proc import parse_sched_stat, read_once

_CAP_SYS_PTRACE = 19
_ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc")
#: Of PCI: NVIDIA's number, and the first digits of the class "display controller".
_NVIDIA, _DISPLAY = "0x10de", "0x03"
#: ``cuda: Optional[str] = '13.0'`` in torch/version.py; without the annotation in older releases.
_BUILT_FOR = re.compile(r"""^(cuda|hip|xpu)\b[^=\n]*=\s*(?:None|["']([^"'\n]+)["'])\s*$""", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ptrace:
    """Whether this process may read the memory of other processes of the same user."""

    scope: int | None
    """Yama's ``ptrace_scope``: 0 any process, 1 only descendants, 2 with the capability, 3 none; ``None``: no Yama."""
    capable: bool
    """``CAP_SYS_PTRACE`` is in effect."""

    @property
    def allowed(self) -> bool:
        """Processes that this one did not start can be attached to."""
        return not self.scope or (self.scope < 3 and self.capable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preloaded:
    """A malloc implementation that replaces the C library's, as ``LD_PRELOAD`` names it."""

    name: str
    library: str
    """Path or bare name of the library."""
    present: bool
    """The file exists; a bare name, which the dynamic linker searches for, is taken to exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchBuild:
    """The installed torch, from its files."""

    version: str
    platform: str | None
    """``CUDA 13.0``, ``ROCm 6.4``, ``XPU 20250301`` or ``CPU``; ``None``: its files do not say."""


def open_file_limits() -> tuple[int | None, int | None]:
    """Soft and hard limit of open files; ``None``: unlimited."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        None if soft == resource.RLIM_INFINITY else soft,
        None if hard == resource.RLIM_INFINITY else hard,
    )


def readable_pressures(proc: str | Path = "/proc") -> tuple[str, ...]:
    """The names in :data:`RESOURCES` whose files can be read; with ``psi=0`` they exist, and reading them fails."""
    return tuple(
        name for name in RESOURCES if parse_pressure_some(read_once(f"{proc}/pressure/{name}") or b"") is not None
    )


def schedstat_readable(proc: str | Path = "/proc") -> bool:
    """Whether the kernel counts how long a process waits for a core."""
    try:
        parse_sched_stat(read_once(f"{proc}/self/schedstat") or b"")
    except ValueError:
        return False
    return True


def describe_ptrace(proc: str | Path = "/proc") -> Ptrace:
    """Yama's setting and this process's capability. A seccomp filter can forbid ptrace nevertheless."""
    scope = (read_once(f"{proc}/sys/kernel/yama/ptrace_scope") or b"").strip()
    status = (read_once(f"{proc}/self/status") or b"").decode(errors="replace")
    effective = re.search(r"^CapEff:\s*([0-9a-fA-F]+)$", status, re.MULTILINE)
    return Ptrace(
        scope=int(scope) if scope.isdigit() else None,
        capable=effective is not None and bool(int(effective[1], 16) >> _CAP_SYS_PTRACE & 1),
    )


def preloaded_allocator(environment: Mapping[str, str]) -> Preloaded | None:
    """The first known allocator in ``LD_PRELOAD``; ``None``: the C library's own is used."""
    for library in re.split(r"[:\s]+", environment.get("LD_PRELOAD", "")):
        for name in _ALLOCATORS:
            if name in library.rpartition("/")[2]:
                return Preloaded(name=name, library=library, present=_is_there(library))
    return None


def _is_there(library: str) -> bool:
    return "/" not in library or os.path.exists(library)  # Path.exists raises where a folder may not be entered


def nvidia_card(sys_folder: str | Path = "/sys") -> bool:
    """Whether there is an NVIDIA GPU on the PCI bus, with or without its driver."""
    for device in glob.iglob(f"{sys_folder}/bus/pci/devices/*"):
        vendor, kind = ((read_once(f"{device}/{name}") or b"").decode(errors="replace") for name in ("vendor", "class"))
        if vendor.strip() == _NVIDIA and kind.startswith(_DISPLAY):
            return True
    return False


def find_torch(packages: Sequence[str] | None = None) -> TorchBuild | None:
    """The torch that ``import torch`` would give; ``None``: not installed.

    Args:
        packages: folders that are searched for installed distributions; default: ``sys.path``.
    """
    path = list(sys.path if packages is None else packages)
    found = next(iter(importlib.metadata.distributions(name="torch", path=path)), None)
    # An interrupted installation leaves a folder whose metadata has no version.
    if found is None or "Version" not in found.metadata:
        return None
    text = ""
    with contextlib.suppress(OSError):
        text = Path(str(found.locate_file("torch/version.py"))).read_text(encoding="utf-8", errors="replace")
    stated = re.search(r"""^__version__\s*=\s*["']([^"']+)""", text, re.MULTILINE)
    # The metadata of the wheels on PyPI leaves out "+cu130", which the file has.
    version = stated[1] if stated else found.version
    return TorchBuild(version=version, platform=_platform(text, version))


def _platform(text: str, version: str) -> str | None:
    built_for = {kind: number for kind, number in _BUILT_FOR.findall(text)}
    if built_for.get("cuda"):
        return f"CUDA {built_for['cuda']}"
    if built_for.get("hip"):
        return f"ROCm {built_for['hip']}"
    if built_for.get("xpu"):
        return f"XPU {built_for['xpu']}"
    if "cuda" in built_for or "+cpu" in version:
        return "CPU"
    local = re.search(r"\+cu(\d+)(\d)\b", version)
    return f"CUDA {local[1]}.{local[2]}" if local else None
