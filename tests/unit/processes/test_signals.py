from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from pipetune.errors import Interrupted
from pipetune.processes.signals import hold_back_signals


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
        with hold_back_signals() as held:
            assert not held
            signal.raise_signal(number)
            done.append("went on")
            assert held

    with pytest.raises(error):
        block()
    assert done == ["went on"]
    assert signal.getsignal(signal.SIGTERM) is not None


def test_a_second_one_adds_nothing_and_an_error_in_the_block_gives_way() -> None:
    def block() -> None:
        with hold_back_signals():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            raise ValueError

    with pytest.raises(KeyboardInterrupt):
        block()


def test_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with hold_back_signals() as held:
        signal.raise_signal(signal.SIGINT)
    assert not held


def test_outside_the_main_thread_nothing_is_touched() -> None:
    seen: list[object] = []

    def look() -> None:
        with hold_back_signals():
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]
