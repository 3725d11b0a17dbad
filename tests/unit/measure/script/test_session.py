"""A session with small programs in the script's place, which speak its lines."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipetune.measure.script import session as module
from pipetune.measure.script.protocol import SITE
from pipetune.measure.script.session import Peer, ScriptSession

PREAMBLE = """
import json, os, socket, sys, time
def connect(**fields):
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(os.environ["PIPETUNE_HOOK"].partition(":")[2] + "/socket")
    say(channel, "hello", pid=os.getpid(), python="3.11.0", **fields)
    return channel
def say(channel, kind, **fields):
    channel.sendall(json.dumps({"type": kind, **fields}).encode() + b"\\n")
def wait_for_end(channel):
    return channel.recv(1000)
"""
Open = Callable[..., ScriptSession]


@pytest.fixture
def open_session(tmp_path: Path) -> Iterator[Open]:
    opened: list[ScriptSession] = []

    def start(program: str, *arguments: str, stop: Callable[[], bool] = lambda: False, **options: Any) -> ScriptSession:
        words = [sys.executable, "-S", "-E", "-c", PREAMBLE + program, *arguments]
        opened.append(
            ScriptSession(
                words, options.pop("variables", {}), tmp_path / "script.log", options.pop("profile", None), stop
            )
        )
        return opened[-1]

    yield start
    for session in opened:
        session._ends.close()


#: A sweep that is killed while its script runs.
SWEEP = """
import sys, time
from pathlib import Path
from pipetune.measure.script.session import ScriptSession
session = ScriptSession(["sleep", "600"], {}, Path(sys.argv[1]), None, lambda: False)
print(session._folder, flush=True)
time.sleep(600)
"""


def test_the_folder_of_a_killed_sweep_goes_with_the_next_start(
    open_session: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    sweep = subprocess.Popen([sys.executable, "-c", SWEEP, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True)
    assert sweep.stdout is not None
    folder = Path(sweep.stdout.readline().strip())
    entered = folder / "layers" / "work" / "work"
    entered.mkdir(parents=True, mode=0)  # as overlayfs leaves it
    other = open_session("time.sleep(1000)")
    assert folder.exists()
    sweep.kill()
    sweep.communicate(timeout=30)
    open_session("time.sleep(1000)")
    assert not folder.exists()
    assert Path(other._folder).exists()


def until_end(session: ScriptSession) -> tuple[str | None, list[dict[str, Any]]]:
    messages: list[dict[str, Any]] = []
    reason = session.wait(lambda: False, 30.0, lambda peer, message: messages.append(message))
    return reason, messages


def test_how_far_the_script_came_is_known_after_its_end(open_session: Open) -> None:
    session = open_session(
        "c = connect(); say(c, 'torch'); say(c, 'loader', where='a.py:3', dataset='D');"
        "say(c, 'loader', where='a.py:9', dataset='a DALI pipeline', library='DALI'); say(c, 'steps')"
    )
    reason, messages = until_end(session)
    assert reason == "ended"
    assert session.reached("torch")
    assert not session.reached("ready")
    assert session.loaders_made == ["a.py:3 (D)", "a.py:9 (a DALI pipeline)"]
    assert session.libraries == {"DALI"}
    assert [message["type"] for message in messages] == ["torch", "steps"]
    assert session.exit_code == 0


def test_it_waits_until_every_rank_is_ready_and_orders_them(open_session: Open) -> None:
    program = """
for rank in (1, 0):
    if os.fork() == 0:
        c = connect()
        say(c, "ready", rank=rank, ranks=2)
        wait_for_end(c)
        os._exit(0)
os.wait(); os.wait()
"""
    session = open_session(program)
    assert session.wait(lambda: session.all_ready, 30.0, lambda *_: None) is None
    assert [(peer.ready or {})["rank"] for peer in session.ready] == [0, 1]
    session.close()


@pytest.mark.parametrize(("ranks", "trainings"), [(2, 1), (1, 2)])
def test_processes_that_are_no_ranks_of_one_training_are_several(
    ranks: int, trainings: int, open_session: Open
) -> None:
    program = f"""
for rank in range(2):
    if os.fork() == 0:
        c = connect()
        say(c, "ready", rank=rank % {ranks}, ranks={ranks})
        wait_for_end(c)
        os._exit(0)
os.wait(); os.wait()
"""
    session = open_session(program)
    assert session.trainings == 0
    assert session.wait(lambda: len(session.ready) == 2, 30.0, lambda *_: None) is None
    assert session.trainings == trainings
    session.close()


@pytest.mark.parametrize(("reason", "options"), [("stopped", {"stop": lambda: True}), ("limit", {})])
def test_why_it_did_not_come_to_that_is_told(reason: str, options: dict[str, Any], open_session: Open) -> None:
    session = open_session("time.sleep(1000)", **options)
    assert session.wait(lambda: False, 0.3, lambda *_: None) == reason


def test_what_is_so_already_needs_no_waiting(open_session: Open) -> None:
    session = open_session("time.sleep(1000)")
    assert session.wait(lambda: True, 0.0, lambda *_: None) is None


def test_everything_that_was_sent_before_the_end_is_taken_in(open_session: Open) -> None:
    """Also what several processes sent while nobody listened."""
    session = open_session("for n in range(6): c = connect(); say(c, 'complaint', message=str(n)); c.close()")
    session._process._process.wait(30)
    assert until_end(session)[0] == "ended"
    assert sorted(session.complaints) == ["0", "1", "2", "3", "4", "5"]


def test_a_process_that_connects_after_another_has_ended_does_not_hide_it(open_session: Open, tmp_path: Path) -> None:
    program = """
c = connect(); say(c, "torch"); c.close()
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
c = connect(); say(c, "complaint", message="second"); time.sleep(1000)
"""
    session = open_session(program, str(tmp_path / "mark"))

    def has_ended() -> bool:
        return any(peer.channel.fileno() < 0 for peer in session.peers)

    assert session.wait(has_ended, 30.0, lambda *_: None) is None
    (tmp_path / "mark").touch()
    assert session.wait(lambda: bool(session.complaints), 30.0, lambda *_: None) is None
    assert session.reached("torch")


def test_a_rank_that_has_ended_is_not_ready_any_more(open_session: Open) -> None:
    session = open_session(
        "c = connect(); say(c, 'ready', rank=0, ranks=1); wait_for_end(c); c.close(); time.sleep(1000)"
    )
    assert session.wait(lambda: session.all_ready, 30.0, lambda *_: None) is None
    session.send(session.ready[0], "anything")
    assert session.wait(lambda: not session.ready, 30.0, lambda *_: None) is None
    assert session.reached("ready")


def test_waiting_ends_soon_after_a_rank_has_closed_its_connection(
    open_session: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOST_S", 0.2)
    session = open_session("c = connect(); say(c, 'ready', rank=3, ranks=4); c.close(); time.sleep(1000)")
    assert session.wait(lambda: False, 30.0, lambda *_: None) == "lost"
    assert session.lost == 3


def test_a_process_that_connects_anew_goes_on_as_the_one_that_it_was(open_session: Open) -> None:
    program = """
c = connect(); say(c, "ready", rank=3, ranks=1); wait_for_end(c); c.close()
time.sleep(0.2)
c = connect(); say(c, "steps", rows=[]); wait_for_end(c); c.close(); time.sleep(1000)
"""
    session = open_session(program)
    assert session.wait(lambda: session.all_ready, 30.0, lambda *_: None) is None
    (peer,) = session.ready
    got: list[tuple[Peer, str]] = []
    session.send(peer, "first")
    assert session.wait(lambda: bool(got), 30.0, lambda who, message: got.append((who, message["type"]))) is None
    assert got == [(peer, "steps")]
    assert session.ready == [peer] == session.peers
    assert session.lost is None
    session.send(peer, "second")
    assert session.wait(lambda: session.lost == 3, 30.0, lambda *_: None) is None


def test_a_command_that_ends_with_its_rank_has_ended(open_session: Open) -> None:
    session = open_session("c = connect(); say(c, 'ready', rank=0, ranks=1); c.close(); time.sleep(0.3); sys.exit(5)")
    assert until_end(session)[0] == "ended"
    assert session.exit_code == 5


def test_the_end_is_asked_for_and_a_script_may_end_by_itself(open_session: Open, tmp_path: Path) -> None:
    done = tmp_path / "done"
    session = open_session(
        "c = connect(); say(c, 'ready', rank=0, ranks=1); got = wait_for_end(c); open(sys.argv[1], 'wb').write(got)",
        str(done),
    )
    session.wait(lambda: session.all_ready, 30.0, lambda *_: None)
    session.close()
    assert done.read_bytes() == b'{"type": "end"}\n'
    session.close()


@pytest.mark.parametrize(("then", "is_asked"), [("time.sleep(0)", False), ("say(c, 'resting')", True)])
def test_one_that_is_measured_is_ended_without_being_waited_for(
    open_session: Open, tmp_path: Path, then: str, is_asked: bool
) -> None:
    """It would take up the request to end after its measurement at the earliest."""
    end = tmp_path / "end"
    session = open_session(
        f"c = connect(); say(c, 'ready', rank=0, ranks=1); c.recv(1000); {then}; "
        "say(c, 'steps', rows=[]); got = wait_for_end(c); got and open(sys.argv[1], 'wb').write(got)",
        str(end),
    )
    session.wait(lambda: session.all_ready, 30.0, lambda *_: None)
    session.send(session.ready[0], "measure")
    messages: list[dict[str, Any]] = []
    session.wait(lambda: any(m["type"] == "steps" for m in messages), 30.0, lambda _, m: messages.append(m))
    session.close()
    assert end.exists() is is_asked


def test_one_that_does_not_is_ended_with_all_it_has_started(
    open_session: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_END_S", 0.2)
    session = open_session("os.fork(); c = connect(); say(c, 'ready', rank=0, ranks=1); time.sleep(1000)")
    session.wait(lambda: len(session.ready) == 2, 30.0, lambda *_: None)
    pids = [peer.hello["pid"] for peer in session.peers]
    folder = session._folder
    session.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not Path(folder).exists()
    session.close()  # may be called again


def test_sending_to_one_that_has_gone_is_no_error(open_session: Open) -> None:
    session = open_session("c = connect(); c.close()")
    until_end(session)
    for peer in session.peers:
        session.send(peer, "measure")


def test_the_environment_lets_the_hook_in_and_keeps_loggers_quiet(
    open_session: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setenv("WANDB_MODE", "offline")  # what is set already is left
    monkeypatch.delenv("COMET_MODE", raising=False)
    names = ("PYTHONPATH", "WANDB_MODE", "COMET_MODE", "MINE")
    session = open_session(f"print(*(os.environ[n] for n in {names}))", variables={"MINE": "x"})
    until_end(session)
    assert session.tail().split() == [f"{SITE}:/mine", "offline", "disabled", "x"]


def test_a_scratch_folder_takes_the_place_of_its_word(open_session: Open) -> None:
    session = open_session("print(os.path.isdir(sys.argv[1].partition('=')[2]))", "--out={scratch}")
    until_end(session)
    assert session.tail() == "True"


def test_a_profile_lies_in_the_folder_of_the_socket(open_session: Open) -> None:
    show = "print(open(os.environ['PIPETUNE_HOOK'].partition(':')[2] + '/settings.json').read())"
    session = open_session(show, profile={"loaders": []})
    until_end(session)
    assert session.tail() == '{"loaders": []}'


def test_the_tail_is_of_this_start_alone(open_session: Open) -> None:
    until_end(open_session("print('first')"))
    session = open_session("print('x' * 5000 + 'end')")
    until_end(session)
    assert session.tail() == "x" * (4096 - 4) + "end"
    assert until_end(open_session("print('third')"))[0] == "ended"


def test_a_command_that_cannot_be_started_ends_with_an_error(tmp_path: Path) -> None:
    session = ScriptSession(["/nothing/of/the/kind"], {}, tmp_path / "log", None, lambda: False)
    try:
        assert until_end(session)[0] == "ended"
        assert session.error is not None
    finally:
        session.close()


def test_too_old_a_python_and_a_checkpoint_are_noted(open_session: Open) -> None:
    session = open_session("c = connect(); say(c, 'too_old', python='3.8'); say(c, 'checkpoint', target='last.pt')")
    until_end(session)
    assert (session.too_old, session.checkpoint) == ("3.8", "last.pt")


def test_messages_that_come_in_pieces_are_put_together(open_session: Open) -> None:
    session = open_session("c = connect(); c.sendall(b'{\"type\": \"st'); time.sleep(0.3); c.sendall(b'eps\"}\\n')")
    assert until_end(session)[1] == [{"type": "steps"}]


def test_each_message_is_given_with_its_sender(open_session: Open) -> None:
    session = open_session("a, b = connect(), connect(); say(a, 'steps', n=1); say(b, 'steps', n=2)")
    got: list[tuple[Peer, int]] = []
    session.wait(lambda: len(got) == 2, 30.0, lambda peer, message: got.append((peer, message["n"])))
    assert sorted(number for _, number in got) == [1, 2]
    assert got[0][0] is not got[1][0]


def test_a_torn_line_is_said_to_be_one(open_session: Open) -> None:
    session = open_session("c = connect(); c.sendall(b'half a mess\\n'); say(c, 'steps')")
    torn, whole = until_end(session)[1]
    assert torn["type"] == "garbled"
    assert "b'half a mess' is no message" in torn["what"]
    assert whole == {"type": "steps"}
