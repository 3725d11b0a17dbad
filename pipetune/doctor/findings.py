"""Findings of the check-up, topic by topic. Pure: facts in, findings out.

Each finding is about one thing alone. What they mean together for a data set and a model, only a sweep can measure.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pipetune.accelerator.parse_device import parse_device
from pipetune.candidates.fit import needs_of
from pipetune.doctor.facts import Preloaded, Ptrace, TorchBuild
from pipetune.install.find import Pillow
from pipetune.machine.host import Host
from pipetune.machine.nvml.gpu_state import GpuState
from pipetune.machine.pressure import RESOURCES
from pipetune.records.sweep import Candidate
from pipetune.registry import DEFAULT_BACKEND
from pipetune.units import format_bytes
from pipetune.version import __version__

OK, NOTE, WARNING, MISSING = "ok", "note", "warning", "missing"

#: What a first sweep tries with worker processes, at the default batch and crop.
_TYPICAL = needs_of(Candidate(backend=DEFAULT_BACKEND, num_workers=2, prefetch_depth=2, batch_size=64), 224)
_TYPICAL_TEXT = "2 workers with batches of 64"
_FEW_FILES, _ENOUGH_FILES = 1024, 65536
#: Without a driver there is most likely no GPU, which is fine. Any other reason may hide one.
_NO_DRIVER = ("no_library", "no_driver")
_TORCH_BUILDS = "https://pytorch.org/get-started/locally/"
_LOCKED = "ptrace_scope 3 can only be changed by a reboot"
_ALLOCATOR_SETTINGS = ("MALLOC_ARENA_MAX", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was checked."""

    topic: str
    name: str
    state: str
    """``ok``; ``note``: worth knowing; ``warning``: costs speed or fails; ``missing``: pipetune works without it."""
    value: str
    hint: str | None = None
    """What it means and the next command or setting to try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendState:
    """Whether a decode backend of the registry is installed on this machine."""

    name: str
    installed: bool
    version: str | None
    """Distribution and version; ``None`` where it is not installed."""
    install: str
    """The command that installs it."""
    why_missing: str | None = None
    """Why it is not installed, as :func:`pipetune.registry.why_missing` says it; ``None`` where it is."""


def judge_software(host: Host, torch: TorchBuild | None, state: GpuState) -> Iterator[Finding]:
    """Findings about versions, and about whether this torch can use a GPU."""
    yield _finding("software", "pipetune", __version__)
    yield _finding("software", "python", f"{host.python}, {sys.executable}")
    if torch is None:
        hint = "every sweep needs it: pip install 'pipetune[torch]'"
        yield _finding("software", "torch", "not installed", MISSING, hint)
    elif torch.platform == "CPU" and state.gpus:
        hint = f"install a build for CUDA: see {_TORCH_BUILDS}"
        yield _finding("software", "torch", f"{torch.version}, built for the CPU: cannot use the GPU", WARNING, hint)
    else:
        built = f", built for {torch.platform}" if torch.platform else ""
        yield _finding("software", "torch", torch.version + built)


def judge_processor(host: Host, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Findings about the cores that are present and those that may be used."""
    yield _finding("cpu", "model", host.cpu_model)
    visible, usable = len(host.cores_affinity), host.cores_usable
    quota = "no CPU quota" if host.cpu_quota_cores is None else f"a CPU quota of {host.cpu_quota_cores:g}"
    value = f"{host.cores_present} present, {visible} after affinity, {quota}: {usable:g} usable"
    wanted = environment.get("OMP_NUM_THREADS", "")
    outermost = wanted.partition(",")[0].strip()  # OpenMP takes a list, one number per nesting level
    threads = int(outermost) if outermost.isdecimal() and int(outermost) else visible
    who = f"OMP_NUM_THREADS is {wanted}" if wanted else f"libraries that count cores start {visible} threads"
    right = f"set OMP_NUM_THREADS={max(1, math.floor(usable))} in the training job"
    yield _checked(threads > math.ceil(usable), "cpu", "cores", value, f"{who} for {usable:g} usable cores: {right}")


def judge_memory(host: Host, open_files: tuple[int | None, int | None]) -> Iterator[Finding]:
    """Findings about memory, shared memory and open files, against what a small candidate needs.

    Args:
        host: the machine.
        open_files: soft and hard limit; ``None``: unlimited.
    """
    limit = "no limit" if host.memory_limit_bytes is None else f"limited to {format_bytes(host.memory_limit_bytes)}"
    available, free = host.memory_available_bytes, host.shm_free_bytes
    value = f"{_size(host.memory_total_bytes)}, {limit}, {_size(available)} available"
    hint = f"{_TYPICAL_TEXT} need {format_bytes(_TYPICAL.memory_bytes)}: end other programs, or raise the limit"
    yield _checked(available is not None and available < _TYPICAL.memory_bytes, "memory", "memory", value, hint)

    if free is None:
        hint = "loader workers pass their batches through it: mount -t tmpfs tmpfs /dev/shm"
        yield _finding("memory", "/dev/shm", "not mounted", WARNING, hint)
    else:
        used = None if host.shm_total_bytes is None else max(0, host.shm_total_bytes - free)
        value = f"{_size(host.shm_total_bytes)}, {_size(used)} used, {format_bytes(free)} free"
        hint = (
            f"{_TYPICAL_TEXT} need {format_bytes(_TYPICAL.shm_bytes)}: mount -o remount,size=8g /dev/shm, "
            "docker run --shm-size=8g, or --ipc=host"
        )
        yield _checked(free < _TYPICAL.shm_bytes, "memory", "/dev/shm", value, hint)

    soft, hard = open_files
    value = _count(soft) if soft == hard else f"{_count(soft)}, may be raised to {_count(hard)}"
    raised = _ENOUGH_FILES if hard is None else min(hard, _ENOUGH_FILES)
    way = f"ulimit -n {raised}" if raised >= _FEW_FILES else f"docker run --ulimit nofile={_ENOUGH_FILES}"
    hint = f"each batch in flight takes open files: {way}"
    yield _checked(soft is not None and soft < _FEW_FILES, "memory", "open files", value, hint)


def judge_gpus(
    state: GpuState, torch: TorchBuild | None, *, amd: bool = False, intel: bool = False, nvidia: bool = False
) -> Iterator[Finding]:
    """Findings about the GPUs, and which accelerator ``--device auto`` means.

    Args:
        state: by NVML.
        torch: as it is installed.
        amd: AMD's compute driver is loaded.
        intel: there is a GPU of Intel's.
        nvidia: there is an NVIDIA GPU, with or without its driver.
    """
    if state.problem is not None:
        absent = state.problem.reason in _NO_DRIVER
        # Where the GPU is of another make, NVIDIA's driver is nothing to install.
        hint = None if absent and (amd or intel) and not nvidia else state.problem.hint
        yield _finding("gpu", "NVML", state.problem.message, NOTE if absent else WARNING, hint)
    elif not state.gpus:
        yield _finding("gpu", "NVML", "the driver shows no GPU", NOTE, "in a container: docker run --gpus all")
    else:
        yield _finding("gpu", "driver", state.driver or "version unknown")
    for gpu in state.gpus:
        memory = "" if gpu.memory_bytes is None else f", {format_bytes(gpu.memory_bytes)}"
        value = gpu.problem or f"{gpu.name or 'unknown'}{memory}"
        yield _checked(gpu.problem is not None, "gpu", f"GPU {gpu.index}", value, "run nvidia-smi for details")
    platform = (torch and torch.platform) or ""
    if not state.gpus:  # a processor that has a GPU of its own is usual beside them
        yield from _judge_others(torch, amd and not platform.startswith("ROCm"), intel)
    if state.gpus and torch is not None and not platform.startswith(("CPU", "ROCm", "XPU")):
        yield _finding("gpu", "--device auto", "cuda:0, if torch can use it")
    elif amd and platform.startswith("ROCm"):
        hint = "pipetune is written for AMD's GPUs, and was not run on one"
        yield _finding("gpu", "--device auto", "cuda:0 through ROCm, if torch can use it", NOTE, hint)
    else:
        hint = "loaders are measured for real, the accelerator is emulated; set its rate: --device emulated:RATE"
        yield _finding("gpu", "--device auto", f"will be {parse_device('auto', 0).name}", NOTE, hint)


def _judge_others(torch: TorchBuild | None, amd: bool, intel: bool) -> Iterator[Finding]:
    """Findings about an AMD GPU that this torch is not built for, and about one of Intel's."""
    lacking = "torch is not installed" if torch is None else "this torch is not built for"
    if amd:
        value = f"there is one (/dev/kfd), and {lacking}{' ROCm' if torch else ''}"
        yield _finding("gpu", "AMD GPU", value, WARNING, f"install a torch for ROCm: see {_TORCH_BUILDS}")
    if intel and torch is not None and (torch.platform or "").startswith("XPU"):
        value = "there is one, which --device auto does not choose, but --device xpu:0 does"
        yield _finding("gpu", "Intel GPU", value, NOTE, "pipetune is written for it, and was not run on one")
    elif intel:
        value = f"there is one, maybe the processor's own, and {lacking}{' XPU' if torch else ''}"
        hint = f"to use it, install a torch for XPU: see {_TORCH_BUILDS}; then name it: --device xpu:0"
        yield _finding("gpu", "Intel GPU", value, NOTE, hint)


def judge_signals(pressures: Collection[str], schedstat: bool, ptrace: Ptrace, *, py_spy: bool) -> Iterator[Finding]:
    """Findings about what can be read from processes and the kernel's counters while a candidate runs."""
    lacking = " and ".join(name for name in RESOURCES if name not in pressures)
    value = f"no {lacking}" if lacking else ", ".join(pressures)
    hint = "without it no wait for storage can be proven: boot with psi=1, and let containers see /proc/pressure"
    yield _checked(bool(lacking), "signals", "pressure (PSI)", value, hint, MISSING)

    hint = "without it no wait for a CPU core is seen: use a kernel with CONFIG_SCHED_INFO, outside of sandboxes"
    value = "readable (schedstat)" if schedstat else "not readable (schedstat)"
    yield _checked(not schedstat, "signals", "waits for a core", value, hint, MISSING)

    scope = "not restricted" if ptrace.scope is None else f"ptrace_scope {ptrace.scope}"
    why = f"{scope}, {'with' if ptrace.capable else 'without'} CAP_SYS_PTRACE"
    value = f"running jobs can{'' if ptrace.allowed else 'not'} be attached to ({why})"
    way = "sudo sysctl kernel.yama.ptrace_scope=0, or docker run --cap-add SYS_PTRACE"
    if ptrace.scope == 1:  # the job then names its watcher itself, which the other scopes do not accept
        way = f"start the job with 'pipetune watch -- ...', which needs no right, or {way}"
    ways = [] if ptrace.allowed else [_LOCKED if ptrace.scope == 3 else way]
    if not py_spy:
        value = f"py-spy is not installed; {value}"
        ways.insert(0, "pip install 'pipetune[stacks]'")
    hint = f"needed only to sample their Python stacks: {'; '.join(ways)}"
    yield _checked(bool(ways), "signals", "Python stacks", value, hint, NOTE if py_spy else MISSING)


def judge_allocator(preloaded: Preloaded | None, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Findings about the malloc implementation of the loader workers."""
    if preloaded is None:
        yield _finding("allocator", "malloc", "glibc malloc")
    elif preloaded.present:
        yield _finding("allocator", "malloc", f"{preloaded.name}, {preloaded.library}")
    else:
        value = f"glibc malloc: LD_PRELOAD names {preloaded.library}, which does not exist"
        yield _finding("allocator", "malloc", value, WARNING, f"install {preloaded.name}, or unset LD_PRELOAD")
    for name in _ALLOCATOR_SETTINGS:
        if environment.get(name):
            yield _finding("allocator", name, environment[name], NOTE)


def judge_backends(backends: Iterable[BackendState], pillow: Pillow | None) -> Iterator[Finding]:
    """Findings about the decode backends, and about which Pillow ``import PIL`` gives."""
    for backend in backends:
        value = backend.version or (backend.why_missing or "not installed").removeprefix("is ")
        yield _checked(not backend.installed, "backends", backend.name, value, backend.install, MISSING)
    value = pillow.name if pillow is not None else "not installed"
    yield _checked(pillow is None, "backends", "PIL is", value, "pip install pillow")


def _finding(topic: str, name: str, value: str, state: str = OK, hint: str | None = None) -> Finding:
    return Finding(topic=topic, name=name, state=state, value=value, hint=hint)


def _checked(wrong: bool, topic: str, name: str, value: str, hint: str, state: str = WARNING) -> Finding:
    """An ``ok`` finding; where something is wrong one of the given state, with the hint."""
    return _finding(topic, name, value, state, hint) if wrong else _finding(topic, name, value)


def _size(count: int | None) -> str:
    return "unknown" if count is None else format_bytes(count)


def _count(limit: int | None) -> str:
    return "unlimited" if limit is None else str(limit)
