"""The supervisor as the program that it is, and its commands as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipetune.processes import supervise
from pipetune.processes.supervise import descendants
from tests.integration.commands import wait_until

PROGRAM = [sys.executable, "-P", "-E", "-S", supervise.__file__, ""]
PYTHON = [sys.executable, "-S", "-E", "-c"]
Start = Callable[..., "subprocess.Popen[str]"]

DAEMON = """
import os, sys, time
if os.fork():
    time.sleep({stays})
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(1000)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts commands under the supervisor; ends them at the latest after the test."""
    started: list[subprocess.Popen[str]] = []

    def run(*command: str) -> subprocess.Popen[str]:
        with (tmp_path / "log").open("ab") as log:
            started.append(subprocess.Popen([*PROGRAM, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=log, text=True))  # fmt: skip
        return started[-1]

    yield run
    for process in started:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()
        process.wait(30)


def news(process: subprocess.Popen[str], lines: int = 1) -> list[dict[str, Any]]:
    assert process.stdout is not None
    return [json.loads(process.stdout.readline()) for _ in range(lines)]


def pid_in(place: Path) -> int:
    wait_until(place.exists, 30)
    return int(place.read_text())


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("code", "expected"),
    [("pass", 0), ("import os; os._exit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL)],
    ids=["success", "a code", "a signal"],
)
def test_the_commands_end_is_reported(code: str, expected: int, start: Start) -> None:
    process = start(*PYTHON, code)
    running, ended = news(process, 2)
    assert running["pid"] > 0
    assert ended == {"exit": expected}
    assert process.wait(30) == 0


def test_a_command_that_cannot_be_started_is_reported(start: Start, tmp_path: Path) -> None:
    process = start(str(tmp_path / "nothing"))
    (said,) = news(process)
    assert str(tmp_path / "nothing") in said["error"]
    assert process.wait(30) == 1


def test_what_the_command_prints_is_not_mixed_with_the_reports(start: Start, tmp_path: Path) -> None:
    process = start(*PYTHON, "import sys; print('out'); sys.stderr.write('err\\n'); print(len(sys.stdin.read()))")
    assert [set(line) for line in news(process, 2)] == [{"pid"}, {"exit"}]
    assert sorted((tmp_path / "log").read_text().split()) == ["0", "err", "out"]  # nothing comes by standard input


def test_when_the_lifeline_closes_a_daemon_in_a_session_of_its_own_ends_too(start: Start, tmp_path: Path) -> None:
    process = start(*PYTHON, DAEMON.format(stays=1000), str(tmp_path / "pid"))
    (running,) = news(process)
    daemon = pid_in(tmp_path / "pid")
    assert os.getsid(daemon) != os.getsid(running["pid"])
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(30) == 0
    assert gone(daemon)
    assert gone(running["pid"])
    assert process.stdout is not None
    assert process.stdout.read() == ""  # the command did not end by itself


def test_one_that_outlives_the_command_ends_with_it(start: Start, tmp_path: Path) -> None:
    process = start(*PYTHON, DAEMON.format(stays=0.2), str(tmp_path / "pid"))
    daemon = pid_in(tmp_path / "pid")
    _, ended = news(process, 2)
    assert ended == {"exit": 0}
    assert process.wait(30) == 0
    assert gone(daemon)


def test_everything_ends_when_the_one_who_started_it_is_killed(tmp_path: Path) -> None:
    owner = (
        "import subprocess, sys, time\n"
        "process = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "print(process.pid, flush=True); time.sleep(1000)"
    )
    command = [*PROGRAM, *PYTHON, DAEMON.format(stays=1000), str(tmp_path / "pid")]
    parent = subprocess.Popen([*PYTHON, owner, *command], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    supervisor = int(parent.stdout.readline())
    daemon = pid_in(tmp_path / "pid")
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: gone(daemon) and gone(supervisor), 30)


def test_a_command_that_ignores_signals_ends_too(start: Start) -> None:
    code = "import signal, time\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\nprint('up'); time.sleep(1000)"
    process = start(*PYTHON, code)
    (running,) = news(process)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(30) == 0
    assert gone(running["pid"])


def test_what_is_written_to_the_lifeline_does_not_end_it(start: Start) -> None:
    process = start(*PYTHON, "import time; time.sleep(0.3)")
    assert process.stdin is not None
    process.stdin.write("x")
    process.stdin.flush()
    assert news(process, 2)[1] == {"exit": 0}


@pytest.mark.parametrize("listed", [True, False], ids=["by the kernel's lists", "by each one's parent"])
def test_descendants_are_found_at_any_depth(listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not listed:
        monkeypatch.setattr(supervise, "_CHILDREN", "/proc/nowhere")
    code = (
        "import subprocess, sys, time\n"
        "if sys.argv[1:]: subprocess.Popen(sys.orig_argv[:-1])\n"
        "print(flush=True); time.sleep(1000)"
    )
    process = subprocess.Popen([*PYTHON, code, "more"], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.readline()
        mine = descendants(os.getpid())
        (grandchild,) = descendants(process.pid)
        assert {process.pid, grandchild} <= set(mine)
        assert descendants(grandchild) == []
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert descendants(process.pid) == []


#: Makes semaphores as workers that are spawned have them, and a file as torch's in shared memory; then ends, or stays.
SEMAPHORES = """
import multiprocessing, os, sys, time
locks = [multiprocessing.get_context("spawn").Lock() for _ in range(3)]
open(f"/dev/shm/torch_{os.getpid()}_1_0", "w").close()
names = [f"/dev/shm/sem.{lock._semlock.name[1:]}" for lock in locks] + [f"/dev/shm/torch_{os.getpid()}_1_0"]
assert all(map(os.path.exists, names))
with open(sys.argv[1] + ".new", "w") as file:
    file.write(" ".join(names))
os.rename(sys.argv[1] + ".new", sys.argv[1])
os.fork()
time.sleep(1000)
"""


def test_nothing_of_what_was_ended_stays_in_shared_memory(start: Start, tmp_path: Path) -> None:
    told = tmp_path / "names"
    process = start(*PYTHON, SEMAPHORES, str(told))
    wait_until(told.exists)
    names = [Path(name) for name in told.read_text().split()]
    assert len(names) == 4
    assert process.stdin is not None
    process.stdin.close()
    process.wait(30)
    assert [name for name in names if name.exists()] == []


WORKER = """
import os, sys, time
if not os.fork():
    open(f"/dev/shm/torch_{os.getpid()}_1_0", "wb").close()
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    time.sleep(2)
    os._exit(1)
os.wait()
sys.exit(3)
"""


def test_a_file_of_a_process_that_has_ended_before_the_command_does_not_stay_either(
    start: Start, tmp_path: Path
) -> None:
    """torch leaves the file of a batch for which there was no room; the script then ends by itself."""
    process = start(*PYTHON, WORKER, str(tmp_path / "pid"))
    name = Path(f"/dev/shm/torch_{pid_in(tmp_path / 'pid')}_1_0")
    stranger = Path(f"/dev/shm/torch_{os.getpid()}_{name.name.split('_')[1]}_0")
    stranger.touch()
    try:
        assert news(process, 2)[1] == {"exit": 3}
        process.wait(30)
        assert not name.exists()
        assert stranger.exists()
    finally:
        stranger.unlink()
        name.unlink(missing_ok=True)
