from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipetune.errors import Interrupted, PipetuneError, UsageError
from pipetune.watching import run
from pipetune.watching.find import Target
from pipetune.watching.observer import WatchObserver
from pipetune.watching.options import WatchOptions
from pipetune.watching.run import start_and_watch, watch_process


class FakeSession:
    """A session whose second tick is what the test says."""

    then: Any = "the job ended"
    end_code = 0
    instances: list[FakeSession]

    below: str | None = None
    """Why --fail-under was not reached."""

    def __init__(self, options: WatchOptions, target: Any, observer: Any, **parts: Any) -> None:
        self.options, self.target, self.observer, self.parts = options, target, observer, parts
        self.ticks = 0
        self.closed: tuple[str, int] | None = None
        FakeSession.instances.append(self)

    def start(self) -> None:
        """Nothing to start."""

    def tick(self) -> str | None:
        self.ticks += 1
        if self.ticks == 1:
            return None
        if isinstance(self.then, BaseException):
            raise self.then
        return cast(str, self.then)

    def close(self, reason: str, exit_code: int) -> SimpleNamespace:
        self.closed = (reason, exit_code)
        record = SimpleNamespace(below=self.below)
        return SimpleNamespace(exit_code=exit_code or self.end_code, record=record)


class FakeProcess:
    pid = 2**22
    waits = 0
    code = 7

    def wait(self, _limit_s: float) -> int | None:
        """The job goes on for a while after the watch."""
        self.waits += 1
        return None if self.waits < 3 else self.code


class Notes(WatchObserver):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def on_note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[FakeSession]:
    FakeSession.instances = []
    monkeypatch.setattr(run, "WatchSession", FakeSession)
    monkeypatch.chdir(tmp_path)
    return FakeSession


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> FakeProcess:
    process = FakeProcess()
    monkeypatch.setattr(run, "start_job", lambda command: nullcontext(process))
    return process


def target() -> Target:
    info: Any = SimpleNamespace(title="train.py")
    return Target(info=info, found="found", gpus=cast(Any, None), notes=SimpleQueue())


@pytest.mark.parametrize(
    ("then", "closed"),
    [
        ("the job ended", ("the job ended", 0)),
        (KeyboardInterrupt(), ("interrupted", 130)),
        (Interrupted(15), ("interrupted", 143)),
        (PipetuneError("reading failed: OSError: gone"), ("reading failed: OSError: gone", 1)),
        (BrokenPipeError(32, "Broken pipe"), ("the output cannot be written: Broken pipe", 1)),
    ],
)
def test_what_ends_a_watch_is_its_reason_and_exit_code(
    session: type[FakeSession], monkeypatch: pytest.MonkeyPatch, then: Any, closed: tuple[str, int]
) -> None:
    monkeypatch.setattr(session, "then", then)

    assert watch_process(WatchOptions(save=False), target(), WatchObserver()) == closed[1]
    assert session.instances[0].closed == closed
    assert session.instances[0].ticks == 2


def test_the_end_may_decide_the_exit_code(session: type[FakeSession], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "end_code", 1)

    assert watch_process(WatchOptions(save=False), target(), WatchObserver()) == 1


def test_the_folder_is_open_while_the_session_runs_and_free_afterwards(session: type[FakeSession]) -> None:
    options = WatchOptions(out=Path("run"))
    watch_process(options, target(), WatchObserver())

    assert session.instances[0].parts["folder"].path == Path("run")
    watch_process(options, target(), WatchObserver())  # its lock is free


def test_an_address_in_use_ends_a_watch_before_it_begins(session: type[FakeSession]) -> None:
    with pytest.raises(UsageError):
        watch_process(WatchOptions(prometheus="nowhere", out=Path("run")), target(), WatchObserver())

    assert session.instances == []
    assert not Path("run").exists()


def test_a_started_job_is_waited_for_and_its_exit_code_comes_first(process: FakeProcess) -> None:
    assert start_and_watch(WatchOptions(command=("train",), save=False), WatchObserver()) == 7
    assert process.waits == 3


@pytest.mark.parametrize(("below", "code"), [(None, 0), ("--fail-under 0.9: 0.50 of the time was used", 1)])
def test_a_full_disk_of_the_watch_is_no_fault_of_a_job_that_has_ended_well(
    process: FakeProcess, session: type[FakeSession], monkeypatch: pytest.MonkeyPatch, below: str | None, code: int
) -> None:
    process.code = 0
    monkeypatch.setattr(session, "end_code", 1)
    monkeypatch.setattr(session, "below", below)

    assert start_and_watch(WatchOptions(command=("train",), save=False), WatchObserver()) == code


def test_an_address_in_use_does_not_end_a_started_job(session: type[FakeSession], process: FakeProcess) -> None:
    start_and_watch(WatchOptions(command=("train",), save=False, prometheus="nowhere"), WatchObserver())

    assert session.instances[0].target.notes.get_nowait().startswith("no Prometheus: ")
    assert session.instances[0].parts["exporter"] is None


def test_a_fault_of_the_watch_is_noted_and_the_job_goes_on(
    session: type[FakeSession], process: FakeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "then", ZeroDivisionError("a fault"))
    observer = Notes()

    assert start_and_watch(WatchOptions(command=("train",), save=False), observer) == 7
    assert observer.notes == ["the watch ended: a fault; the job goes on"]
    assert process.waits == 3


def test_a_command_that_cannot_be_started_leaves_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_command: object) -> None:
        raise UsageError("cannot start 'train'")

    monkeypatch.setattr(run, "start_job", refuse)
    with pytest.raises(UsageError, match="cannot start"):
        start_and_watch(WatchOptions(command=("train",), out=Path("run")), WatchObserver())

    assert not Path("run").exists()


class FakeExporter:
    def __init__(self, process: FakeProcess) -> None:
        self._process = process
        self.closed_after: list[int] = []
        """How often the job had been waited for."""

    def close(self) -> None:
        self.closed_after.append(self._process.waits)


@pytest.mark.parametrize("then", ["the time is up", ZeroDivisionError("a fault")])
def test_nothing_is_served_any_more_while_the_job_goes_on(
    session: type[FakeSession], process: FakeProcess, monkeypatch: pytest.MonkeyPatch, then: Any
) -> None:
    exporter = FakeExporter(process)
    monkeypatch.setattr(run, "open_exporter", lambda address: exporter)
    monkeypatch.setattr(session, "then", then)

    assert start_and_watch(WatchOptions(command=("train",), save=False, prometheus=":9400"), Notes()) == 7

    assert process.waits == 3
    assert exporter.closed_after == [0]


def test_after_a_watch_its_port_is_free(
    session: type[FakeSession], process: FakeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = FakeExporter(process)
    monkeypatch.setattr(run, "open_exporter", lambda address: exporter)
    watch_process(WatchOptions(save=False, prometheus=":9400"), target(), WatchObserver())
    assert exporter.closed_after == [0]
