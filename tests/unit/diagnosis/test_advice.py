from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.diagnosis import causes
from pipetune.diagnosis.advice import advice_for, workers_needed
from pipetune.diagnosis.attribution import Loss
from pipetune.diagnosis.evidence import Context
from pipetune.sampler.stacks import activity as act
from tests.unit.diagnosis import scenes
from tests.unit.diagnosis.scenes import judged, scene, team, with_stacks
from tests.watch_fakes import task_reading, workers

_CONTEXT = Context(
    cores=16.0, quota_cores=None, cpu_busy_pct=25.0, cpu_idle_pct=75.0, cpu_iowait_pct=0.0, psi_cpu_pct=0.0,
    psi_io_pct=0.0, psi_scope="machine", throttled_frac=None, gpu_throttled_frac=None, received_per_s=None,
    read_per_s=None, worker_count=4, worker_kind="process", worker_cpu_frac=0.9, worker_delay_frac=0.0,
    worker_busy_frac=0.9, job_cores=3.8, main_cpu_frac=0.2, worker_stacks={}, python_where=None,
)  # fmt: skip
_LOSS = Loss(
    source="nvml", seconds=30.0, util_frac=0.5, idle_frac=0.5, idle_ci95=(0.45, 0.55), unfilled_frac=0.0,
    shares={causes.CPU_DECODE: 1.0}, readings=60, activities={}, proven=True,
)  # fmt: skip


def _advice(cause: str, *, idle: float = 0.5, **context: Any) -> str:
    text = advice_for(cause, replace(_LOSS, idle_frac=idle), replace(_CONTEXT, **context))
    assert text is not None
    return text


def test_workers_needed_are_those_busy_now_at_the_rate_without_the_loss() -> None:
    assert workers_needed(_LOSS, _CONTEXT) == pytest.approx(4 * 0.9 / 0.5)
    assert workers_needed(replace(_LOSS, idle_frac=0.0), _CONTEXT) == pytest.approx(3.6)
    assert workers_needed(replace(_LOSS, idle_frac=1.0), _CONTEXT) == pytest.approx(4 * 0.9 / 0.02)


def test_decoding_wants_more_workers_where_cores_are_free() -> None:
    assert _advice(causes.CPU_DECODE) == (
        "num_workers 4 -> 8: workers are 90 % busy, 12.0 of 16 cores idle, demand is 7.2 workers' worth"
    )


def test_decoding_wants_at_least_one_more_worker() -> None:
    assert "num_workers 4 -> 5" in _advice(causes.CPU_DECODE, idle=0.06)


def test_decoding_wants_less_work_where_there_are_no_cores() -> None:
    few = _advice(causes.CPU_DECODE, cores=6.0)
    none_ = _advice(causes.CPU_DECODE, cores=4.0)

    assert few.startswith("num_workers 4 -> 6, and decode for less: full speed takes 7.4 cores")
    assert none_.startswith("decode for less: full speed takes 7.4 cores with this decoder, 4 are usable")


def test_threads_that_share_a_core_want_processes() -> None:
    text = _advice(causes.CPU_DECODE, worker_kind="thread", worker_cpu_frac=0.25)

    assert "4 loader threads share 1.0 cores" in text
    assert "use processes" in text
    assert "num_workers 4 ->" in _advice(causes.CPU_DECODE, worker_kind="thread", worker_cpu_frac=0.9)


def test_a_quota_is_to_be_raised_to_what_full_speed_takes() -> None:
    text = _advice(causes.CPU_STARVED, quota_cores=2.0, cores=2.0, throttled_frac=0.4, job_cores=2.0)

    assert text.startswith("raise the CPU quota 2 -> 4 cores: it stops the job 40 % of the time")


def test_a_quota_that_stops_nobody_is_not_blamed() -> None:
    assert "quota" not in _advice(causes.CPU_STARVED, quota_cores=8.0, throttled_frac=0.01)


def test_other_processes_are_to_be_moved() -> None:
    text = _advice(causes.CPU_STARVED, cores=8.0, cpu_busy_pct=100.0, job_cores=3.0)

    assert text.startswith("free the CPU: other processes use 5.0 of 8 cores")
    assert "6.0 at full speed" in text


def test_too_many_workers_are_to_be_fewer() -> None:
    text = _advice(
        causes.CPU_STARVED, cores=2.0, cpu_busy_pct=100.0, job_cores=2.0, worker_count=12, worker_delay_frac=0.8
    )

    assert text.startswith("num_workers 12 -> 2: 12 workers share 2 cores and wait for one 80 % of their time")


def test_threads_of_other_libraries_are_to_be_limited() -> None:
    text = _advice(causes.CPU_STARVED, cores=4.0, cpu_busy_pct=100.0, job_cores=4.0)

    assert "fill all 4 cores, full speed takes 8.0" in text
    assert "OMP_NUM_THREADS=1" in text


def test_a_disk_is_told_with_its_rates() -> None:
    text = _advice(causes.DISK, read_per_s=20e6)

    assert text.startswith("num_workers 4 -> 8 if the disk can take more requests at once, else keep the images")
    assert "at 20.0 MB/s; full speed reads 40.0 MB/s" in text
    assert _advice(causes.DISK).endswith("workers wait for storage")


def test_a_disk_that_has_enough_readers_is_to_be_faster() -> None:
    assert _advice(causes.DISK, idle=0.1).startswith("keep the images in memory or on a faster disk")


def test_a_network_wants_more_requests_at_once() -> None:
    text = _advice(causes.NETWORK, received_per_s=3e6)

    assert text.startswith("num_workers 4 -> 8, several requests at once in each, or a local copy")
    assert text.endswith("3.0 MB/s arrive")


@pytest.mark.parametrize("cause", [causes.DISK, causes.NETWORK])
def test_no_advice_asks_for_hundreds_of_workers(cause: str) -> None:
    assert "num_workers 16 -> 64" in _advice(cause, idle=0.99, worker_count=16)


def test_loading_without_workers_wants_as_many_as_the_loss_takes() -> None:
    assert _advice(causes.NO_WORKERS, idle=0.75).startswith("num_workers 0 -> 3: ")
    assert "75 % of the time; full speed takes 3.0 workers' worth" in _advice(causes.NO_WORKERS, idle=0.75)
    assert _advice(causes.NO_WORKERS, idle=0.2).startswith("num_workers 0 -> 1: ")
    assert _advice(causes.NO_WORKERS, idle=0.9, cores=2.0).startswith("num_workers 0 -> 2: ")
    assert _advice(causes.NO_WORKERS, idle=0.9, cores=0.5).startswith("num_workers 0 -> 1: ")


def test_python_is_told_with_its_place() -> None:
    assert "mostly in log (train.py:9)" in _advice(causes.MAIN_PYTHON, python_where="log (train.py:9)")
    assert "on a core 20 % of the time" in _advice(causes.MAIN_PYTHON)


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
    assert verdict.advice.startswith("num_workers 4 -> 10: workers are 97 % busy")
    assert "demand is 9.7 workers' worth" in verdict.advice


def test_workers_that_fetch_through_poll_are_as_busy_as_any() -> None:
    # aiohttp and the like: asleep in epoll for 80 % of their time, and that is their work.
    polling = task_reading(state="S", wait="pipe", wchan="ep_poll", cpu_frac=0.2, run_delay_frac=0.0, read_bytes=0)

    verdict = judged(scene(workers=team(polling), has_sockets=True), net_rx_bytes=10_000_000)

    assert verdict.cause == causes.NETWORK
    assert verdict.advice is not None
    assert verdict.advice.startswith("num_workers 4 -> 10")  # 4 x 1.0 / 0.4


def test_python_of_the_headline_names_where_most_stacks_saw_it() -> None:
    readings = with_stacks(scenes.PYTHON, act.PYTHON)

    assert "mostly in step (train.py:7)" in (judged(readings).advice or "")
