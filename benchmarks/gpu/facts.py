"""Stage ``facts``: what is measured on. GPU, driver, CUDA, torch, decode backends; the machine and its limits.

Everything that a later result may turn out to depend on: whether persistence mode is on, how large /dev/shm is, which
libraries and compilers there are, whether processes have numbers of an outer namespace.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import resource
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.commands import NotDone, print_json, report, run_program
from benchmarks.gpu.leasing.findings import Findings
from pipetune.registry import BACKENDS, installed_version

_LIMIT_S = 4.0
_COMMANDS: dict[str, tuple[str, ...]] = {
    "nvidia-smi -L": ("nvidia-smi", "-L"),
    "nvidia-smi -q": ("nvidia-smi", "-q"),
    "nvidia-smi topo -m": ("nvidia-smi", "topo", "-m"),
    "lscpu": ("lscpu",),
    "df": ("df", "-h", "/dev/shm", "/tmp", "."),
}
_LIBRARIES = ("libnvcuvid", "libnvidia-ml", "libcuda.so", "libnvjpeg", "libjpeg", "libturbojpeg")
_PROGRAMS = ("cc", "gcc", "nvcc", "nvidia-smi", "py-spy", "ncu", "nsys")
_MEMINFO = ("MemTotal", "MemFree", "MemAvailable", "Shmem", "SwapTotal", "HugePages_Total")


def run_stage(findings: Findings) -> None:
    """Store the facts, the most important first."""
    if findings.is_cuda:
        try:
            run_program(
                findings,
                __name__,
                findings.device,
                limit_s=findings.remaining_s,
                on_line=lambda found: findings.keep("gpu", found),
            )
        except NotDone as error:
            report(findings, "what torch and NVML say of the GPU", error)
        if (gpu := findings.numbers.get("gpu", {})).get("nvml_problem"):
            findings.report_problem(f"NVML: {gpu['nvml_problem']}")
        findings.say(", ".join(f"{key} {gpu.get(key)}" for key in ("name", "driver", "torch", "cuda", "cudnn")))
    findings.keep("backends", {backend.name: installed_version(backend) for backend in BACKENDS.values()})
    findings.keep("machine", describe_machine())
    findings.keep("programs", {name: shutil.which(name) for name in _PROGRAMS})
    findings.keep(
        "jpeglib_h", any(Path(folder, "jpeglib.h").exists() for folder in ("/usr/include", "/usr/local/include"))
    )
    findings.keep("packages", {item.metadata["Name"]: item.version for item in importlib.metadata.distributions()})
    for name, command in _COMMANDS.items():
        findings.keep(name, ask_program(command))
    libraries = ask_program(("ldconfig", "-p"))
    findings.keep("libraries", [line for line in libraries if any(name in line for name in _LIBRARIES)])
    backends = [name for name, version in findings.numbers["backends"].items() if version]
    findings.say(f"{os.cpu_count()} cores, {findings.numbers['machine']['MemTotal']}; decoders: {', '.join(backends)}")


def describe_machine() -> dict[str, Any]:
    """Memory, shared memory, limits, namespaces and NUMA nodes of GPUs."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)),
    }
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in _MEMINFO:
            found[name] = value.strip()
    for folder in ("/dev/shm", "/tmp"):
        usage = shutil.disk_usage(folder)
        found[f"{folder[1:].replace('/', '_')}_bytes"] = {"total": usage.total, "free": usage.free}
    for name in ("MEMLOCK", "NOFILE", "NPROC", "STACK"):
        found[f"limit_{name.lower()}"] = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]
    status = Path("/proc/self/status").read_text().splitlines()
    found["pid_namespaces"] = next((len(line.split()) - 1 for line in status if line.startswith("NSpid:")), None)
    found["gpu_numa_nodes"] = {
        node.parent.name: node.read_text().strip()
        for node in Path("/sys/bus/pci/devices").glob("*/numa_node")
        if (vendor := node.with_name("vendor")).exists() and vendor.read_text().strip() == "0x10de"
    }
    return found


def ask_program(command: Sequence[str]) -> list[str]:
    """The lines that a program prints, or why it does not."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_LIMIT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"{type(error).__name__}: {error}"]
    return (done.stdout + done.stderr).splitlines()


def describe_gpu(device: str) -> dict[str, Any]:
    """The device as torch and NVML see it; imports torch."""
    import torch

    from pipetune.machine.nvml.gpu import NvmlUnavailable, open_gpu

    properties = torch.cuda.get_device_properties(device)
    found: dict[str, Any] = {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "devices": torch.cuda.device_count(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "driver": None,
        "nvml_problem": None,
    }
    try:
        gpu = open_gpu(uuid=str(properties.uuid))
        found |= {"driver": gpu.driver_version, "driver_cuda": gpu.cuda_version}
        gpu.close()
    except NvmlUnavailable as error:
        found["nvml_problem"] = str(error)
    return found


if __name__ == "__main__":
    import sys

    print_json(**describe_gpu(sys.argv[1]))
