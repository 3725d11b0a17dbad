from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from pipetune.diagnosis import causes
from pipetune.diagnosis.advice import advice_for, workers_needed
from pipetune.diagnosis.attribution import Loss
from pipetune.diagnosis.context import Context, OtherRanks
from pipetune.diagnosis.gpu import GpuContext
from pipetune.sampler.stacks import activity as act
from tests.unit.diagnosis import scenes
from tests.unit.diagnosis.scenes import judged, scene, team, with_stacks
from tests.watch_fakes import task_reading, workers

_CONTEXT = Context(
    cores=16.0, counted_cores=16.0, quota_cores=None, cpu_busy_pct=25.0, cpu_idle_pct=75.0, cpu_iowait_pct=0.0,
    psi_cpu_pct=0.0, psi_io_pct=0.0, psi_scope="machine", throttled_frac=None, gpu=GpuContext.of([]),
    received_per_s=None, read_per_s=None, worker_count=4, worker_kind="process", worker_cpu_frac=0.9,
    worker_delay_frac=0.0, worker_busy_frac=0.9, job_cores=3.8, main_cpu_frac=0.2, worker_stacks={}, python_where=None,
)  # fmt: skip
_LOSS = Loss(
    source="nvml", seconds=30.0, util_frac=0.5, idle_frac=0.5, idle_ci95=(0.45, 0.55), unfilled_frac=0.0,
    shares={causes.CPU_DECODE: 1.0}, readings=60, activities={}, proven=True,
)  # fmt: skip


def _advice(cause: str, *, idle: float = 0.5, **context: Any) -> str:
    counted = {"counted_cores": context["cores"]} if "cores" in context else {}
    text = advice_for(cause, replace(_LOSS, idle_frac=idle), replace(_CONTEXT, **{**counted, **context}))
    assert text is not None
    return text


def test_workers_needed_are_those_busy_now_at_the_rate_without_the_loss() -> None:
    assert workers_needed(_LOSS, _CONTEXT) == pytest.approx(4 * 0.9 / 0.5)
    assert workers_needed(replace(_LOSS, idle_frac=0.0), _CONTEXT) == pytest.approx(3.6)
    assert workers_needed(replace(_LOSS, idle_frac=1.0), _CONTEXT) == pytest.approx(4 * 0.9 / 0.02)


def _workers(text: str) -> tuple[int, int] | None:
    """The change of the worker count that an advice asks for."""
    found = re.search(r"num_workers (\d+) -> (\d+)", text)
    return None if found is None else (int(found[1]), int(found[2]))


def _numbers(text: str) -> set[float]:
    return {float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)}


def test_decoding_wants_more_workers_where_cores_are_free() -> None:
    text = _advice(causes.CPU_DECODE)

    assert _workers(text) == (4, 8)
    assert _numbers(text) == {4, 8, 90, 7.2, 12.0, 16}


def test_decoding_wants_at_least_one_more_worker() -> None:
    assert _workers(_advice(causes.CPU_DECODE, idle=0.06)) == (4, 5)


def test_decoding_wants_another_decoder_where_there_are_no_cores() -> None:
    few = _advice(causes.CPU_DECODE, cores=6.0)
    none_ = _advice(causes.CPU_DECODE, cores=4.0)

    assert _workers(few) == (4, 6)
    assert _workers(none_) is None
    assert {7.4, 6} < _numbers(few)
    assert _numbers(none_) == {7.4, 4}
    assert "decoder" in few
    assert "decoder" in none_


def test_a_demand_too_large_to_be_known_is_bounded() -> None:
    assert max(_numbers(_advice(causes.CPU_DECODE, idle=1.0))) == 100


def test_threads_that_share_a_core_want_processes() -> None:
    text = _advice(causes.CPU_DECODE, worker_kind="thread", worker_cpu_frac=0.25)

    assert _workers(text) is None
    assert "GIL" in text
    assert {4, 1.0} < _numbers(text)
    assert _workers(_advice(causes.CPU_DECODE, worker_kind="thread", worker_cpu_frac=0.9)) is not None


def test_ranks_share_the_cores() -> None:
    # Four ranks on 16 cores: the others are no strangers, and their cores are not to be had.
    ranks = {"other_ranks": OtherRanks(3, 11.4), "cpu_busy_pct": 95.0, "cpu_idle_pct": 5.0}
    decoding = _advice(causes.CPU_DECODE, worker_count=2, **ranks)
    too_many = _advice(causes.CPU_STARVED, worker_count=12, worker_delay_frac=0.8, **ranks)
    inline = _advice(causes.NO_WORKERS, worker_count=0, **ranks)

    assert _workers(decoding) == (2, 4)
    assert "in each of 4 ranks" in decoding
    assert "0.8 of 16 cores are idle" in decoding
    assert "16 are usable by 4 ranks, 4 by each" in _advice(causes.CPU_DECODE, **ranks)
    assert "other processes" not in too_many
    assert _workers(too_many) == (12, 4)
    assert {48.0, 30.4} < _numbers(too_many)
    assert "in each of 4 ranks" in inline
    assert "other processes use 6.0 of 16" in _advice(
        causes.CPU_STARVED, job_cores=3.0, cpu_busy_pct=100.0, other_ranks=OtherRanks(1, 7.0)
    )


def test_a_quota_is_to_be_raised_to_what_full_speed_takes() -> None:
    text = _advice(causes.CPU_STARVED, quota_cores=2.0, cores=2.0, throttled_frac=0.4, job_cores=2.0)

    assert "quota" in text
    assert _numbers(text) == {2, 4, 40}


def test_a_quota_that_is_used_up_in_bursts_is_not_to_be_raised_to_what_it_is() -> None:
    text = _advice(causes.CPU_STARVED, idle=0.2, quota_cores=8.0, cores=8.0, throttled_frac=0.12, job_cores=5.0)
    assert "raise the CPU quota" not in text
    assert "quota of 8 cores in bursts" in text
    assert "12 %" in text


def test_under_a_quota_idle_cores_are_those_that_are_left_of_all() -> None:
    """64 cores that are 92 % busy, of which a quota allows 8."""
    text = _advice(
        causes.CPU_DECODE, cores=8.0, counted_cores=64.0, quota_cores=8.0, cpu_busy_pct=92.0, cpu_idle_pct=8.0
    )
    assert "4.2 of 8 cores are idle" in text
    busy = _advice(
        causes.CPU_STARVED, cores=8.0, counted_cores=64.0, quota_cores=8.0, cpu_busy_pct=99.0, cpu_idle_pct=1.0
    )
    assert "other processes use 59.6 of 64 cores" in busy


def test_workers_that_wait_for_a_core_are_not_to_be_more() -> None:
    text = _advice(
        causes.CPU_DECODE, idle=0.3, cores=8.0, counted_cores=8.0, worker_count=8, worker_cpu_frac=0.55, job_cores=4.6,
        worker_delay_frac=0.45, worker_busy_frac=1.0, cpu_busy_pct=100.0, cpu_idle_pct=0.0,
    )  # fmt: skip
    assert _workers(text) is None
    assert "other processes use 3.4 of 8 cores" in text


def test_a_quota_that_stops_nobody_is_not_blamed() -> None:
    assert "quota" not in _advice(causes.CPU_STARVED, quota_cores=8.0, throttled_frac=0.01)


def test_other_processes_are_to_be_moved() -> None:
    text = _advice(causes.CPU_STARVED, cores=8.0, cpu_busy_pct=100.0, job_cores=3.0)

    assert "other processes" in text
    assert _numbers(text) == {5.0, 8, 6.0}


def test_too_many_workers_are_to_be_fewer() -> None:
    text = _advice(
        causes.CPU_STARVED, cores=2.0, cpu_busy_pct=100.0, job_cores=2.0, worker_count=12, worker_delay_frac=0.8
    )

    assert _workers(text) == (12, 2)
    assert _numbers(text) == {12, 2, 80, 4.0}


def test_threads_of_other_libraries_are_to_be_limited() -> None:
    text = _advice(causes.CPU_STARVED, cores=4.0, cpu_busy_pct=100.0, job_cores=4.0)

    assert "OMP_NUM_THREADS=1" in text
    assert {4, 8.0} < _numbers(text)


def test_a_disk_is_described_by_its_rates() -> None:
    text = _advice(causes.DISK, read_per_s=20e6)

    assert _workers(text) == (4, 8)
    assert {20.0, 40.0} < _numbers(text)
    assert _numbers(_advice(causes.DISK)) == {4, 8}


def test_a_disk_that_has_enough_readers_is_to_be_faster() -> None:
    assert _workers(_advice(causes.DISK, idle=0.1)) is None


def test_a_network_wants_more_requests_at_once() -> None:
    text = _advice(causes.NETWORK, received_per_s=3e6)

    assert _workers(text) == (4, 8)
    assert 3.0 in _numbers(text)


def test_who_reads_packed_files_already_is_not_told_to_pack() -> None:
    disk, there = _advice(causes.DISK, idle=0.1), _advice(causes.DISK, idle=0.1, packed="RecordIO files")
    assert "pack them: smaller, in large files (pipetune pack)" in disk
    assert "make them smaller (pipetune pack), which are in RecordIO files already" in there
    assert "in large files" not in there
    assert "smaller and in large files" in _advice(causes.NETWORK)
    assert "in large files" not in _advice(causes.NETWORK, packed="WebDataset shards")


@pytest.mark.parametrize("cause", [causes.DISK, causes.NETWORK])
def test_no_advice_asks_for_hundreds_of_workers(cause: str) -> None:
    assert _workers(_advice(cause, idle=0.99, worker_count=16)) == (16, 64)


@pytest.mark.parametrize(("idle", "cores", "wanted"), [(0.75, 16.0, 3), (0.2, 16.0, 1), (0.9, 2.0, 2), (0.9, 0.5, 1)])
def test_loading_without_workers_wants_as_many_as_the_loss_takes(idle: float, cores: float, wanted: int) -> None:
    text = _advice(causes.NO_WORKERS, idle=idle, cores=cores)

    assert _workers(text) == (0, wanted)
    assert round(100 * idle) in _numbers(text)


def test_python_is_named_with_its_place() -> None:
    assert "log (train.py:9)" in _advice(causes.MAIN_PYTHON, python_where="log (train.py:9)")
    assert 20 in _numbers(_advice(causes.MAIN_PYTHON))


_OF_WATCH = sorted(cause.name for cause in causes.CAUSES.values() if causes.WATCH in cause.named_by)


@pytest.mark.parametrize("cause", _OF_WATCH)
def test_a_cause_has_advice_with_numbers_where_the_table_has_some(cause: str) -> None:
    assert (advice_for(cause, _LOSS, _CONTEXT) is None) == (causes.CAUSES[cause].advice is None)


@pytest.mark.parametrize("cause", _OF_WATCH)
def test_advice_can_be_given_where_nothing_was_measured(cause: str) -> None:
    nothing = replace(
        _CONTEXT, cpu_busy_pct=None, cpu_idle_pct=None, cpu_iowait_pct=None, psi_io_pct=None, worker_count=0,
        worker_kind=None, worker_cpu_frac=0.0, worker_busy_frac=0.0, job_cores=0.0, cores=1.0,
    )  # fmt: skip

    text = advice_for(cause, replace(_LOSS, idle_frac=1.0), nothing)

    assert "None" not in (text or "")


def test_a_verdict_carries_the_numbers_of_its_window() -> None:
    # Four workers at 97 %, at 40 % of full speed: 4 x 0.97 / 0.4 = 9.7.
    verdict = judged(scene(workers=workers(4)), cores=32.0, cpu_busy_pct=12.0, cpu_idle_pct=88.0)

    assert verdict.advice is not None
    assert _workers(verdict.advice) == (4, 10)
    assert {97, 9.7} < _numbers(verdict.advice)


def test_workers_that_fetch_through_poll_are_as_busy_as_any() -> None:
    # aiohttp and the like: asleep in epoll for 80 % of their time, and that is their work.
    polling = task_reading(state="S", wait="pipe", wchan="ep_poll", cpu_frac=0.2, run_delay_frac=0.0, read_bytes=0)

    verdict = judged(scene(workers=team(polling), has_sockets=True), net_rx_bytes=10_000_000)

    assert verdict.cause == causes.NETWORK
    assert verdict.advice is not None
    assert _workers(verdict.advice) == (4, 10)  # 4 x 1.0 / 0.4


def test_python_of_the_headline_names_where_most_stacks_saw_it() -> None:
    readings = with_stacks(scenes.PYTHON, act.PYTHON)

    assert "mostly in step (train.py:7)" in (judged(readings).advice or "")
