"""Protection by the kernel's overlay, as root has it and in a user namespace."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipetune.protection.choose import settle_protection
from pipetune.protection.contract import Request, Unavailable
from pipetune.protection.overlay import Overlay
from pipetune.protection.state import ProtectionFolder
from tests.integration import commands
from tests.integration.own_scripts import LOOP, TRAINING, write

#: Starts a shell command under protection; returns what it has said and its exit code.
Run = Callable[[str], tuple[str, int]]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "job"
    (folder / "out").mkdir(parents=True)
    for name in ("model.pt", "old.txt", "out/last.pt"):
        (folder / name).write_text("mine")
    monkeypatch.chdir(folder)
    return folder


def open_overlay(job: Path, *, user_namespace: bool) -> Overlay:
    """Protection of a folder; skips where this system forbids it."""
    if not user_namespace and os.geteuid() != 0:
        pytest.skip("only root has a mount namespace without a user namespace")
    run = job / "pipetune-runs" / "one"
    run.mkdir(parents=True, exist_ok=True)
    folder = ProtectionFolder(run)
    request = Request(command=("sh",), cwd=job)
    overlay = Overlay(folder, request, str(folder.path / "layers"), user_namespace=user_namespace)
    try:
        overlay.try_out()
    except (Unavailable, OSError) as reason:
        folder.close()
        pytest.skip(f"this system forbids it: {reason}")
    return overlay


@pytest.fixture(params=[False, True], ids=["root", "user namespace"])
def overlay(request: pytest.FixtureRequest, job: Path) -> Iterator[Overlay]:
    opened = open_overlay(job, user_namespace=request.param)
    yield opened
    opened.close()


@pytest.fixture
def run(overlay: Overlay) -> Run:
    def start(text: str) -> tuple[str, int]:
        done = subprocess.run(overlay.wrap(["sh", "-c", text]), capture_output=True, text=True, check=False)
        return (done.stdout + done.stderr).strip(), done.returncode

    return start


def test_a_script_sees_what_it_writes_and_the_files_stay(overlay: Overlay, run: Run, job: Path) -> None:
    said, code = run(
        "echo new > model.pt; rm old.txt; rm -r out; mkdir out; echo n > out/new; cat model.pt; ls; exit 7"
    )
    assert (said.split(), code) == (["new", "model.pt", "out", "pipetune-runs"], 7)
    assert [path.read_text() for path in (job / "model.pt", job / "old.txt", job / "out/last.pt")] == ["mine"] * 3
    written = overlay.collect()
    assert written.created == (str(job / "out/new"),)
    assert written.changed == (str(job / "model.pt"),)
    assert written.removed == (str(job / "old.txt"), str(job / "out/last.pt"))
    assert (job / "out/new").read_text() == "n\n"
    overlay.close()
    assert os.listdir(job / "pipetune-runs/one") == []


def test_folders_are_moved_and_not_counted_as_files(overlay: Overlay, run: Run, job: Path) -> None:
    (job / "empty").mkdir()
    assert run("mkdir -p runs/1/plots; rmdir empty; chmod 700 out; echo n > runs/log") == ("", 0)
    written = overlay.collect()
    assert (written.created, written.changed, written.removed) == ((str(job / "runs/log"),), (), ())
    assert (job / "runs/1/plots").is_dir()
    assert (job / "empty").is_dir()


def test_all_starts_share_what_they_write(overlay: Overlay, run: Run) -> None:
    assert run("echo downloaded > weights; echo changed > model.pt") == ("", 0)
    assert run("cat weights model.pt") == ("downloaded\nchanged", 0)


def test_who_and_where_it_is_stays(run: Run, job: Path) -> None:
    assert run("id -u; id -g; pwd; cat /proc/self/cmdline | tr '\\0' ' '") == (
        f"{os.getuid()}\n{os.getgid()}\n{job}\ncat /proc/self/cmdline", 0,
    )  # fmt: skip


def test_devices_shared_memory_and_sockets_are_the_real_ones(run: Run, tmp_path: Path) -> None:
    shared = Path("/dev/shm", f"pipetune-test-{os.getpid()}")
    script = tmp_path / "connect.py"
    script.write_text(f"import socket\nsocket.socket(socket.AF_UNIX).connect({str(tmp_path / 's')!r})\n")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        assert run(f"echo x > /dev/null; echo y > {shared}; {sys.executable} {script}") == ("", 0)
    try:
        assert shared.read_text() == "y\n"
    finally:
        shared.unlink()


def test_a_signal_ends_it_as_it_would_without(overlay: Overlay) -> None:
    process = subprocess.Popen(overlay.wrap(["sleep", "60"]))
    time.sleep(0.5)
    process.terminate()
    assert process.wait(10) == -signal.SIGTERM


def test_a_program_that_is_missing(run: Run, overlay: Overlay) -> None:
    done = subprocess.run(overlay.wrap(["no-such-program"]), capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert "no-such-program" in done.stderr


def test_a_new_file_that_somebody_else_has_made_meanwhile(overlay: Overlay, run: Run, job: Path) -> None:
    run("echo the script > log")
    (job / "log").write_text("another program")
    written = overlay.collect()
    assert (job / "log").read_text() == "another program"
    (kept,) = (job / "pipetune-runs/one/written").rglob("log")
    assert kept.read_text() == "the script\n"
    assert str(kept) in written.notes[0]


def test_what_was_not_collected_is_not_thrown_away(overlay: Overlay, run: Run, job: Path) -> None:
    run("echo n > new")
    overlay.close()  # an error of the disk's came before it was collected
    written = settle_protection(job / "pipetune-runs/one")
    assert written is not None
    assert written.created == (str(job / "new"),)
    assert (job / "new").read_text() == "n\n"


@pytest.mark.parametrize("user_namespace", [False, True])
def test_what_a_killed_sweep_has_left_is_settled_later(user_namespace: bool, job: Path) -> None:
    overlay = open_overlay(job, user_namespace=user_namespace)
    subprocess.run(overlay.wrap(["sh", "-c", "echo new > model.pt; echo n > new"]), check=True)
    os.close(overlay.pulse_fd())  # as the kernel does when the process is killed
    written = settle_protection(job / "pipetune-runs/one")
    assert written is not None
    assert (written.created, written.changed) == ((str(job / "new"),), (str(job / "model.pt"),))
    assert (job / "new").read_text() == "n\n"
    assert (job / "model.pt").read_text() == "mine"
    assert settle_protection(job / "pipetune-runs/one") is None


@pytest.mark.slow
@pytest.mark.parametrize("then", ["result", "error", "exception", "SIGINT", "SIGTERM", "SIGKILL"])
def test_files_are_safe_however_a_sweep_ends(then: str, place: Path, nobody_is_left: None) -> None:
    before = 'import os, sys, time\nopen("model.pt", "w").write("new")\nos.remove("old.txt")\nopen("n", "w").write("n")'
    loop = {"error": "", "exception": 'raise ValueError("broken")'}.get(then, 'print("training", flush=True)' + LOOP)
    command = write(place, TRAINING.format(before=before, loop=loop))
    for name in ("model.pt", "old.txt"):
        (place / name).write_text("mine")
    process = subprocess.Popen(
        [*commands.python(), "sweep", "--seconds", "0.5", "--effort", "quick", "--workers", "0", "--blocks", "0",
         "--progress", "none", "--out", "run", "--", *command],
        cwd=place, env={**os.environ, "PIPETUNE_PROTECTION": "overlay"}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    if then.startswith("SIG"):
        log = place / "run" / "script.log"
        while process.poll() is None and not (log.exists() and "training" in log.read_text()):
            time.sleep(0.1)
        process.send_signal(getattr(signal, then))
    said = process.communicate(timeout=200)[0]
    if "cannot be protected" in said:
        pytest.skip(said)
    if then == "SIGKILL":
        said = subprocess.run(
            [*commands.python(), "report", "run"], cwd=place, capture_output=True, text=True, check=False
        ).stderr
        assert "was killed" in said
    assert "2 files of yours, which are as they were before: model.pt, old.txt" in said
    assert "1 new file: n" in said
    assert [(place / name).read_text() for name in ("model.pt", "old.txt", "n")] == ["mine", "mine", "n"]
    assert json.loads((place / "run" / "written.json").read_text())["created"] == [str(place / "n")]
