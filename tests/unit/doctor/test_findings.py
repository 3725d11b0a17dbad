from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from pipetune.candidates.fit import needs_of
from pipetune.doctor import findings
from pipetune.doctor.facts import Preloaded, Ptrace, TorchBuild
from pipetune.doctor.findings import BackendState, Finding
from pipetune.install.find import Pillow
from pipetune.machine.host import Host
from pipetune.machine.nvml.gpu import GpuInfo, NvmlUnavailable
from pipetune.machine.nvml.gpu_state import GpuState
from pipetune.machine.pressure import RESOURCES
from pipetune.records.sweep import Candidate

NEEDS = needs_of(Candidate(backend="pillow", num_workers=2, prefetch_depth=2, batch_size=64), 224)
HOST = Host(
    hostname="node7", kernel="6.1", cpu_model="AMD EPYC 7R13", cores_present=64, cores_affinity=tuple(range(16)),
    cpu_quota_cores=None, cores_usable=16.0, memory_total_bytes=2**38, memory_limit_bytes=2**36,
    memory_available_bytes=2**35, shm_total_bytes=2**34, shm_free_bytes=2**33, open_files_limit=65536, python="3.11.7",
)  # fmt: skip
H100 = GpuInfo(index=0, uuid="GPU-1", name="NVIDIA H100", memory_bytes=80 * 2**30)
CUDA, CPU = (TorchBuild(version=f"2.8.0+{tag}", platform=platform) for tag, platform in (("cu128", "CUDA 12.8"),
                                                                                         ("cpu", "CPU")))  # fmt: skip
NO_PTRACE = Ptrace(scope=1, capable=False)


def by_name(found: Iterable[Finding]) -> dict[str, Finding]:
    listed = list(found)
    for finding in listed:
        assert finding.state in ("ok", "note", "warning", "missing")
        assert finding.hint or finding.state not in ("warning", "missing"), finding
        assert finding.hint is None or finding.state != "ok", finding
    return {finding.name: finding for finding in listed}


@pytest.mark.parametrize(
    ("torch", "gpus", "state", "value"),
    [
        (CUDA, (H100,), "ok", "2.8.0+cu128, built for CUDA 12.8"),
        (CUDA, (), "ok", "2.8.0+cu128, built for CUDA 12.8"),
        (CPU, (), "ok", "2.8.0+cpu, built for CPU"),
        (CPU, (H100,), "warning", "2.8.0+cpu, built for the CPU: cannot use the GPU"),
        (TorchBuild(version="2.8.0", platform=None), (H100,), "ok", "2.8.0"),
        (None, (H100,), "missing", "not installed"),
    ],
)
def test_torch(torch: TorchBuild | None, gpus: tuple[GpuInfo, ...], state: str, value: str) -> None:
    found = by_name(findings.judge_software(HOST, torch, GpuState(gpus=gpus)))["torch"]
    assert (found.state, found.value) == (state, value)
    assert torch is not None or "pip install 'pipetune[torch]'" in (found.hint or "")


def test_cores_without_a_quota() -> None:
    found = by_name(findings.judge_processor(HOST, {}))
    assert found["model"].value == "AMD EPYC 7R13"
    assert (found["cores"].state, found["cores"].value) == (
        "ok", "64 present, 16 after affinity, no CPU quota: 16 usable",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("quota", "threads", "state", "expected"),
    [
        (2.5, None, "warning", ("libraries that count cores start 16 threads", "2.5 usable", "set OMP_NUM_THREADS=2 ")),
        (0.5, None, "warning", ("set OMP_NUM_THREADS=1 ",)),
        (2.5, "3", "ok", ()),
        (2.5, "3,8", "ok", ()),
        (2.5, "4", "warning", ("OMP_NUM_THREADS is 4", "set OMP_NUM_THREADS=2 ")),
        (2.5, "many", "warning", ("OMP_NUM_THREADS is many",)),
        (16.0, None, "ok", ()),
    ],
)
def test_a_quota_below_the_visible_cores(
    quota: float, threads: str | None, state: str, expected: tuple[str, ...]
) -> None:
    host = replace(HOST, cpu_quota_cores=quota, cores_usable=quota)
    found = by_name(findings.judge_processor(host, {} if threads is None else {"OMP_NUM_THREADS": threads}))["cores"]
    assert found.state == state
    assert found.value == f"64 present, 16 after affinity, a CPU quota of {quota:g}: {quota:g} usable"
    assert all(text in (found.hint or "") for text in expected)


def test_a_quota_above_the_cores_of_the_affinity_is_not_what_is_usable() -> None:
    host = replace(HOST, cores_affinity=(0,), cpu_quota_cores=8.0, cores_usable=1.0)
    found = by_name(findings.judge_processor(host, {}))["cores"]
    assert found.value == "64 present, 1 after affinity, a CPU quota of 8: 1 usable"


def test_threads_above_the_cores_without_a_quota() -> None:
    found = by_name(findings.judge_processor(HOST, {"OMP_NUM_THREADS": "64"}))["cores"]
    assert "OMP_NUM_THREADS is 64 for 16 usable cores" in (found.hint or "")


def test_memory_that_is_enough() -> None:
    found = by_name(findings.judge_memory(HOST, (1024, 4096)))
    assert {finding.state for finding in found.values()} == {"ok"}
    assert found["memory"].value == "256 GiB, limited to 64.0 GiB, 32.0 GiB available"
    assert found["/dev/shm"].value == "16.0 GiB, 8.00 GiB used, 8.00 GiB free"
    assert found["open files"].value == "1024, may be raised to 4096"
    assert by_name(findings.judge_memory(HOST, (None, None)))["open files"].value == "unlimited"


def test_memory_of_which_nothing_is_known() -> None:
    host = replace(HOST, memory_total_bytes=None, memory_limit_bytes=None, memory_available_bytes=None)
    found = by_name(findings.judge_memory(host, (1024, 1024)))["memory"]
    assert (found.state, found.value) == ("ok", "unknown, no limit, unknown available")


def test_too_little_of_everything() -> None:
    enough = replace(HOST, shm_free_bytes=NEEDS.shm_bytes, memory_available_bytes=NEEDS.memory_bytes)
    assert {finding.state for finding in by_name(findings.judge_memory(enough, (1024, 1024))).values()} == {"ok"}

    short = replace(HOST, shm_free_bytes=NEEDS.shm_bytes - 1, memory_available_bytes=NEEDS.memory_bytes - 1)
    found = by_name(findings.judge_memory(short, (1023, 4096)))
    assert {finding.state for finding in found.values()} == {"warning"}
    assert "184 MiB: mount -o remount,size=8g /dev/shm, docker run --shm-size=8g" in (found["/dev/shm"].hint or "")
    assert "ulimit -n 4096" in (found["open files"].hint or "")


@pytest.mark.parametrize(
    ("hard", "way"), [(None, "ulimit -n 65536"), (2**20, "ulimit -n 65536"), (512, "--ulimit nofile=65536")]
)
def test_how_to_raise_the_limit_of_open_files(hard: int | None, way: str) -> None:
    assert way in (by_name(findings.judge_memory(HOST, (256, hard)))["open files"].hint or "")


def test_no_shared_memory_at_all() -> None:
    host = replace(HOST, shm_total_bytes=None, shm_free_bytes=None)
    assert by_name(findings.judge_memory(host, (None, None)))["/dev/shm"].state == "warning"


def test_gpus() -> None:
    lost = GpuInfo(index=1, problem="GPU is lost")
    nameless = GpuInfo(index=2, name="NVIDIA A100 MIG")
    found = by_name(findings.judge_gpus(GpuState(gpus=(H100, lost, nameless), driver="580.65.06"), CUDA))
    assert (found["driver"].state, found["driver"].value) == ("ok", "580.65.06")
    assert (found["GPU 0"].state, found["GPU 0"].value) == ("ok", "NVIDIA H100, 80.0 GiB")
    assert (found["GPU 1"].state, found["GPU 1"].value) == ("warning", "GPU is lost")
    assert found["GPU 2"].value == "NVIDIA A100 MIG"
    assert found["--device auto"].value.startswith("cuda:0")


@pytest.mark.parametrize(
    ("reason", "state"),
    [("no_library", "note"), ("no_driver", "note"), ("no_permission", "warning"), ("no_binding", "warning"),
     ("version_mismatch", "warning"), ("nvml_error", "warning")],
)  # fmt: skip
def test_reasons_for_no_gpu_and_the_emulated_one_instead(reason: str, state: str) -> None:
    problem = NvmlUnavailable("this is why", reason=reason, hint="do that")
    found = by_name(findings.judge_gpus(GpuState(problem=problem), CUDA))
    assert (found["NVML"].state, found["NVML"].value, found["NVML"].hint) == (state, "this is why", "do that")
    assert "EMULATED" in found["--device auto"].value


def test_a_driver_that_shows_no_gpu() -> None:
    found = by_name(findings.judge_gpus(GpuState(), CUDA))
    assert (found["NVML"].state, found["NVML"].value) == ("note", "the driver shows no GPU")


def test_an_amd_gpu_is_used_through_rocm() -> None:
    rocm = TorchBuild(version="2.8.0+rocm6.4", platform="ROCm 6.4")
    assert "ROCm" in by_name(findings.judge_gpus(GpuState(), rocm, amd=True))["--device auto"].value
    assert "EMULATED" in by_name(findings.judge_gpus(GpuState(), rocm))["--device auto"].value
    assert "EMULATED" in by_name(findings.judge_gpus(GpuState(), CUDA, amd=True))["--device auto"].value


XPU = TorchBuild(version="2.8.0+xpu", platform="XPU 20250101")
ROCM = TorchBuild(version="2.8.0+rocm6.4", platform="ROCm 6.4")


@pytest.mark.parametrize(
    ("torch", "name", "state", "told"),
    [
        (CUDA, "AMD GPU", "warning", "this torch is not built for ROCm"),
        (CPU, "AMD GPU", "warning", "this torch is not built for ROCm"),
        (None, "AMD GPU", "warning", "torch is not installed"),
        (CUDA, "Intel GPU", "note", "this torch is not built for XPU"),
        (None, "Intel GPU", "note", "torch is not installed"),
        (XPU, "Intel GPU", "note", "--device xpu:0 does"),
    ],
)
def test_a_gpu_of_another_make_is_named_with_what_it_lacks(
    torch: TorchBuild | None, name: str, state: str, told: str
) -> None:
    driverless = GpuState(problem=NvmlUnavailable("no library", reason="no_library", hint="install NVIDIA's"))
    makes = {"amd": name == "AMD GPU", "intel": name == "Intel GPU"}
    found = by_name(findings.judge_gpus(driverless, torch, **makes))
    assert (found[name].state, told in found[name].value) == (state, True)
    assert {*found} & {"AMD GPU", "Intel GPU"} == {name}
    assert found["NVML"].hint is None, "NVIDIA's driver would not help"
    assert "EMULATED" in found["--device auto"].value

    with_nvidia = by_name(findings.judge_gpus(driverless, torch, nvidia=True, **makes))
    assert with_nvidia["NVML"].hint == "install NVIDIA's"


def test_a_gpu_of_another_make_is_not_named_where_it_is_used_or_nvidias_are() -> None:
    assert "AMD GPU" not in by_name(findings.judge_gpus(GpuState(), ROCM, amd=True))
    beside = by_name(findings.judge_gpus(GpuState(gpus=(H100,)), CUDA, amd=True, intel=True))
    assert not {*beside} & {"AMD GPU", "Intel GPU"}


@pytest.mark.parametrize("torch", [None, CPU, XPU, ROCM])
def test_without_a_torch_that_can_use_it_a_gpu_is_emulated(torch: TorchBuild | None) -> None:
    assert "EMULATED" in by_name(findings.judge_gpus(GpuState(gpus=(H100,)), torch))["--device auto"].value


def test_signals_that_are_all_there() -> None:
    found = by_name(findings.judge_signals(RESOURCES, True, Ptrace(scope=0, capable=False), py_spy=True))
    assert {finding.state for finding in found.values()} == {"ok"}
    assert found["pressure (PSI)"].value == "cpu, io, memory"
    assert found["Python stacks"].value == "running jobs can be attached to (ptrace_scope 0, without CAP_SYS_PTRACE)"


def test_signals_that_are_missing_and_why_they_matter() -> None:
    found = by_name(findings.judge_signals(("cpu",), False, NO_PTRACE, py_spy=True))
    assert (found["pressure (PSI)"].state, found["pressure (PSI)"].value) == ("missing", "no io and memory")
    assert "psi=1" in (found["pressure (PSI)"].hint or "")
    assert "CONFIG_SCHED_INFO" in (found["waits for a core"].hint or "")
    assert found["Python stacks"].state == "note"
    assert found["Python stacks"].value.startswith("running jobs cannot be attached to")
    assert "kernel.yama.ptrace_scope=0" in (found["Python stacks"].hint or "")
    assert "'pipetune watch -- ...'" in (found["Python stacks"].hint or "")


@pytest.mark.parametrize("scope", [2, 3])
def test_a_job_of_our_own_can_be_attached_to_with_scope_1_only(scope: int) -> None:
    strict = Ptrace(scope=scope, capable=False)
    found = by_name(findings.judge_signals(RESOURCES, True, strict, py_spy=True))["Python stacks"]
    assert "pipetune watch" not in (found.hint or "")


@pytest.mark.parametrize(("scope", "others"), [(0, False), (1, True)])
def test_without_py_spy_there_are_no_stacks(scope: int, others: bool) -> None:
    ptrace = Ptrace(scope=scope, capable=False)
    found = by_name(findings.judge_signals(RESOURCES, True, ptrace, py_spy=False))["Python stacks"]
    assert found.state == "missing"
    assert found.value.startswith("py-spy is not installed; running jobs can")
    assert "pip install 'pipetune[stacks]'" in (found.hint or "")
    assert ("ptrace_scope=0" in (found.hint or "")) is others


def test_the_strictest_ptrace_scope_has_no_command_to_leave_it() -> None:
    found = by_name(findings.judge_signals(RESOURCES, True, Ptrace(scope=3, capable=True), py_spy=True))[
        "Python stacks"
    ]
    assert "reboot" in (found.hint or "")
    assert "sysctl" not in (found.hint or "")


def test_allocators() -> None:
    assert by_name(findings.judge_allocator(None, {}))["malloc"].value == "glibc malloc"
    there = Preloaded(name="jemalloc", library="/lib/libjemalloc.so.2", present=True)
    assert by_name(findings.judge_allocator(there, {}))["malloc"].value == "jemalloc, /lib/libjemalloc.so.2"
    gone = by_name(findings.judge_allocator(replace(there, present=False), {}))["malloc"]
    assert (gone.state, "/lib/libjemalloc.so.2" in gone.value) == ("warning", True)


def test_settings_of_the_allocator_are_shown_where_they_are_set() -> None:
    found = by_name(findings.judge_allocator(None, {
        "MALLOC_ARENA_MAX": "2", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PYTORCH_ALLOC_CONF": "",
    }))  # fmt: skip
    assert found["MALLOC_ARENA_MAX"].value == "2"
    assert found["PYTORCH_CUDA_ALLOC_CONF"].value == "expandable_segments:True"
    assert "PYTORCH_ALLOC_CONF" not in found


def test_backends_are_installed_or_come_with_the_command() -> None:
    states = (
        BackendState(name="opencv", installed=True, version="opencv-python 5.0", install="pip install opencv"),
        BackendState(name="dali", installed=False, version=None, install="pip install dali"),
    )
    found = by_name(findings.judge_backends(states, Pillow(version="12.1.1.post0", folder="/x")))
    assert (found["opencv"].state, found["opencv"].value, found["opencv"].hint) == ("ok", "opencv-python 5.0", None)
    assert (found["dali"].state, found["dali"].hint) == ("missing", "pip install dali")
    assert found["PIL is"].value == "Pillow-SIMD 12.1.1.post0"
    assert by_name(findings.judge_backends((), None))["PIL is"].state == "warning"
