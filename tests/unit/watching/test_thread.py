from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from pipetune.sampler.stacks import dump
from pipetune.watching.thread import WatcherThread
from pipetune.watching.watcher import Watcher

#: As good as never, for tests that wait for an event and must not hang.
LONG_S = 30.0


def thread_of(tick: Callable[[], Any], ended: Callable[[], bool] = lambda: False) -> WatcherThread:
    class FakeWatcher:
        @property
        def ended(self) -> bool:
            return ended()

    watcher = FakeWatcher()
    watcher.tick = tick  # type: ignore[attr-defined]
    return WatcherThread(cast(Watcher, watcher), 0.001)


def test_ticks_come_in_order_until_the_job_ends() -> None:
    made: list[int] = []

    def tick() -> int:
        made.append(len(made))
        return made[-1]

    thread = thread_of(tick, lambda: len(made) == 4)
    thread.start()
    thread.wait(LONG_S)

    assert not thread.running
    assert thread.error is None
    assert [cast(int, thread.ticks.get_nowait()) for _ in range(4)] == [0, 1, 2, 3]
    assert thread.ticks.empty()


def test_five_failures_in_a_row_are_its_error() -> None:
    thread = thread_of(lambda: 1 // 0)
    thread.start()
    thread.wait(LONG_S)

    assert isinstance(thread.error, ZeroDivisionError)


def test_a_failure_now_and_then_is_no_error() -> None:
    calls = 0

    def tick() -> int:
        nonlocal calls
        calls += 1
        return 1 // (calls % 2)

    thread = thread_of(tick, lambda: calls > 10)
    thread.start()
    thread.wait(LONG_S)

    assert thread.error is None
    assert calls == 11


def test_a_reading_that_hangs_holds_the_watcher_and_is_left_behind() -> None:
    entered, leave = threading.Event(), threading.Event()

    def tick() -> SimpleNamespace:
        entered.set()
        leave.wait(LONG_S)
        return SimpleNamespace()

    thread = thread_of(tick)
    thread.start()
    assert entered.wait(LONG_S)
    with thread.held(0.01) as watcher:
        assert watcher is None
    assert thread.stop(0.01) is False
    leave.set()
    assert thread.stop(LONG_S) is True
    with thread.held() as watcher:
        assert watcher is not None


def test_a_slow_py_spy_does_not_cost_the_last_window() -> None:
    limit_s = inspect.signature(WatcherThread.stop).parameters["limit_s"].default
    assert limit_s > dump.LIMIT_S


def test_stop_before_start() -> None:
    assert thread_of(SimpleNamespace).stop()
