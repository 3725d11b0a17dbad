from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from pipetune.errors import Interrupted
from pipetune.processes.signals import (
    defer_signals,
    note_signals,
    raise_if_lost,
    say_nothing_of_lost_ones,
    stop_on_sigterm,
)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    def stop(number: int, _: object) -> None:
        raise Interrupted(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGTERM, stop)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Interrupted)])
def test_a_signal_waits_for_the_end_of_the_block(number: int, error: type[BaseException]) -> None:
    done = []

    def block() -> None:
        with defer_signals() as deferred:
            assert not deferred
            signal.raise_signal(number)
            done.append("went on")
            assert deferred

    with pytest.raises(error):
        block()
    assert done == ["went on"]
    assert signal.getsignal(signal.SIGTERM) is not None


def test_a_second_signal_is_dropped_and_wins_over_an_error() -> None:
    def block() -> None:
        with defer_signals():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            raise ValueError

    with pytest.raises(KeyboardInterrupt):
        block()


def test_ignored_signals_stay_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with defer_signals() as deferred:
        signal.raise_signal(signal.SIGINT)
    assert not deferred


def test_outside_the_main_thread_nothing_is_touched() -> None:
    seen: list[object] = []

    def read() -> None:
        with defer_signals():
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert seen == [before]


def test_signals_that_are_noted_end_nothing() -> None:
    with note_signals() as noted:
        assert (bool(noted), noted.exit_code) == (False, 0)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert noted.exit_code == 143
    with pytest.raises(Interrupted):  # afterwards they do what they did before
        signal.raise_signal(signal.SIGTERM)


class Finalized:
    def __del__(self) -> None:
        signal.raise_signal(self.number)

    def __init__(self, number: int) -> None:
        self.number = number


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Interrupted)])
def test_what_python_ignores_because_it_was_finalizing_is_said_once_more(
    number: int, error: type[BaseException]
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stop_on_sigterm()
    raise_if_lost()
    value = Finalized(number)
    del value  # what the signal raises in there goes nowhere
    with pytest.raises(error) as raised:
        raise_if_lost()
    assert type(raised.value) is error
    stop_on_sigterm()
    raise_if_lost()


def test_no_traceback_is_printed_of_a_signal_that_goes_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda ignored: printed.append(ignored.exc_value))
    say_nothing_of_lost_ones()
    stop_on_sigterm()
    value = Finalized(signal.SIGTERM)
    del value
    assert printed == []
    with pytest.raises(Interrupted):
        raise_if_lost()
    broken = type("Broken", (), {"__del__": lambda self: 1 / 0})()
    del broken
    assert len(printed) == 1
