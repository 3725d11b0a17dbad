from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.measure.reading_window import ReadingWindow
from pipetune.measure.script.gaps import busy_without, readings_without
from pipetune.records.observation import BusySpan, TreeReading
from tests.unit.measure.recordings import reading

S = 1_000_000_000


def readings(busy: dict[int, float]) -> list[object]:
    """A reading a second of a tree that uses so many cores from that second on."""
    found, cpu_s, cores = [], 0.0, 0.0
    for second in range(21):
        cpu_s += cores
        cores = busy.get(second, cores)
        tree = TreeReading(
            processes=1, cpu_s=cpu_s, run_delay_s=None, minor_faults=0, context_switches=None,
            read_bytes=round(1000 * cpu_s), rss_bytes=1, in_disk_sleep=0,
        )  # fmt: skip
        found.append(replace(reading(0), t_ns=second * S, tree=tree))
    return found


def test_what_is_used_between_two_epochs_is_in_no_rate() -> None:
    """A training that uses one core, and an evaluation of four from the fifth second to the fifteenth."""
    spans = [(5 * S, 15 * S)]
    found = readings_without(readings({0: 1.0, 5: 4.0, 15: 1.0}), spans)  # type: ignore[arg-type]
    window = ReadingWindow(found, 0, 10 * S)
    assert window.tree_rate(lambda tree: tree.cpu_s) == pytest.approx(1.0)
    assert window.tree_rate(lambda tree: tree.read_bytes) == pytest.approx(1000, rel=0.01)
    assert [r.t_ns // S for r in found] == [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10]


def test_many_short_spans_take_their_share_of_what_passes_between_two_readings() -> None:
    spans = [(round((second + 0.25) * S), round((second + 0.75) * S)) for second in range(20)]
    found = readings_without(readings({0: 2.0}), spans)  # type: ignore[arg-type]
    assert ReadingWindow(found, 0, 10 * S).tree_rate(lambda tree: tree.cpu_s) == pytest.approx(2.0)


def test_without_spans_they_are_as_they_are() -> None:
    all_of_them = readings({0: 1.0})
    assert readings_without(all_of_them, []) == all_of_them  # type: ignore[arg-type]
    assert readings_without([], [(1, 2)]) == []


def test_busy_spans_of_a_gpu_move_with_the_steps() -> None:
    busy = [BusySpan(t_start_ns=n * S, t_end_ns=(n + 1) * S, busy_frac=n / 10) for n in range(6)]
    found = busy_without(busy, [(round(1.5 * S), 3 * S)])
    assert [(round(one.t_start_ns / S, 1), one.busy_frac) for one in found] == [
        (0.0, 0.0), (1.5, 0.3), (2.5, 0.4), (3.5, 0.5)
    ]  # fmt: skip
