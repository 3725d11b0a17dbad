"""Which signals a verdict cites, with which numbers; the lines themselves are in tests/golden."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.diagnosis.attribution import attribute_loss
from pipetune.diagnosis.context import Context, OtherRanks
from pipetune.diagnosis.evidence import Fact, evidence_of, missing_signals
from pipetune.records.evidence import Signal
from pipetune.records.observation import LOADER_WAIT, MachineReading, RankReading
from pipetune.report.terminal.watch_text import SIGNAL_TITLES
from pipetune.sampler.stacks import activity as act
from tests.unit.diagnosis import scenes
from tests.unit.diagnosis.scenes import scene, team, with_stacks
from tests.watch_fakes import machine_readings, main_reading, rank_readings, task_reading, workers


def _facts(
    readings: list[RankReading], machine: list[MachineReading] | None = None, **stacks: int
) -> dict[Signal, Fact]:
    context = Context.of(readings, machine_readings(len(readings)) if machine is None else machine, stacks)
    facts = evidence_of(attribute_loss(readings), readings, context)
    found = {fact.signal: fact for fact in facts}
    assert len(found) == len(facts)
    return found


def _missing(readings: list[RankReading], problem: str | None = None, **machine: Any) -> list[Signal]:
    context = Context.of(readings, machine_readings(len(readings), **machine), {})
    found = missing_signals(attribute_loss(readings), readings, context, problem)
    assert all(signal.signal in SIGNAL_TITLES for signal in found)
    return [signal.signal for signal in found]


def test_the_main_thread_comes_first() -> None:
    first, *_ = _facts(scenes.DECODES).values()

    assert (first.signal, first.value) == (Signal.MAIN_THREAD, pytest.approx(0.1))
    assert act.LOADER in first.text


def test_the_most_frequent_stack_is_cited_and_device_waits_do_not_count() -> None:
    readings = with_stacks(scenes.PYTHON, act.COPY, act.DEVICE_WAIT, act.DEVICE_WAIT)

    fact = _facts(readings)[Signal.STACKS]

    assert fact.value == 14  # of 40 readings every third one
    assert act.COPY in fact.text
    assert "step (train.py:7)" in fact.text
    assert Signal.STACKS not in _facts(with_stacks(scenes.PYTHON, act.DEVICE_WAIT))


def test_workers_are_counted_with_what_they_sleep_in() -> None:
    reading_disk, threads = _facts(scenes.READS_DISK), _facts(scene(workers=workers(4), worker_kind="thread"))

    assert reading_disk[Signal.WORKERS].value == threads[Signal.WORKERS].value == 4
    for part in ("processes", "20 %", "1 %", "folio_wait_bit_common"):
        assert part in reading_disk[Signal.WORKERS].text
    assert "threads" in threads[Signal.WORKERS].text
    assert _facts(scenes.LOADS_INLINE)[Signal.WORKERS].value == 0
    assert "asleep" not in _facts(scenes.DECODES)[Signal.WORKERS].text


@pytest.mark.parametrize(("count", "words"), [(1, "the other rank 2.5"), (3, "the other 3 ranks 2.5")])
def test_other_ranks_are_told_apart_from_other_processes(count: int, words: str) -> None:
    readings = scene()
    context = Context.of(readings, machine_readings(len(readings)), {}, OtherRanks(count, 2.5))
    facts = evidence_of(attribute_loss(readings), readings, context)

    (text,) = [fact.text for fact in facts if fact.signal == Signal.CPU]
    assert "this rank uses" in text
    assert text.endswith(words)


def test_stacks_of_workers_are_counted() -> None:
    fact = _facts(scenes.DECODES, **{act.WORKER_IDLE: 2, act.FETCH_DISK: 3})[Signal.WORKER_STACKS]

    assert fact.value == 5
    assert fact.text.index(act.FETCH_DISK) < fact.text.index(act.WORKER_IDLE)
    assert Signal.WORKER_STACKS not in _facts(scenes.DECODES)


def test_the_machine_is_cited_where_it_is_known() -> None:
    machine = machine_readings(4, psi_io_some_pct=31.0, psi_scope="cgroup", throttled_frac=0.25, quota_cores=3.0)
    found = _facts(scene(0.5, 4), machine)
    nothing = _facts(scene(0.5, 4), machine_readings(4, psi_io_some_pct=None, cpu_busy_pct=None))

    values = [found[signal].value for signal in (Signal.CPU, Signal.PRESSURE, Signal.CPU_QUOTA)]
    assert values == [96.0, 31.0, 0.25]
    assert "cgroup" in found[Signal.PRESSURE].text
    assert not {Signal.CPU, Signal.PRESSURE, Signal.CPU_QUOTA} & set(nothing)


def test_bytes_are_cited_where_there_are_some() -> None:
    readings = scene(0.5, 10, workers=workers(2, read_bytes=1_000_000))
    found = _facts(readings, machine_readings(10, net_rx_bytes=5_000_000))

    assert found[Signal.DISK].value == pytest.approx(4e6)
    assert found[Signal.NETWORK].value == pytest.approx(1e7)
    assert not {Signal.DISK, Signal.NETWORK} & set(_facts(scenes.DECODES))


def test_nothing_is_missing_where_all_is_measured() -> None:
    assert _missing(scenes.DECODES) == []


def test_missing_signals() -> None:
    unseen = rank_readings([None] * 10, source=LOADER_WAIT)

    assert _missing(unseen) == [Signal.ACCELERATOR]
    assert _missing(scenes.DECODES, psi_io_some_pct=None) == [Signal.PRESSURE]
    assert _missing(scene(main=main_reading(run_delay_frac=None))) == [Signal.RUN_DELAY]
    assert _missing(scenes.DECODES, "stacks: py-spy is not installed") == [Signal.STACKS]
    assert _missing(scenes.HEALTHY, "stacks: py-spy is not installed") == []


def test_hidden_names_of_sleep_are_missed_only_where_workers_sleep() -> None:
    hidden = task_reading(state="S", wait="other", wchan=None)

    assert _missing(scene(workers=team(hidden))) == [Signal.WAIT_CHANNEL]
    assert _missing(scene(workers=workers(4))) == []  # they run
    assert _missing(scene(workers=(hidden, scenes.IDLE_WORKER))) == []
