from __future__ import annotations

import pytest

from pipetune.answering.disks import disk_rate
from pipetune.records.prediction import Disk


def test_a_disk_is_limited_by_bytes_or_reads() -> None:
    assert disk_rate(Disk(bytes_per_s=9.8e6), 98_000, 1) == pytest.approx(100)
    assert disk_rate(Disk(bytes_per_s=9.8e6, requests_per_s=50), 98_000, 1) == 50
    assert disk_rate(Disk(requests_per_s=500), 1e6, 8) == 62.5
    seeking = disk_rate(Disk(name="hdd", bytes_per_s=270e6, requests_per_s=170), 110_000, 1)
    assert seeking == pytest.approx(159, abs=1)  # it seeks, and then it reads
