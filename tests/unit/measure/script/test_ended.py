from __future__ import annotations

from typing import Any

import pytest

from pipetune.measure.script.ended import explain_end, explain_error, explain_hung, find_cause
from pipetune.measure.script.protocol import CLOSED
from tests.unit.measure.script.fake_session import FakeOomKills, FakeSession, as_session

TRACEBACK = """Traceback (most recent call last):
  File "/job/train.py", line 30, in <module>
    main()
    ~~~~^^
  File "/job/train.py", line 12, in main
    batch = next(loader)
            ^^^^^^^^^^^^
{error}
"""


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"lost": 1}, "rank 1 of the script has ended, or closed pipetune's connection"),
        ({"lost": 0, "process_ended": True, "exit_code": CLOSED}, "rank 0 of the script has closed pipetune's"),
        ({"lost": 0, "process_ended": True, "exit_code": 3}, "the script ended with exit code 3"),
        ({"process_ended": True, "exit_code": CLOSED}, "the script ended with exit code 74"),
    ],
)
def test_a_rank_that_closes_the_connection_is_named(attributes: dict[str, Any], expected: str) -> None:
    failure = explain_end(as_session(FakeSession(**attributes)), "timed")
    assert failure.kind == "crashed"
    assert expected in failure.message


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ({"exit_code": 0}, "script_ended"),
        ({"exit_code": None}, "script_ended"),
        ({"exit_code": 3}, "crashed"),
        ({"exit_code": -9}, "killed"),
        ({"exit_code": 137}, "killed"),
        ({"exit_code": 0, "checkpoint": "last.pth"}, "checkpoint"),
    ],
)
def test_how_the_script_ended_is_what_became_of_the_candidate(attributes: dict[str, Any], kind: str) -> None:
    failure = explain_end(as_session(FakeSession(last_lines="last words", **attributes)), "timed")
    assert (failure.kind, failure.phase) == (kind, "timed")
    assert kind == "checkpoint" or failure.stderr_tail == "last words"


def test_the_exceptions_own_line_its_place_and_the_log_are_told() -> None:
    output = TRACEBACK.format(error="ZeroDivisionError: division by zero")
    failure = explain_end(as_session(FakeSession(exit_code=1, process_ended=True, last_lines=output)), "timed")
    assert failure.kind == "crashed"
    assert failure.message == (
        "the script ended with exit code 1: ZeroDivisionError: division by zero (/job/train.py:12)"
    )
    assert failure.hint == "see its output in run/script.log"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("RuntimeError: unable to write to file </torch_7_1_0>: No space left on device (28)", "out_of_shared_memory"),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is", "out_of_shared_memory"),
        ("OSError: [Errno 24] Too many open files: '/a'", "out_of_files"),
        ("RuntimeError: received 0 items of ancdata", "out_of_files"),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ", "killed"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", "out_of_gpu_memory"),
        ("OSError: [Errno 12] Cannot allocate memory", "out_of_memory"),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 3. GiB for an array", "out_of_memory"),
        ("AttributeError: Can't pickle local object 'main.<locals>.<lambda>'", "cannot_pickle"),
        ("OSError: [Errno 28] No space left on device", "out_of_disk"),
        ("ValueError: no data", "crashed"),
    ],
)
def test_a_scripts_failures_are_classified_as_candidates_are(error: str, kind: str) -> None:
    cause = find_cause(as_session(FakeSession(exit_code=1, last_lines=TRACEBACK.format(error=error))))
    assert cause.kind == kind
    assert (cause.hint is None) is (kind == "crashed")
    told = explain_error({"error": "X", "message": error.partition(": ")[2], "phase": "timed"}, "", None)
    assert told.kind == ("error" if kind == "crashed" else kind)
    assert told.hint == cause.hint


def test_a_memory_error_without_words_is_one_of_memory() -> None:
    cause = find_cause(as_session(FakeSession(exit_code=1, last_lines=TRACEBACK.format(error="MemoryError"))))
    assert cause.kind == "out_of_memory"


def test_the_cause_of_a_mere_crash_is_that_of_the_exception_before_it() -> None:
    first = TRACEBACK.format(error="OSError: [Errno 24] Too many open files")
    chain = "\nThe above exception was the direct cause of the following exception:\n\n"
    last = TRACEBACK.format(error="RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly")
    cause = find_cause(as_session(FakeSession(exit_code=1, last_lines=first + chain + last)))
    assert cause.kind == "out_of_files"
    assert cause.words == "RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly (/job/train.py:12)"


@pytest.mark.parametrize(
    ("oom_kills", "kind", "words"),
    [(None, "killed", "the kernel does so"), (0, "killed", "something else has"), (2, "out_of_memory", "has ended it")],
)
@pytest.mark.parametrize("who", ["the script", "its worker", "a rank", "a worker of a script that goes on"])
def test_who_has_killed_is_told_by_what_the_kernel_counts(
    who: str, oom_kills: int | None, kind: str, words: str
) -> None:
    of_torch = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. "
    report = "Root Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 7)\n"
    output = {"its worker": TRACEBACK.format(error=of_torch), "a rank": report}.get(who, "")
    if who == "a worker of a script that goes on":
        failure = explain_error({"error": "RuntimeError", "message": of_torch, "phase": "timed"}, "", oom_kills)
    else:
        code = -9 if who == "the script" else 1
        fake = FakeSession(exit_code=code, process_ended=True, last_lines=output, oom_kills=FakeOomKills(oom_kills))
        failure = explain_end(as_session(fake), "timed")
    assert failure.kind == kind
    assert words in (failure.hint or "")


def test_a_worker_whose_end_the_exception_does_not_name_is_told_with_its_signal() -> None:
    lines = TRACEBACK.format(error="EOFError")
    fake = FakeSession(exit_code=1, process_ended=True, last_lines=lines, worker_signal=11)
    failure = explain_end(as_session(fake), "timed")
    assert failure.kind == "crashed"
    assert failure.message.endswith("EOFError (/job/train.py:12); a loader worker was killed by SIGSEGV")


def test_a_script_that_hangs_is_told_with_the_exception_that_it_has_printed() -> None:
    lines = TRACEBACK.format(error="AttributeError: Can't pickle local object 'f'")
    failure = explain_hung(as_session(FakeSession(last_lines=lines)), "timed", 9.0)
    assert failure.kind == "hung"
    assert "; the last exception that it printed: AttributeError: Can't pickle local object 'f'" in failure.message
    assert (failure.hint or "").endswith("see its output in run/script.log")
    assert "exception" not in explain_hung(as_session(FakeSession()), "timed", 9.0).message


def test_a_hint_goes_with_the_path_of_the_output() -> None:
    lines = TRACEBACK.format(error="OSError: [Errno 24] Too many open files")
    failure = explain_end(as_session(FakeSession(exit_code=1, process_ended=True, last_lines=lines)), "timed")
    assert failure.hint is not None
    assert failure.hint.startswith("raise the limit (ulimit -n")
    assert failure.hint.endswith("; see its output in run/script.log")


def test_a_worker_that_has_crashed_is_not_said_to_be_out_of_memory() -> None:
    text = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Segmentation fault. "
    cause = find_cause(as_session(FakeSession(exit_code=1, last_lines=TRACEBACK.format(error=text))))
    assert (cause.kind, cause.hint) == ("crashed", None)


@pytest.mark.parametrize("code", [-7, 135])
def test_sigbus_is_what_a_full_dev_shm_ends_with(code: int) -> None:
    failure = explain_end(as_session(FakeSession(exit_code=code, process_ended=True)), "timed")
    assert failure.kind == "out_of_shared_memory"
    assert "SIGBUS" in failure.message
    assert "/dev/shm" in (failure.hint or "")


def test_a_rank_that_the_kernel_has_killed_is_told_with_its_signal() -> None:
    report = "Root Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 7)\n"
    failure = explain_end(as_session(FakeSession(exit_code=1, process_ended=True, last_lines=report)), "timed")
    assert failure.kind == "killed"
    assert failure.message == "the script ended with exit code 1: killed by SIGKILL (rank 1)"


def test_without_an_exception_the_last_line_that_says_something_is_told() -> None:
    output = "usage: train.py [-h]\ntrain.py: error: no data\n=========\n"
    assert find_cause(as_session(FakeSession(exit_code=2, last_lines=output))).words == (
        "its last line: train.py: error: no data"
    )
    assert find_cause(as_session(FakeSession(exit_code=2))).words is None


@pytest.mark.parametrize(
    "attributes",
    [{"unguarded": True}, {"last_lines": "current process has finished its bootstrapping phase.\n"}],
    ids=["the hook has seen it", "Python has said it"],
)
def test_a_script_without_a_guard_is_told_so(attributes: dict[str, Any]) -> None:
    failure = explain_end(as_session(FakeSession(exit_code=None, **attributes)), "first_batch")
    assert failure.kind == "no_main_guard"
    assert "run/script.log" in failure.message
    assert "__main__" in (failure.hint or "")


@pytest.mark.parametrize(
    ("error", "number", "kind", "words"),
    [
        ("ConnectionResetError", 7, "out_of_shared_memory", "a loader worker was killed by SIGBUS"),
        ("RuntimeError", 9, "killed", "a loader worker was killed by SIGKILL"),
        ("EOFError", None, "crashed", "ended while it handed over a batch (EOFError)"),
    ],
)
def test_a_worker_that_has_died_is_told_with_what_has_ended_it(
    error: str, number: int | None, kind: str, words: str
) -> None:
    text = "DataLoader worker (pid(s) 7) exited unexpectedly" if error == "RuntimeError" else "[Errno 104] reset"
    message = {"error": error, "message": text, "phase": "timed", "worker_signal": number}
    failure = explain_error(message, "", None)
    assert failure.kind == kind
    assert words in failure.message


def test_an_error_in_the_users_code_is_told_with_its_place() -> None:
    worker = "RuntimeError: Caught RuntimeError in DataLoader worker process 0.\nOriginal " + TRACEBACK.format(
        error="RuntimeError: stack expects a non-empty TensorList"
    )
    text = 'Traceback (most recent call last):\n  File "/v/lib/python3.11/site-packages/torch/x.py", line 1, in f\n'
    message = {"error": "RuntimeError", "message": "RuntimeError: stack", "phase": "timed", "traceback": text + worker}
    assert explain_error(message, "", None).message == (
        "RuntimeError: stack expects a non-empty TensorList (/job/train.py:12)"
    )
