from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipetune import version
from pipetune.doctor import checkup as doctor
from pipetune.doctor.checkup import Checkup, describe_backends, examine, to_json
from pipetune.machine.host import Host, describe_host
from pipetune.machine.nvml.gpu import GpuInfo, NvmlUnavailable
from pipetune.machine.nvml.gpu_state import GpuState
from pipetune.records.sweep import SCHEMA, from_dict
from pipetune.registry import BACKENDS

H100 = GpuInfo(index=0, uuid="GPU-1", name="NVIDIA H100", memory_bytes=80 * 2**30)
TOPICS = ["software", "cpu", "memory", "gpu", "signals", "allocator", "backends"]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Two of eight cores' worth of time, torch for the CPU, no pressure, no ptrace."""
    for path, text in {
        "proc/cpuinfo": "model name\t: AMD EPYC 7R13\n",
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "proc/self/schedstat": "1 2 3\n",
        "proc/self/status": "CapEff:\t0000000000000000\n",
        "proc/sys/kernel/yama/ptrace_scope": "1\n",
        "sys/fs/cgroup/cpu.max": "200000 100000\n",
        "site/torch-2.8.0.dist-info/METADATA": "Name: torch\nVersion: 2.8.0\n",
        "site/torch/version.py": "__version__ = '2.8.0+cpu'\ncuda = None\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def examined(machine: Path, **environment: str) -> Checkup:
    packages = [str(machine / "site")]
    host = describe_host(proc=machine / "proc", root=machine, shm=machine, affinity=range(8), packages=packages)
    return examine(host, proc=machine / "proc", packages=packages, environment=environment)


def states(checkup: Checkup) -> dict[str, str]:
    return {finding.name: finding.state for finding in checkup.findings}


def test_a_machine_is_read_through_the_folders_given(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ask_gpus", lambda: GpuState(gpus=(H100,), driver="580"))
    monkeypatch.setattr(doctor, "find_py_spy", lambda: "/usr/bin/py-spy")
    checkup = examined(machine, MALLOC_ARENA_MAX="2")
    found = states(checkup)
    assert (found["cores"], found["torch"], found["pressure (PSI)"]) == ("warning", "warning", "missing")
    assert (found["waits for a core"], found["Python stacks"], found["MALLOC_ARENA_MAX"]) == ("ok", "note", "note")
    assert (found["driver"], found["GPU 0"], found["--device auto"]) == ("ok", "ok", "note")
    assert checkup.host.cpu_quota_cores == 2.0
    assert checkup.gpus == (H100,)


def test_topics_come_in_one_piece_and_in_order(machine: Path) -> None:
    topics = [finding.topic for finding in examined(machine).findings]
    assert list(dict.fromkeys(topics)) == TOPICS
    assert topics == sorted(topics, key=TOPICS.index)


def test_a_machine_without_anything_is_still_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = NvmlUnavailable("no library", reason="no_library", hint="install it")
    monkeypatch.setattr(doctor, "ask_gpus", lambda: GpuState(problem=problem))
    nothing = tmp_path / "nothing"
    host = describe_host(proc=nothing, root=nothing, shm=nothing, affinity={0}, packages=[])
    found = states(examine(host, proc=nothing, packages=[], environment={}))
    assert (found["torch"], found["/dev/shm"], found["waits for a core"], found["NVML"]) == (
        "missing", "warning", "missing", "note",
    )  # fmt: skip


def test_the_environment_is_this_process_s_unless_given(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "7")
    values = {finding.name: finding.value for finding in examine(proc=machine / "proc").findings}
    assert values["MALLOC_ARENA_MAX"] == "7"


def test_every_backend_is_listed() -> None:
    listed = describe_backends()
    assert [backend.name for backend in listed] == list(BACKENDS)
    for backend in listed:
        assert backend.installed is (backend.version is not None)
        assert backend.install == BACKENDS[backend.name].install


@pytest.mark.parametrize(("cuda", "package"), [(12080, "cuda120"), (13000, "cuda130"), (None, "cuda130")])
def test_a_package_per_cuda_is_the_one_for_the_driver(
    cuda: int | None, package: str, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "ask_gpus", lambda: GpuState(gpus=(H100,), driver="550", cuda=cuda))
    monkeypatch.setattr(doctor, "installed_version", lambda backend: None)
    hints = {finding.name: finding.hint for finding in examined(machine).findings}
    assert hints["dali"] == f"pip install 'pipetune[dali-{package}]'"
    assert hints["opencv"] == BACKENDS["opencv"].install


def test_what_is_found_beside_nvml_and_proc_reaches_the_findings(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = NvmlUnavailable("no library", reason="no_library", hint="install it")
    monkeypatch.setattr(doctor, "ask_gpus", lambda: GpuState(problem=problem))
    monkeypatch.setattr(doctor, "find_py_spy", lambda: None)
    for name in ("amd_driver", "intel_gpu"):
        monkeypatch.setattr(doctor, name, lambda: True)
    monkeypatch.setattr(doctor.facts, "nvidia_card", lambda: False)
    found = {finding.name: finding for finding in examined(machine).findings}
    assert (found["AMD GPU"].state, found["Intel GPU"].state) == ("warning", "note")
    assert found["NVML"].hint is None
    assert found["Python stacks"].state == "missing"


def test_the_json(machine: Path) -> None:
    checkup = examined(machine)
    data = json.loads(json.dumps(to_json(checkup), allow_nan=False))
    assert list(data) == ["schema", "kind", "pipetune", "host", "gpus", "backends", "findings"]
    assert (data["schema"], data["kind"], data["pipetune"]) == (SCHEMA, "doctor", version.__version__)
    assert from_dict(Host, data["host"]) == checkup.host
    assert [set(backend) for backend in data["backends"]] == [
        {"name", "installed", "version", "install", "why_missing"}
    ] * len(BACKENDS)
    assert {key for finding in data["findings"] for key in finding} == {"topic", "name", "state", "value", "hint"}
    assert len(data["findings"]) == len(checkup.findings)


def test_a_checkup_imports_none_of_the_packages_it_reports() -> None:
    program = (
        "import sys; from pipetune.doctor.checkup import examine; examine();"
        "heavy = {'torch', 'torchvision', 'cv2', 'nvidia', 'PIL', 'numpy'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert child.stdout == "[]\n"
