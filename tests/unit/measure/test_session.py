"""A session with a small program in the child's place, which speaks the same lines."""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from pipetune.measure import session as module
from pipetune.measure.conditions import Conditions, Live
from pipetune.measure.recording import Recording
from pipetune.measure.session import Session
from pipetune.processes.signals import DeferredSignals
from pipetune.records.sweep import Failure
from tests.forks import state_of
from tests.integration.commands import wait_until
from tests.photo_set import workload

PREAMBLE = """
import json, os, signal, sys, time
fd = int(os.environ["PIPETUNE_WIRE_FD"])
def send(kind, **fields):
    os.write(fd, json.dumps({"v": 1, "type": kind, **fields}).encode() + b"\\n")
def hello():
    send("hello", pid=os.getpid(), gpu_uuid=None, versions={"torch": "2"})
def steps(phase, *ends):
    send("steps", phase=phase, rows=[[end - 10, 0.0, None, 5e-9, 0.0, end, 4] for end in ends])
def result(**more):
    send("result", warmup_batches=2, steady=True, window_batches=2, speed_before=[80.0, 90.0], pss_bytes=None,
         gpu_mem_bytes=None, batch_shape=[4, 3, 8, 8], copy_bytes_per_s=None, **more)
request = sys.stdin.readline()
"""
Follow = Callable[..., tuple[Failure | None, Recording]]


@pytest.fixture
def follow(monkeypatch: pytest.MonkeyPatch) -> Follow:
    """Runs a program as the child and follows it to its end."""

    def run(
        program: str, *, limit_s: float = 30.0, stop: bool = False, on_live: Callable[[Live], None] = lambda live: None,
        variables: dict[str, str] | None = None,
    ) -> tuple[Failure | None, Recording]:  # fmt: skip
        monkeypatch.setattr(module, "_PROGRAM", PREAMBLE + textwrap.dedent(program))
        recording = Recording()
        conditions = Conditions(workload=workload(), paths=(), cores=frozenset(os.sched_getaffinity(0)))
        deferred = DeferredSignals()
        session = Session(recording, conditions, on_live, deferred)
        try:
            session.start(variables or {})
            session.send(b'{"role": "x"}\n')
            if stop:
                deferred.numbers.append(signal.SIGTERM)
            return session.follow(limit_s), recording
        finally:
            session.close()

    return run


def test_what_a_child_sends_is_recorded(follow: Follow) -> None:
    lives: list[Live] = []
    failure, recording = follow(
        """
        hello()
        send("phase", phase="warmup")
        send("first_batch", open_s=0.5, time_to_first_batch_s=1.5)
        steps("warmup", 100, 200)
        send("phase", phase="timed")
        steps("timed", 300, 400)
        result()
        send("closed", speed_after=[80.0, 90.0])
        """,
        on_live=lives.append,
    )
    assert failure is None
    assert recording.hello["versions"]["torch"] == "2"
    assert [step.t_end_ns for step in recording.warmup] == [100, 200]
    assert [step.t_end_ns for step in recording.timed] == [300, 400]
    assert recording.first_batch["time_to_first_batch_s"] == 1.5
    assert recording.result["warmup_batches"] == 2
    assert recording.speed_after == (80.0, 90.0)
    assert recording.notes == []
    assert [live.phase for live in lives] == ["warmup", "warmup", "timed", "timed"]
    assert lives[-1].samples_per_s == pytest.approx(4 / 100e-9)


def test_the_request_and_the_variables_arrive(follow: Follow) -> None:
    _, recording = follow(
        """
        result(request=request, variable=os.environ["MALLOC"])
        send("closed", speed_after=None)
        """,
        variables={"MALLOC": "other"},
    )
    assert recording.result["request"] == '{"role": "x"}\n'
    assert recording.result["variable"] == "other"


def test_a_failure_that_the_child_reports(follow: Follow) -> None:
    failure, _ = follow(
        """
        print("a library's warning", file=sys.stderr, flush=True)
        send("phase", phase="open")
        send("failure", failure={"kind": "error", "phase": "open", "message": "no such image", "hint": None})
        """
    )
    assert failure is not None
    assert (failure.kind, failure.phase, failure.message) == ("error", "open", "no such image")


@pytest.mark.parametrize(
    ("program", "kind", "words"),
    [
        ("send('phase', phase='timed'); sys.exit(3)", "crashed", "exit code 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed", "SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "crashed", "SIGSEGV"),
    ],
)
def test_a_child_that_ends_without_a_result(follow: Follow, program: str, kind: str, words: str) -> None:
    failure, _ = follow(f"print('the last line', file=sys.stderr, flush=True); {program}")
    assert failure is not None
    assert failure.kind == kind
    assert words in failure.message
    assert failure.stderr_tail == "the last line"


def test_a_child_that_does_not_end_in_time(follow: Follow) -> None:
    failure, _ = follow("send('phase', phase='first_batch'); time.sleep(60)", limit_s=3.0)
    assert failure is not None
    assert (failure.kind, failure.phase) == ("hung", "first_batch")


def test_a_result_counts_though_the_loader_does_not_end(follow: Follow) -> None:
    failure, recording = follow("send('result'); time.sleep(60)", limit_s=3.0)
    assert failure is None
    assert "had not ended" in recording.notes[-1]


def test_a_result_counts_though_the_loader_crashes_while_it_closes(follow: Follow) -> None:
    failure, recording = follow("send('result'); os.kill(os.getpid(), signal.SIGSEGV)")
    assert failure is None
    assert "SIGSEGV" in recording.notes[-1]


def test_no_process_is_left(follow: Follow) -> None:
    _, recording = follow(
        """
        hello()
        pid = os.fork()
        if pid == 0:
            os.close(fd)
            time.sleep(60)
        result(grandchild=pid)
        send("closed", speed_after=None)
        """
    )
    wait_until(lambda: has_ended(recording.result["grandchild"]))


@pytest.mark.parametrize(("timeout_s", "more_s"), [(None, 240.0), (160.0, 0.0)], ids=["by default", "as asked"])
def test_where_a_batch_takes_long_there_is_time_for_those_that_a_rate_needs(
    timeout_s: float | None, more_s: float
) -> None:
    recording = Recording()
    conditions = Conditions(workload=workload(), paths=(), cores=frozenset({0}), timeout_s=timeout_s)
    session = Session(recording, conditions, lambda live: None, DeferredSignals())
    assert session._slow_batches_s() == 0.0, "nothing has come yet"
    recording.first_batch = {"open_s": 0.1, "time_to_first_batch_s": 40.0}
    assert session._slow_batches_s() == more_s


def test_a_child_is_reaped_when_its_group_has_been_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, a signal to its number can reach nobody else; afterwards, the number may be another group's."""
    monkeypatch.setattr(module, "_PROGRAM", PREAMBLE + "result(pid=os.getpid()); send('closed', speed_after=None)")
    recording = Recording()
    conditions = Conditions(workload=workload(), paths=(), cores=frozenset({0}))
    session = Session(recording, conditions, lambda live: None, DeferredSignals())
    kept: list[str | None] = []
    end = os.killpg

    def note(pid: int, number: int) -> None:
        kept.append(state_of(pid))
        end(pid, number)

    monkeypatch.setattr(os, "killpg", note)
    try:
        session.start({})
        session.send(b'{"role": "x"}\n')
        assert session.follow(30.0) is None
    finally:
        session.close()
    assert kept == ["Z"]
    assert state_of(recording.result["pid"]) is None


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_bad_images_are_collected(follow: Follow) -> None:
    lives: list[Live] = []
    failure, recording = follow(
        """
        send("phase", phase="check")
        send("checked", done=2, bad=[[1, "cut off"]])
        send("checked", done=4, bad=[[3, "no image"]])
        send("result")
        send("closed", speed_after=None)
        """,
        on_live=lives.append,
    )
    assert failure is None
    assert recording.bad_images == {1: "cut off", 3: "no image"}
    assert [live.images_done for live in lives] == [None, 2, 4]


def test_a_signal_ends_the_measurement(follow: Follow) -> None:
    failure, _ = follow("time.sleep(60)", stop=True)
    assert failure is not None
    assert failure.kind == "interrupted"


class Servers:
    """Stand in for fork servers that have no child to give."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def settle(self, stop: Callable[[], bool]) -> None:
        self.asked.append(f"settle {stop()}")

    def fork(self, *_: object) -> None:
        self.asked.append("fork")


@pytest.mark.parametrize(("new_process", "asked"), [(True, "settle False"), (False, "fork")])
def test_a_new_process_waits_for_servers_that_still_import_and_takes_the_place_of_a_fork(
    monkeypatch: pytest.MonkeyPatch, new_process: bool, asked: str
) -> None:
    monkeypatch.setattr(module, "_PROGRAM", PREAMBLE + "send('result'); send('closed', speed_after=None)")
    servers = Servers()
    conditions = Conditions(
        workload=workload(), paths=(), cores=frozenset({0}), new_process=new_process,
        servers=servers,  # type: ignore[arg-type]
    )  # fmt: skip
    session = Session(Recording(), conditions, lambda live: None, DeferredSignals())
    try:
        session.start({})
        assert not session.forked
        session.send(b'{"role": "x"}\n')
        assert session.follow(30.0) is None
    finally:
        session.close()
    assert servers.asked == [asked]


@pytest.mark.parametrize(
    "line", [b"half a mess\n", b'{"v": 1, "type": "steps", "rows": 3}\n', b'{"v": 1, "type": "phase"\n{"v": 1}\n']
)
def test_a_torn_line_is_this_candidates_failure(follow: Follow, line: bytes) -> None:
    failure, _ = follow(f"""
        hello()
        send("phase", phase="timed")
        os.write(fd, {line!r})
        time.sleep(60)
    """)
    assert failure is not None
    assert (failure.kind, failure.phase) == ("error", "timed")
    assert failure.message.startswith("what the child sent cannot be read: ")
    assert failure.hint


def test_a_line_without_an_end_is_not_kept(follow: Follow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipetune.measure.messages.MOST_BYTES", 1 << 20)
    failure, _ = follow("""
        while True:
            os.write(fd, b"x" * 65536)
    """)
    assert failure is not None
    assert "a line of more than 1 MiB" in failure.message


def test_a_torn_line_after_the_result_is_noted(follow: Follow) -> None:
    failure, recording = follow("""
        hello()
        send("result")
        os.write(fd, b"half a mess\\n")
        time.sleep(60)
    """)
    assert failure is None
    assert recording.notes[-1].startswith("measured, but then the child sent what cannot be read")
