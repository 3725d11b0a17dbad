"""The real command: on this machine, on one with a fake driver, and installing with real and fake tools."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipetune.registry import BACKENDS
from tests import fake_build, fake_nvml
from tests.integration import commands

DOCTOR = [sys.executable, "-m", "pipetune", "doctor"]
TWO = """
gpus 2
uuid@0 GPU-first
uuid@1 GPU-second
name@0 Fake A
name@1 Fake B
nvmlDeviceGetMemoryInfo 1000000
memory 85899345920
"""


def json_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return commands.result_of(done)


def findings(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {finding["name"]: finding for finding in data["findings"]}


def no_driver(tmp_path: Path) -> dict[str, str]:
    # An empty file is in the way of a real library, which the machine may have.
    (tmp_path / "libnvidia-ml.so.1").touch()
    return fake_nvml.environment(tmp_path, "")


def test_this_machine_in_text(tmp_path: Path) -> None:
    done = commands.run(DOCTOR)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for name in ("python", "cores", "/dev/shm", "open files", "pressure (PSI)", "Python stacks", "malloc", *BACKENDS):
        assert f" {name} " in done.stdout
    assert "\x1b" not in done.stdout


def test_this_machine_in_json_and_in_a_file(tmp_path: Path) -> None:
    done = commands.run([*DOCTOR, "--json", str(tmp_path / "doctor.json")])
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "doctor.json").read_text())
    assert (data["schema"], data["kind"]) == (1, "doctor")
    assert data["host"]["cores_affinity"] == sorted(os.sched_getaffinity(0))
    assert [backend["name"] for backend in data["backends"]] == list(BACKENDS)
    assert all(finding["value"] in " ".join(done.stdout.split()) for finding in data["findings"])


def test_json_alone_on_standard_output() -> None:
    done = commands.run([*DOCTOR, "--json", "-"])
    assert findings(json_of(done))["python"]["state"] == "ok"
    assert "python" in done.stderr


def test_a_place_for_the_json_that_cannot_be(tmp_path: Path) -> None:
    done = commands.run([*DOCTOR, "--json", str(tmp_path)])
    assert (done.returncode, done.stdout) == (2, "")
    assert "is a folder" in done.stderr


def test_a_terminal_that_knows_ascii_only() -> None:
    done = commands.run(DOCTOR, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "\\u" not in done.stdout


def test_gpus_and_their_driver(nvml_library: Path, tmp_path: Path) -> None:
    data = json_of(commands.run([*DOCTOR, "--json", "-"], **fake_nvml.environment(nvml_library, TWO, folder=tmp_path)))
    assert [gpu["name"] for gpu in data["gpus"]] == ["Fake A", "Fake B"]
    found = findings(data)
    assert found["driver"]["state"] == "ok"
    assert found["GPU 1"]["value"] == "Fake B, 80.0 GiB"
    calls = fake_nvml.calls(tmp_path)
    assert calls.count("nvmlInit") == calls.count("nvmlShutdown")


def test_a_lost_gpu_beside_one_that_works(nvml_library: Path, tmp_path: Path) -> None:
    scenario = TWO + "nvmlDeviceGetHandleByIndex_v2@0 !15\n"
    environment = fake_nvml.environment(nvml_library, scenario, folder=tmp_path)
    found = findings(json_of(commands.run([*DOCTOR, "--json", "-"], **environment)))
    assert (found["GPU 0"]["state"], found["GPU 0"]["value"]) == ("warning", "GPU is lost")
    assert (found["GPU 1"]["state"], found["driver"]["state"]) == ("ok", "ok")


@pytest.mark.parametrize(
    ("code", "state", "expected"),
    [(9, "note", "not loaded"), (4, "warning", "refuses"), (18, "warning", "different versions"),
     (999, "warning", "Unknown Error")],
)  # fmt: skip
def test_a_driver_that_does_not_answer(
    nvml_library: Path, tmp_path: Path, code: int, state: str, expected: str
) -> None:
    environment = fake_nvml.environment(nvml_library, f"nvmlInit !{code}", folder=tmp_path)
    data = json_of(commands.run([*DOCTOR, "--json", "-"], **environment))
    assert data["gpus"] == []
    nvml = findings(data)["NVML"]
    assert nvml["state"] == state
    assert expected in nvml["value"]
    assert nvml["hint"]


def test_no_driver_is_no_error(tmp_path: Path) -> None:
    done = commands.run(DOCTOR, **no_driver(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "libnvidia-ml.so.1 is not installed" in done.stdout
    assert "EMULATED" in done.stdout


def test_limits_of_a_shell_are_seen() -> None:
    shell = ["bash", "-c", 'ulimit -n 256 && exec "$@"', "bash", *DOCTOR, "--json", "-"]
    found = findings(json_of(commands.run(shell)))["open files"]
    assert (found["state"], found["value"]) == ("warning", "256")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--install", "pilow"], "did you mean pillow or pillow-simd?"),
        (["--install", "opencv"], "pip install 'pipetune[opencv]'"),
        (["--install", "pillow-simd", "--json", "x.json"], "run one after the other"),
    ],
)
def test_mistakes_are_one_line(options: list[str], expected: str, tmp_path: Path) -> None:
    done = commands.run([*DOCTOR, *options], XDG_DATA_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_missing_compiler_is_reported_before_the_build(tmp_path: Path) -> None:
    done = commands.run([*DOCTOR, "--install", "pillow-simd"], XDG_DATA_HOME=str(tmp_path), CC="no-such-compiler")
    assert done.returncode == 2
    assert "no-such-compiler" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_an_interrupted_build_leaves_no_process_and_no_file(number: int, code: int, tmp_path: Path) -> None:
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("Python.h is not installed")
    environment = {**fake_build.environment(tmp_path, "hang"), "XDG_DATA_HOME": str(tmp_path / "home")}
    running = commands.start([*DOCTOR, "--install", "pillow-simd"], **environment)
    commands.wait_until((tmp_path / "pids").exists)
    pip = [psutil.Process(int(pid)) for pid in (tmp_path / "pids").read_text().split()]
    running.send_signal(number)
    running.communicate(timeout=60)
    assert running.returncode == code
    commands.wait_until(lambda: not commands.alive(pip))
    side = tmp_path / "home" / "pipetune" / "side"
    if number == signal.SIGKILL:  # nobody was there to clear away: the next one does
        environment["FAKE_PIP"] = "good"
        assert commands.run([*DOCTOR, "--install", "pillow-simd"], **environment).returncode == 0
    assert [path.name for path in side.iterdir() if not path.name.endswith(".lock")] == [
        path.name for path in side.glob("pillow-simd-*")
    ]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_real_build(pillow_simd_home: Path) -> None:
    side = pillow_simd_home / "pipetune" / "side"
    (place,) = side.glob("pillow-simd-*")
    assert {path.name for path in side.iterdir()} == {place.name, f".{place.name}.lock"}

    again = commands.run([*DOCTOR, "--install", "pillow-simd"], XDG_DATA_HOME=str(pillow_simd_home))
    assert (again.returncode, again.stderr) == (0, "")
    assert "nothing to do" in again.stdout

    data = json_of(commands.run([*DOCTOR, "--json", "-"], XDG_DATA_HOME=str(pillow_simd_home)))
    found = findings(data)
    assert found["pillow-simd"]["value"].startswith("Pillow-SIMD ")
    assert found["pillow"]["state"] == "ok"
    assert "SIMD" not in found["PIL is"]["value"]

    program = "import PIL; from PIL import Image; print(PIL.__version__, PIL.__file__)"
    done = commands.run([sys.executable, "-P", "-c", program], PYTHONPATH=str(place))
    assert ".post" in done.stdout
    assert str(place) in done.stdout
