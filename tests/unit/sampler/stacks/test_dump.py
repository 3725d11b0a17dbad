from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipetune.sampler.stacks import dump as module
from pipetune.sampler.stacks.activity import Frame
from pipetune.sampler.stacks.dump import StackDump, dump, find_py_spy, parse_dump
from pipetune.sampler.stacks.source import source_line

#: Asleep in a method, with a thread beside it; any process may trace it, whatever Yama says (PR_SET_PTRACER_ANY).
JOB = """\
import ctypes, threading, time
ctypes.CDLL(None).prctl(0x59616d61, ctypes.c_ulong(-1))

class Loop:
    def run(self):
        print("ready", flush=True)
        time.sleep(60)  # here

threading.Thread(target=lambda: time.sleep(60), daemon=True).start()
Loop().run()
"""
THREAD: dict[str, Any] = {
    "pid": 7, "thread_id": 139802834467712, "thread_name": "MainThread", "os_thread_id": 7, "active": True,
    "owns_gil": True,
    "frames": [
        {
            "name": "Loop.run", "filename": "/home/me/train.py", "module": None, "short_filename": "train.py",
            "line": 4, "locals": None, "is_entry": False, "is_shim_entry": False,
        }
    ],
    "process_info": None,
}  # fmt: skip
FRAME = Frame("Loop.run", "train.py", 4, "/home/me/train.py")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A real Python process, started by a relative path in its own working directory."""
    (tmp_path / "job.py").write_text(JOB)
    with subprocess.Popen([sys.executable, "job.py"], cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], str]:
    """Writes a shell script that stands in for py-spy."""

    def write(text: str) -> str:
        path = tmp_path / "py-spy"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    return write


def _real(pid: int) -> StackDump:
    """A dump of the real py-spy; one that was torn is taken again."""
    if find_py_spy() is None:
        pytest.skip("py-spy is not installed")
    for _ in range(20):
        seen = dump(pid)
        if seen.permanent:
            pytest.skip(seen.problem)
        if seen.threads.get(pid):
            return seen
        time.sleep(0.05)
    raise AssertionError(seen)


def test_a_real_dump_has_the_frames_of_all_threads(job: subprocess.Popen[bytes]) -> None:
    threads = _real(job.pid).threads

    main = threads[job.pid]
    assert [frame.name.rpartition(".")[2] for frame in main] == ["run", "<module>"]
    assert main[0].line == JOB.splitlines().index("        time.sleep(60)  # here") + 1
    assert os.path.basename(main[0].path) == "job.py"
    assert len(threads) == 2
    assert set(threads) == {int(name) for name in os.listdir(f"/proc/{job.pid}/task")}


def test_a_real_thread_that_sleeps_is_not_on_a_core(job: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + 30
    while (seen := _real(job.pid)).active.get(job.pid) is not False:
        assert time.monotonic() < until_s

    assert set(seen.active) <= set(seen.threads)


def test_a_line_of_a_real_process_is_found_from_its_own_folder(job: subprocess.Popen[bytes]) -> None:
    frame = _real(job.pid).threads[job.pid][0]

    assert source_line(job.pid)(frame).strip() == "time.sleep(60)  # here"


def test_a_process_that_runs_no_python_is_asked_again_later() -> None:
    # A shell that will become Python by exec is the same process before and after.
    if find_py_spy() is None:
        pytest.skip("py-spy is not installed")
    with subprocess.Popen(["sleep", "60"]) as process:
        seen = dump(process.pid)
        process.kill()

    assert seen.threads == {}
    assert seen.problem
    assert not seen.permanent or "forbid" in seen.problem


def test_a_process_that_has_ended_is_a_problem_and_no_error() -> None:
    if find_py_spy() is None:
        pytest.skip("py-spy is not installed")
    with subprocess.Popen(["true"]) as process:
        process.wait()

    seen = dump(process.pid)

    assert seen.threads == {}
    assert seen.problem is not None
    assert "py-spy" in seen.problem


def test_frames_are_taken_from_json() -> None:
    other = THREAD | {"os_thread_id": 9, "thread_name": "pt_data_pin"}

    assert parse_dump(json.dumps([THREAD, other]).encode()).threads == {7: (FRAME,), 9: (FRAME,)}


def test_python_before_3_11_has_no_thread_numbers_and_its_main_thread_is_found() -> None:
    # What py-spy 0.4.3 says of Python 3.8, 3.9 and 3.10 with --nonblocking.
    threads = [THREAD | {"os_thread_id": None}, THREAD | {"os_thread_id": None, "thread_name": "Thread-1"}]

    assert parse_dump(json.dumps(threads).encode()).threads == {7: (FRAME,)}


def test_the_main_thread_of_a_container_is_found_from_outside() -> None:
    # Its own number of itself is the container's.
    assert parse_dump(json.dumps([THREAD | {"os_thread_id": 1}]).encode()).threads == {7: (FRAME,)}


def test_a_forked_process_whose_main_thread_has_another_name_is_found_by_number() -> None:
    assert parse_dump(json.dumps([THREAD | {"thread_name": "Thread-3"}]).encode()).threads == {7: (FRAME,)}
    assert parse_dump(json.dumps([THREAD | {"thread_name": None}]).encode()).threads == {7: (FRAME,)}


def test_it_is_known_which_threads_were_on_a_core() -> None:
    asleep = THREAD | {"os_thread_id": 9, "thread_name": "pt_data_pin", "active": False}

    assert parse_dump(json.dumps([THREAD, asleep]).encode()).active == {7: True, 9: False}


@pytest.mark.parametrize("number", [None, 1])
def test_py_spy_does_not_know_whether_a_thread_without_a_right_number_was_on_a_core(number: int | None) -> None:
    # Of a thread of Python 3.10 that is asleep in time.sleep or a collective it says that it is active.
    assert parse_dump(json.dumps([THREAD | {"os_thread_id": number}]).encode()).active == {}


@pytest.mark.parametrize("holds", [True, False])
def test_it_is_known_which_thread_ran_python_and_no_native_code(holds: bool) -> None:
    assert parse_dump(json.dumps([THREAD | {"owns_gil": holds}]).encode()).in_python == {7: holds}


def test_a_process_of_very_many_threads_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_THREADS", 0)

    seen = dump(os.getpid(), "/bin/false")

    assert seen.problem is not None
    assert "threads, too many" in seen.problem
    assert not seen.permanent


def test_threads_without_frames_are_left_out() -> None:
    assert parse_dump(json.dumps([THREAD | {"frames": []}]).encode()).threads == {}
    assert parse_dump(b"[]").threads == {}


def test_a_frame_without_a_short_name_has_its_whole_path() -> None:
    frame = THREAD["frames"][0] | {"short_filename": None}

    assert parse_dump(json.dumps([THREAD | {"frames": [frame]}]).encode()).threads[7][0].file == "/home/me/train.py"


@pytest.mark.parametrize(
    "answer", ["", "not json", "null", '{"a": 1}', "[1]", '[{"pid": 1}]', '[{"os_thread_id": 3, "frames": [{}]}]',
               '[{"os_thread_id": 3, "frames": ["x"]}]']
)  # fmt: skip
def test_garbage_is_a_problem_that_may_pass(program: Callable[[str], str], answer: str) -> None:
    seen = dump(7, program(f"cat <<'END'\n{answer}\nEND"))

    assert seen.threads == {}
    assert seen.problem == "stacks: py-spy's answer could not be read"
    assert not seen.permanent


def test_bytes_that_are_no_text_are_a_problem_that_may_pass(program: Callable[[str], str]) -> None:
    seen = dump(7, program(r"printf '\377\376\000'"))

    assert (seen.problem, seen.permanent) == ("stacks: py-spy's answer could not be read", False)


def test_an_answer_is_read(program: Callable[[str], str]) -> None:
    seen = dump(7, program(f"cat <<'END'\n{json.dumps([THREAD])}\nEND"))

    assert seen.threads == {7: (FRAME,)}
    assert seen.problem is None


def test_py_spy_is_asked_not_to_stop_the_process(program: Callable[[str], str], tmp_path: Path) -> None:
    dump(7, program(f'echo "$@" > {tmp_path}/asked; echo "[]"'))

    assert (tmp_path / "asked").read_text().split() == ["dump", "--pid", "7", "--nonblocking", "--json"]


def test_a_py_spy_that_hangs_is_ended(program: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT_S", 0.2)

    seen = dump(7, program("exec sleep 60"))

    assert seen.problem is not None
    assert "did not answer" in seen.problem
    assert not seen.permanent


@pytest.mark.parametrize(
    "words", ["Permission Denied: Try running again with elevated permissions", "Error: EPERM: Operation not permitted"]
)
def test_a_refusal_is_final_and_says_what_would_allow_it(program: Callable[[str], str], words: str) -> None:
    seen = dump(7, program(f"echo '{words}' >&2; exit 1"))

    assert seen.permanent
    assert seen.problem is not None
    assert "ptrace_scope" in seen.problem or "SYS_PTRACE" in seen.problem


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        ("0", "SYS_PTRACE"),
        ("1", "'pipetune watch -- …', or allow it: sudo sysctl kernel.yama.ptrace_scope=0"),
        ("2", "but to root; allow it: sudo sysctl kernel.yama.ptrace_scope=0"),
        ("3", "until the machine is started anew"),
    ],
)
def test_the_way_to_allow_it_depends_on_who_refused(tmp_path: Path, scope: str, said: str) -> None:
    (tmp_path / "ptrace_scope").write_text(f"{scope}\n")

    assert said in module._how_to_allow(str(tmp_path / "ptrace_scope"))
    assert "SYS_PTRACE" in module._how_to_allow(str(tmp_path / "absent"))


def test_other_words_of_py_spy_are_passed_on(program: Callable[[str], str]) -> None:
    seen = dump(
        7, program("printf '\\n  Error: Failed to get process executable name\\n\\nCaused by: x\\n' >&2; exit 1")
    )

    assert seen.problem == "stacks: py-spy: Error: Failed to get process executable name"
    assert not seen.permanent


def test_a_failure_without_a_message_is_reported(program: Callable[[str], str]) -> None:
    assert dump(7, program("exit 3")).problem == "stacks: py-spy: no reason given"


def test_a_program_that_cannot_be_run_is_final(tmp_path: Path) -> None:
    seen = dump(7, str(tmp_path / "absent"))

    assert seen.permanent
    assert seen.problem is not None
    assert "cannot run" in seen.problem


def test_without_py_spy_the_problem_names_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_py_spy", lambda: None)

    seen = dump(7)

    assert seen.permanent
    assert seen.problem == "stacks: py-spy is not installed (pip install 'pipetune[stacks]')"


def test_py_spy_beside_this_python_is_preferred(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    beside, on_path = tmp_path / "venv", tmp_path / "bin"
    for folder in (beside, on_path):
        folder.mkdir()
        (folder / "py-spy").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(beside / "python"))
    monkeypatch.setenv("PATH", str(on_path))

    assert find_py_spy() == str(beside / "py-spy")
    (beside / "py-spy").unlink()
    assert find_py_spy() == str(on_path / "py-spy")
    (on_path / "py-spy").unlink()
    assert find_py_spy() is None
