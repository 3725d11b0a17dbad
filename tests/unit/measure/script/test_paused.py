from __future__ import annotations

import pytest

from pipetune.measure import machine_speed
from pipetune.measure.machine_speed import Speed
from pipetune.measure.script import paused


@pytest.mark.parametrize(("cores", "threads"), [(0.5, 1), (1.0, 1), (1.5, 2), (2.0, 2), (64.0, 4)])
def test_the_speed_is_read_with_as_many_threads_as_the_quota_serves(
    cores: float, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def read_speed(seconds: float, count: int) -> Speed:
        asked.append(count)
        return Speed(1.0, 1.0)

    monkeypatch.setattr(machine_speed, "read_speed", read_speed)
    monkeypatch.setattr(paused, "usable_cores", lambda: cores)
    assert paused.present_speed() == Speed(1.0, 1.0)
    assert asked == [threads]
