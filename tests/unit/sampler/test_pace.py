from __future__ import annotations

import threading

import pytest

from pipetune.sampler.pace import PacedLoop, next_due_ns

#: As good as never, for tests that wait for an event and must not hang.
LONG_S = 30.0


def test_due_times_are_whole_intervals_after_the_first() -> None:
    due_ns, seen = 1000, []
    for late_ns in (0, 30, 70, 99, 0):
        seen.append(due_ns)
        due_ns = next_due_ns(due_ns, due_ns + late_ns, 100e-9)

    assert seen == [1000, 1100, 1200, 1300, 1400]


@pytest.mark.parametrize(("now_ns", "due_ns"), [(1100, 1200), (1101, 1200), (1250, 1300), (5000, 5100)])
def test_missed_due_times_are_skipped(now_ns: int, due_ns: int) -> None:
    assert next_due_ns(1000, now_ns, 100e-9) == due_ns


def test_a_clock_that_does_not_advance_makes_the_next_call_later() -> None:
    assert next_due_ns(1000, 900, 100e-9) == 1100


def test_the_loop_ends_when_the_step_says_so() -> None:
    calls: list[int] = []
    loop = PacedLoop(lambda: 0.001)

    loop.run(lambda: calls.append(1) or len(calls) < 4)  # type: ignore[func-returns-value]

    assert (len(calls), loop.error, loop.given_up) == (4, None, False)


def test_a_loop_that_was_stopped_before_does_not_call() -> None:
    loop = PacedLoop(lambda: 0.001)
    loop.stop()

    loop.run(lambda: pytest.fail("called"))

    assert not loop.given_up


def test_stop_ends_a_long_wait() -> None:
    called = threading.Event()
    loop = PacedLoop(lambda: 100 * LONG_S)
    thread = threading.Thread(target=loop.run, args=(lambda: called.set() or True,), daemon=True)
    thread.start()
    assert called.wait(LONG_S)

    loop.stop()
    thread.join(LONG_S)

    assert not thread.is_alive()


def test_five_failures_in_a_row_end_the_loop() -> None:
    calls = 0

    def fail() -> bool:
        nonlocal calls
        calls += 1
        raise ZeroDivisionError(f"number {calls}")

    loop = PacedLoop(lambda: 0.001)
    loop.run(fail)

    assert (calls, str(loop.error), loop.given_up) == (5, "number 5", True)


def test_a_success_between_failures_starts_the_count_again() -> None:
    calls = 0

    def step() -> bool:
        nonlocal calls
        calls += 1
        if calls % 5:
            raise ZeroDivisionError(f"number {calls}")
        return calls < 20

    loop = PacedLoop(lambda: 0.001)
    loop.run(step)

    assert (calls, str(loop.error), loop.given_up) == (20, "number 19", False)


def test_the_interval_is_asked_after_each_call() -> None:
    asked: list[int] = []
    calls = 0

    def step() -> bool:
        nonlocal calls
        calls += 1
        return calls < 3

    PacedLoop(lambda: asked.append(calls) or 0.001).run(step)  # type: ignore[func-returns-value]

    assert asked == [1, 2]
