"""How often the live view judges and draws."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest

from pipetune.cli import watch_pace
from pipetune.cli.watch_pace import Pace


@dataclass
class _Clock:
    """Processor time that passes only where a test says so (s)."""

    now_s: float = 0.0

    def times(self, pace: Pace, *, cost_s: float, until_s: float, first: bool = False) -> list[float]:
        """When the thing is done, asked every tenth of a second."""
        done = []
        for tenth in range(1, round(until_s * 10) + 1):
            now_s = 100 + tenth / 10
            if pace.due(now_s, first=first):
                with pace.counted(now_s):
                    self.now_s += cost_s
                done.append(round(now_s - 100, 1))
        return done


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(watch_pace.time, "thread_time", lambda: clock.now_s)
    return clock


def test_at_first_it_is_done_often_whatever_it_costs(clock: _Clock) -> None:
    times = clock.times(Pace(2.0, (1.0, 20.0)), cost_s=1.0, until_s=7, first=True)

    assert times == [0.1, 2.1, 4.1, 6.1]


@pytest.mark.parametrize(("cost_s", "wait_s"), [(0.0001, 1.0), (0.00199, 10.0), (0.00299, 15.0), (1.0, 20.0)])
def test_later_it_waits_as_long_as_its_cost_asks_for(clock: _Clock, cost_s: float, wait_s: float) -> None:
    times = clock.times(Pace(2.0, (1.0, 20.0)), cost_s=cost_s, until_s=70)

    assert {round(later - earlier, 1) for earlier, later in itertools.pairwise(times)} == {wait_s}


def test_parts_of_one_drawing_count_together(clock: _Clock) -> None:
    pace = Pace(2.0, (1.0, 20.0))
    for _ in range(3):
        with pace.counted(50.0):
            clock.now_s += 0.002 / 3

    assert not pace.due(59.9, first=False)
    assert pace.due(60.1, first=False)
