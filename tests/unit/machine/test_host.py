from __future__ import annotations

import math
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pipetune.machine.host import (
    Host,
    default_worker_counts,
    describe_host,
    parse_cpu_model,
    relevant_versions,
    usable_cores,
    within_quota,
)
from tests import ROOT

X86 = "processor\t: 0\nmodel name\t: AMD EPYC 7R13\nflags\t\t: fpu\n\nprocessor\t: 1\nmodel name\t: Other\n"
ARM = "processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"
MEMINFO = (
    "MemTotal: 16384 kB\nMemFree: 1024 kB\nMemAvailable: {available_kb} kB\nBuffers: 0 kB\nCached: 0 kB\nActive: 0 kB\n"
    "Inactive: 0 kB\nShmem: 0 kB\nHugePages_Total: 7\n"
)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A quota of 2.5 cores, and a limit on memory."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))
    for path, text in {
        "proc/sys/kernel/hostname": "node7\n",
        "proc/sys/kernel/osrelease": "6.1.0-test\n",
        "proc/cpuinfo": X86,
        "proc/meminfo": MEMINFO.format(available_kb=8192),
        "proc/self/cgroup": "0::/box\n",
        "proc/self/mountinfo": "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "sys/fs/cgroup/box/cpu.max": "250000 100000\n",
        "sys/fs/cgroup/box/memory.max": "10485760\n",
        "sys/fs/cgroup/box/memory.current": "4194304\n",
        "site/numpy-2.0.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: numpy\nVersion: 2.0.0\n",
    }.items():
        write(tmp_path / path, text)
    return tmp_path


def describe(machine: Path, **changes: object) -> Host:
    options: dict[str, object] = {
        "proc": machine / "proc", "root": machine, "shm": machine, "affinity": {5, 1, 3}, "packages": [machine / "site"]
    }  # fmt: skip
    return describe_host(**(options | changes))  # type: ignore[arg-type]


def test_describe_host(machine: Path) -> None:
    host = describe(machine)
    space = os.statvfs(machine)
    assert host.hostname == "node7"
    assert host.kernel == "6.1.0-test"
    assert host.cpu_model == "AMD EPYC 7R13"
    assert host.cores_affinity == (1, 3, 5)
    assert host.cpu_quota_cores == 2.5
    assert host.cores_usable == 2.5
    assert host.memory_total_bytes == 16 * 2**20
    assert host.memory_limit_bytes == 10 * 2**20
    assert host.memory_available_bytes == 6 * 2**20
    assert host.shm_total_bytes == space.f_blocks * space.f_frsize
    assert host.shm_free_bytes is not None
    assert host.shm_free_bytes <= host.shm_total_bytes
    assert host.versions == {"numpy": "2.0.0"}
    assert host.python == ".".join(map(str, sys.version_info[:3]))


def test_affinity_below_the_quota_decides(machine: Path) -> None:
    assert describe(machine, affinity={4}).cores_usable == 1.0
    assert usable_cores(proc=machine / "proc", root=machine, affinity={4}) == 1.0


def test_available_memory_is_the_machines_where_that_is_less(machine: Path) -> None:
    write(machine / "proc/meminfo", MEMINFO.format(available_kb=1024))
    assert describe(machine).memory_available_bytes == 2**20


def test_an_empty_machine_is_described_as_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = tmp_path / "nothing"
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(nothing))
    host = describe_host(proc=nothing, root=nothing, shm=nothing, affinity={0}, packages=[str(nothing)])
    assert (host.hostname, host.kernel, host.cpu_model) == ("unknown",) * 3
    assert host.cores_present == os.cpu_count()
    assert host.cores_usable == 1.0
    assert host.cpu_quota_cores is None
    assert (host.memory_total_bytes, host.memory_limit_bytes, host.memory_available_bytes) == (None,) * 3
    assert (host.shm_total_bytes, host.shm_free_bytes) == (None, None)
    assert host.versions == {}


def test_this_machine() -> None:
    host = describe_host()
    assert host.cores_affinity == tuple(sorted(os.sched_getaffinity(0)))
    assert 0 < host.cores_usable <= len(host.cores_affinity)
    assert host.cores_usable == usable_cores()
    assert host.kernel == os.uname().release
    assert host.cores_present == len(re.findall(r"^cpu[0-9]", Path("/proc/stat").read_text(), re.MULTILINE))
    meminfo = " ".join(Path("/proc/meminfo").read_text().split())
    assert f"MemTotal: {(host.memory_total_bytes or 0) // 1024} kB" in meminfo
    assert 0 < (host.memory_available_bytes or 0) <= (host.memory_total_bytes or 0)
    assert host.versions.keys() >= {"numpy", "pillow", "nvidia-ml-py"}


@pytest.mark.parametrize(("cores", "quota", "usable"), [(4, None, 4.0), (4, 2.5, 2.5), (4, 16.0, 4.0)])
def test_cores_within_a_quota(cores: int, quota: float | None, usable: float) -> None:
    assert within_quota(cores, quota) == usable


def test_usable_cores_follows_the_real_affinity() -> None:
    core = min(os.sched_getaffinity(0))
    program = (
        f"import os; os.sched_setaffinity(0, [{core}]); import pipetune.machine.host as h; print(h.usable_cores())"
    )
    child = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert 0 < float(child.stdout) <= 1.0


@pytest.mark.parametrize(("limit", "expected"), [(4096, 4096), (resource.RLIM_INFINITY, None)])
def test_open_files_limit(machine: Path, monkeypatch: pytest.MonkeyPatch, limit: int, expected: int | None) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    assert describe(machine).open_files_limit == expected


@pytest.mark.parametrize(
    ("cores", "counts"),
    [
        (0.5, (0, 1, 2)),
        (1, (0, 1, 2)),
        (1.5, (0, 1, 2, 4)),
        (2, (0, 1, 2, 4)),
        (3, (0, 1, 2, 3, 4, 6)),
        (4, (0, 1, 2, 4, 8)),
        (5, (0, 1, 2, 4, 5)),
        (6, (0, 1, 2, 4, 6)),
        (8, (0, 1, 2, 4, 8)),
        (12, (0, 1, 2, 4, 8, 12)),
        (96, (0, 1, 2, 4, 8, 16, 32, 64, 96)),
    ],
)
def test_default_worker_counts(cores: float, counts: tuple[int, ...]) -> None:
    assert default_worker_counts(cores) == counts


@pytest.mark.parametrize("cores", [0, -1, math.nan, math.inf])
def test_default_worker_counts_of_no_cores(cores: float) -> None:
    with pytest.raises(ValueError, match=f"got {cores}"):
        default_worker_counts(cores)


def test_only_relevant_versions_the_first_of_a_name_and_no_broken_ones(tmp_path: Path) -> None:
    names = {"first": ["Pillow-SIMD 9.5", "opencv_python 4.10", "nvidia-dali-cuda130 2.4", "torch 2.8", "requests 2"],
             "second": ["torch 1.0", "opencv-contrib-python 4.9"]}  # fmt: skip
    for folder, distributions in names.items():
        for distribution in distributions:
            name, version = distribution.split()
            write(tmp_path / folder / f"{name}-{version}.dist-info/METADATA", f"Name: {name}\nVersion: {version}\n")
    (tmp_path / "first" / "numpy-1.0.dist-info").mkdir()
    assert relevant_versions([str(tmp_path / folder) for folder in names]) == {
        "nvidia-dali-cuda130": "2.4",
        "opencv-contrib-python": "4.9",
        "opencv-python": "4.10",
        "pillow-simd": "9.5",
        "torch": "2.8",
    }


def test_describing_the_host_imports_none_of_the_packages_it_names() -> None:
    program = (
        "import sys; from pipetune.machine.host import describe_host; describe_host();"
        "heavy = {'torch', 'torchvision', 'cv2', 'nvidia', 'PIL', 'numpy', 'pynvml'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    child = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert child.stdout == "[]\n"


@pytest.mark.parametrize(
    ("cpuinfo", "model"),
    [(X86, "AMD EPYC 7R13"), (ARM, "Arm implementer 0x41 part 0xd0c"), ("", None), ("model name\t:\n", None)],
)
def test_parse_cpu_model(cpuinfo: str, model: str | None) -> None:
    assert parse_cpu_model(cpuinfo) == model
