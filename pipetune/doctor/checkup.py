"""The check-up: gathers the facts about this machine and turns them into findings. Prints nothing.

Nothing is measured, and neither torch nor a decoder is imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipetune.accelerator.cuda_devices import amd_driver, intel_gpu
from pipetune.doctor import facts, findings
from pipetune.doctor.cuda import judge_cuda
from pipetune.doctor.findings import BackendState, Finding
from pipetune.install.find import importable_pillow
from pipetune.machine.host import Host, describe_host
from pipetune.machine.nvml.gpu import GpuInfo
from pipetune.machine.nvml.gpu_state import ask_gpus
from pipetune.records.sweep import SCHEMA, to_dict
from pipetune.registry import BACKENDS, Backend, installed_version, why_missing
from pipetune.sampler.stacks.dump import find_py_spy
from pipetune.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """The result of a check-up."""

    host: Host
    gpus: tuple[GpuInfo, ...]
    backends: tuple[BackendState, ...]
    findings: tuple[Finding, ...]


def examine(
    host: Host | None = None,
    *,
    proc: str | Path = "/proc",
    packages: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Checkup:
    """Check this machine. Never fails: what cannot be read is a finding.

    Args:
        host: the machine; default: as :func:`pipetune.machine.host.describe_host` reads it.
        proc: where the proc file system is.
        packages: folders that are searched for torch; default: ``sys.path``.
        environment: default: this process's own.
    """
    variables = os.environ if environment is None else environment
    host = host or describe_host()
    torch = facts.find_torch(packages)
    gpus = ask_gpus()
    backends = describe_backends(gpus.cuda)
    found = (
        *findings.judge_software(host, torch, gpus),
        *findings.judge_processor(host, variables),
        *findings.judge_memory(host, facts.open_file_limits()),
        *findings.judge_gpus(gpus, torch, amd=amd_driver(), intel=intel_gpu(), nvidia=facts.nvidia_card()),
        *judge_cuda(gpus, torch, variables),
        *findings.judge_signals(
            facts.readable_pressures(proc),
            facts.schedstat_readable(proc),
            facts.describe_ptrace(proc),
            py_spy=find_py_spy() is not None,
        ),
        *findings.judge_allocator(facts.preloaded_allocator(variables), variables),
        *findings.judge_backends(backends, importable_pillow()),
    )
    return Checkup(host=host, gpus=gpus.gpus, backends=backends, findings=found)


def describe_backends(cuda: int | None = None) -> tuple[BackendState, ...]:
    """Every backend of the registry, installed or not.

    Args:
        cuda: the newest CUDA that the driver runs; ``None``: not known, and any will do.
    """
    versions = {name: installed_version(backend) for name, backend in BACKENDS.items()}
    return tuple(
        BackendState(
            name=name, installed=version is not None, version=version, install=_command_for(BACKENDS[name], cuda),
            why_missing=why_missing(BACKENDS[name]) if version is None else None,
        )
        for name, version in versions.items()
    )  # fmt: skip


def _command_for(backend: Backend, cuda: int | None) -> str:
    """What installs the backend; of the packages that are built for one CUDA each, the one for this driver."""
    return backend.install.replace("cuda130", "cuda120") if cuda is not None and cuda < 13000 else backend.install


def to_json(checkup: Checkup) -> dict[str, Any]:
    """The check-up as the object that ``--json`` writes."""
    return {"schema": SCHEMA, "kind": "doctor", "pipetune": __version__, **to_dict(checkup)}
