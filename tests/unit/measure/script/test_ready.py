from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from pipetune.measure.script import ready as module
from pipetune.measure.script.ready import HELLO_S, ScriptError, describe_wait, wait_until_ready
from pipetune.measure.script.session import Peer
from pipetune.measure.script.untrained import Untrained
from pipetune.records.script import LoaderIdentity
from tests.integration.commands import wait_until
from tests.unit.measure.script.fake_session import FakeSession, as_session


def wait(session: FakeSession, setup_s: float = 5.0) -> Any:
    seconds: list[float] = []
    return wait_until_ready(as_session(session), setup_s, seconds.append), seconds


def refused(session: FakeSession, setup_s: float = 5.0) -> ScriptError:
    with pytest.raises(ScriptError) as caught:
        wait(session, setup_s)
    return caught.value


def came_to(session: FakeSession, *kinds: str) -> FakeSession:
    session.peers.append(Peer(cast(Any, None), reached=["hello", *kinds]))
    return session


def test_what_it_trains_on_is_what_the_first_rank_says() -> None:
    session = FakeSession()
    session.add(rank=0, ranks=2, device="cuda", gpu_uuid="GPU-1")
    session.add(rank=1, ranks=2)
    loader, seconds = wait(session)
    assert loader.identity == LoaderIdentity(
        file="/job/train.py", function="main", dataset="Images", sampler="RandomSampler", ordinal=0, position=(7, 4)
    )
    assert (loader.ranks, loader.python, loader.gpu_uuid, loader.cores) == (2, "3.12.1", "GPU-1", (4, 4))
    assert loader.settings["num_workers"] == 2
    assert seconds == []


def test_a_loader_that_cannot_be_recognised_is_measured_all_the_same() -> None:
    session = FakeSession()
    session.add(identity=None, where=None)
    assert wait(session)[0].identity is None


def test_one_rank_of_two_is_not_enough_and_the_seconds_are_told() -> None:
    session = FakeSession("limit", "limit", "limit", "limit")
    session.add(ranks=2)
    seconds: list[float] = []
    with pytest.raises(ScriptError):
        wait_until_ready(as_session(session), 3.0, seconds.append)
    assert seconds == [1.0, 2.0, 3.0]


def test_a_rank_that_ends_before_the_others_train_is_told() -> None:
    session = FakeSession("lost", lost=2)
    session.add(ranks=4)
    assert "rank 2 of the script had ended" in refused(session).message


def test_a_rank_that_has_ended_is_told_with_its_exception() -> None:
    error = (
        'Traceback (most recent call last):\n  File "/job/train.py", line 9, in main\n    f()\nValueError: no data\n'
    )
    session = FakeSession("lost", lost=1, last_lines="".join(f"[rank1]: {line}\n" for line in error.splitlines()))
    session.add(ranks=2)
    told = refused(session)
    assert told.message == (
        "rank 1 of the script had ended before all of them trained: ValueError: no data (/job/train.py:9, rank 1)"
    )
    assert told.hint == "its output is in run/script.log"


def test_a_python_that_is_too_old_is_refused_with_its_version() -> None:
    error = refused(FakeSession(too_old="3.8"))
    assert "3.8" in error.message
    assert error.hint


@pytest.mark.parametrize(
    ("known", "made", "expected"),
    [
        (
            {"function": "get_batch", "file": "/job/train.py", "line": 116, "loop": "/job/train.py:300"},
            [],
            "the script trains without a DataLoader; its batches come from get_batch at /job/train.py:116",
        ),
        (
            {"function": None, "file": None, "line": None, "loop": "/job/train.py:300"},
            ["a.py:3 (D)"],
            "the script trains without a DataLoader (it made a.py:3 (D)); the loop that steps its optimizer is at "
            "/job/train.py:300",
        ),
        ({}, [], "the script trains without a DataLoader; where its batches come from was not seen"),
    ],
)
def test_a_training_without_a_loader_is_told_at_once_with_the_place_of_its_batches(
    known: dict[str, Any], made: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_maps", lambda pid: "/lib/libtorch.so")  # the tests' own process may have loaded more
    error = refused(came_to(FakeSession(loaderless={"steps": 64, **known}, loaders_made=made), "torch"), setup_s=1e6)
    assert error.message == expected
    assert "pipetune watch" in (error.hint or "")


def test_one_rank_that_trains_on_a_loader_comes_first() -> None:
    session = FakeSession(loaderless={"steps": 64})
    session.add()
    assert wait(session)[0].ranks == 1


def test_pipetune_that_is_to_stop_stops() -> None:
    assert "stopped" in refused(FakeSession("stopped")).message


def test_a_command_that_could_not_be_started_says_why() -> None:
    error = refused(FakeSession("ended", error="cannot start 'x': No such file or directory"))
    assert error.message == "cannot start 'x': No such file or directory"


@pytest.mark.parametrize(("code", "expected"), [(3, "exit code 3"), (-11, "SIGSEGV")])
def test_a_script_that_fails_in_its_set_up_is_told_with_its_last_line(code: int, expected: str) -> None:
    error = refused(FakeSession("ended", exit_code=code, last_lines="Traceback\nValueError: no data"))
    assert expected in error.message
    assert error.message.endswith("ValueError: no data")
    assert "Traceback" not in error.message
    assert "run/script.log" in (error.hint or "")


def test_a_script_that_raises_in_its_set_up_is_told_with_its_exception_and_no_more() -> None:
    output = 'Traceback (most recent call last):\n  File "/job/train.py", line 7, in f\nOSError: Too many open files\n'
    error = refused(came_to(FakeSession("ended", exit_code=1, last_lines=output), "torch"))
    assert error.message == (
        "the script ended with exit code 1 before it trained: OSError: Too many open files (/job/train.py:7)"
    )
    assert error.hint is not None
    assert "ulimit -n" in error.hint


def test_a_script_without_a_guard_is_told_so_before_it_trains() -> None:
    output = "RuntimeError:\n  current process has finished its bootstrapping phase.\nRuntimeError: DataLoader worker"
    error = refused(FakeSession("ended", exit_code=1, last_lines=output))
    assert "no if __name__ == " in error.message


def test_a_checkpoint_that_comes_first_is_told() -> None:
    assert "last.pth" in refused(FakeSession("ended", checkpoint="last.pth", exit_code=0)).message


@pytest.mark.parametrize(
    ("kinds", "made", "expected"),
    [
        ((), [], "imported no torch DataLoader"),
        (("torch",), [], "made no DataLoader"),
        (("torch",), ["a.py:3 (D)", "a.py:3 (D)"], "made a.py:3 (D), and took no batch"),
        (("torch", "iterated"), ["a.py:3 (D)"], "no optimizer stepped after three"),
    ],
)
def test_one_that_ends_without_training_is_told_how_far_it_came(kinds: Any, made: Any, expected: str) -> None:
    error = refused(came_to(FakeSession("ended", exit_code=0, loaders_made=made), *kinds))
    assert expected in error.message
    assert error.hint


def test_a_script_that_took_batches_and_did_not_train_is_told_so() -> None:
    untrained = Untrained(steps=0, backward=0, batches=0, evaluated=4, elsewhere=False, where="a.py:3")
    error = refused(came_to(FakeSession("ended", exit_code=0, untrained=untrained), "torch", "iterated"))
    assert "4 batches of the loader at a.py:3" in error.message
    assert "evaluate" in (error.hint or "")


def test_what_is_waited_for_says_whether_the_script_takes_batches() -> None:
    assert describe_wait(as_session(came_to(FakeSession(), "torch")), 4.0) == "starting the script: 4 s"
    assert "takes batches" in describe_wait(as_session(came_to(FakeSession(), "torch", "iterated")), 4.0)


def test_a_library_out_of_reach_is_named_and_one_whose_loaders_were_seen_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_maps", lambda pid: "/x/nvidia/dali/libdali.so\n/x/ffcv/_libffcv.so")
    session = FakeSession("ended", exit_code=0, loaders_made=["a.py:9 (a DALI pipeline)"], libraries={"DALI"})
    error = refused(came_to(session, "torch", "iterated"))
    assert "it loads with FFCV, which is out of reach" in error.message


@pytest.mark.parametrize("torch", [True, False])
def test_one_of_which_no_process_took_up_the_hook_is_told_after_a_while(
    torch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_maps", lambda pid: "/lib/libtorch.so" if torch else "")
    error = refused(FakeSession(), setup_s=10 * HELLO_S)
    assert "did not get into the script" in error.message
    assert ("no process has loaded torch" in error.message) is not torch


def test_one_that_takes_too_long_is_told_how_far_it_came() -> None:
    error = refused(came_to(FakeSession(), "torch"), setup_s=2.0)
    assert "after 2 s" in error.message
    assert "made no DataLoader" in error.message


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-I"], ["-I"]), (["-u", "-E"], ["-E"]), (["-uE"], ["-uE"]), (["-W", "ignore", "-S"], ["-S"]), (["-u"], []),
        (["-X", "importtime"], []), ([], []),
    ],
    ids=str,
)  # fmt: skip
def test_options_that_keep_the_hook_out_are_seen_before_the_script_alone(words: list[str], expected: list[str]) -> None:
    code = "import sys; print(flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, *words, "-c", code, "-I"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert list(module._closing_flags(process.pid)) == expected
    finally:
        process.communicate()


def test_a_script_by_standard_input_has_no_such_option() -> None:
    process = subprocess.Popen([sys.executable, "-"], stdin=subprocess.PIPE)
    try:
        wait_until(lambda: b"python" in Path(f"/proc/{process.pid}/cmdline").read_bytes(), 30)
        assert list(module._closing_flags(process.pid)) == []
    finally:
        process.communicate()


def test_a_process_that_is_gone_has_none() -> None:
    assert list(module._closing_flags(2**22 + 1)) == []
