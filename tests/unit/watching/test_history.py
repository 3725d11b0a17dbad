from __future__ import annotations

import pytest

from pipetune.watching.history import History
from tests.watch_fakes import stall, verdict

S = 10**9


def test_stalls_are_counted_and_the_newest_kept() -> None:
    history = History()
    before = history.stalls
    history.add_stalls([stall(t_start_ns=n * S, t_end_ns=n * S + S // 2) for n in range(15_000)])
    history.add_stalls([stall(t_start_ns=n * S, t_end_ns=n * S + S // 2) for n in range(15_000, 30_000)])
    history.add_stalls([])

    assert (history.stall_count, history.stalled_s) == (30_000, pytest.approx(15_000))
    assert (len(history.stalls), history.stalls[0].t_start_ns, history.stalls[-1].t_start_ns) == (
        20_000, 10_000 * S, 29_999 * S,
    )  # fmt: skip
    assert before == []  # who draws the list meanwhile sees a whole one


def test_windows_of_days_are_summed_up_and_ranks_are_apart() -> None:
    history = History()
    for number in range(1000):
        history.add_verdict((1, 1), verdict(pid=1, seconds=10.0, lost_frac=0.2 if number % 2 else 0.4))
    history.add_verdict((2, 1), verdict(pid=2, seconds=10.0, lost_frac=0.9))

    worst, other = history.summary()

    assert (worst.pid, worst.lost_frac) == (2, pytest.approx(0.9))
    assert (other.pid, other.seconds, other.lost_frac) == (1, pytest.approx(10_000), pytest.approx(0.3))


def test_nothing_yet() -> None:
    assert History().summary() == ()
