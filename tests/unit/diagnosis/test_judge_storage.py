"""How a verdict distinguishes disk, network and checkpoints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.diagnosis import causes
from pipetune.records.observation import (
    DISK,
)
from tests.unit.diagnosis import scenes
from tests.unit.diagnosis.scenes import judged, scene, shares_of, team
from tests.watch_fakes import main_reading


def test_disk_is_recognised_by_the_state_where_the_kernel_hides_names() -> None:
    hidden = replace(scenes.DISK_WORKER, wchan=None)

    assert judged(scene(workers=team(hidden))).cause == causes.DISK


def test_pages_of_a_network_file_system_are_the_network() -> None:
    waiting = team(replace(scenes.DISK_WORKER, read_bytes=0))

    assert judged(scene(workers=waiting), net_rx_bytes=5_000_000).cause == causes.NETWORK
    assert judged(scene(workers=waiting), net_rx_bytes=100).cause == causes.DISK  # nothing arrives


def test_a_disk_is_a_disk_however_much_else_arrives_over_the_network() -> None:
    assert judged(scenes.READS_DISK, net_rx_bytes=50_000_000).cause == causes.DISK


def test_without_counters_of_bytes_the_wait_alone_decides() -> None:
    unknown = team(replace(scenes.DISK_WORKER, read_bytes=None))

    assert judged(scene(workers=unknown), net_rx_bytes=5_000_000).cause == causes.DISK


def test_a_poll_is_the_network_only_with_a_connection_and_data() -> None:
    poll = team(replace(scenes.IDLE_WORKER, cpu_frac=0.2))

    def network_share(has_sockets: bool | None, net_rx_bytes: int | None) -> float:
        verdict = judged(scene(workers=poll, has_sockets=has_sockets), net_rx_bytes=net_rx_bytes)
        return shares_of(verdict).get(causes.NETWORK, 0.0)

    assert network_share(True, 10_000_000) == pytest.approx(0.8, abs=0.03)
    assert network_share(False, 10_000_000) == 0
    assert network_share(None, 10_000_000) == 0
    assert network_share(True, 100) == 0
    assert network_share(True, None) == 0


def test_inline_loading_from_a_slow_disk_is_inline_loading() -> None:
    reading = main_reading(state="D", wait=DISK, wchan="folio_wait_bit_common", read_chars=3_000_000, write_chars=0)
    readings = scene(main=reading, workers=(), worker_kind=None, youngest_worker_s=None)

    assert judged(readings).cause == causes.NO_WORKERS


def test_a_disk_wait_of_a_main_thread_that_writes_is_a_checkpoint() -> None:
    writing = main_reading(state="D", wait=DISK, wchan="balance_dirty_pages", read_chars=0, write_chars=90_000_000)

    assert judged(scene(main=writing)).cause == causes.CHECKPOINT
