"""The time that a pack is expected to take, from what its trials took."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.packing import duration, shards
from pipetune.packing.duration import Disk, Duration, Work
from pipetune.packing.formats.table import FORMATS
from pipetune.packing.options import Pixels
from pipetune.packing.prepare import open_sources
from pipetune.packing.sources import Sources
from pipetune.records.pack import CORES, READING, WRITING
from tests.unit.packing.packs import photographs

pytestmark = pytest.mark.usefixtures("jpeg_roi")

COUNT, BYTES = 10_000, 1e9
WORK = [Work(cpu_s=0.003, read_s=0.0)] * 200
DISK = Disk(bytes_per_s=1e9, wait_s_per_byte=1e-9, waits_s_per_byte=(0.5e-9, 3e-9))


def predicted(disk: Disk | None = DISK, works: list[Work] = WORK, **changes: Any) -> Duration:
    asked = {"image_s": 0.0016, "threads": 2, "cores": 2.0, **changes}
    return duration.predict_duration(works, count=COUNT, total_bytes=BYTES, disk=disk, **asked)


def test_the_cores_limit_it_where_the_disk_is_fast() -> None:
    found = predicted()
    assert found.limited_by == CORES
    assert found.seconds == pytest.approx(16)
    assert found.ci95 == pytest.approx((0.75 * 16, 1.25 * 16))
    assert predicted(None).seconds == found.seconds


def test_the_samples_times_have_to_do_where_nothing_could_be_packed_on_trial() -> None:
    assert predicted(image_s=None).seconds == pytest.approx(COUNT * 0.003 / 2)
    assert predicted(image_s=None, threads=8, cores=4.0).seconds == pytest.approx(COUNT * 0.003 / 4)
    # Reading comes after packing in each thread, and is hidden by more threads.
    reads = [Work(cpu_s=0.003, read_s=0.001)] * 200
    assert predicted(works=reads, image_s=None).seconds == pytest.approx(COUNT * 0.004 / 2)
    assert predicted(works=reads, image_s=None, threads=4).seconds == pytest.approx(COUNT * 0.003 / 2)


def test_of_a_disk_that_is_fast_at_one_time_and_slow_at_another_the_interval_has_both() -> None:
    slow = Disk(bytes_per_s=2e7, wait_s_per_byte=5e-8, waits_s_per_byte=(2.5e-8, 1e-7))
    found = predicted(slow)
    assert found.limited_by == WRITING
    assert found.seconds == pytest.approx(50)
    assert found.ci95 == pytest.approx((0.75 * 25, 1.25 * 100))
    # The fastest of it is not faster than the cores.
    assert predicted(replace(slow, waits_s_per_byte=(0.0, 1e-7))).ci95[0] == pytest.approx(0.75 * 16)


def test_a_disk_that_may_be_slow_makes_the_interval_wide_where_the_cores_limit_it() -> None:
    found = predicted(replace(DISK, waits_s_per_byte=(0.0, 1e-7)))
    assert found.limited_by == CORES
    assert found.seconds == pytest.approx(16)
    assert found.ci95[1] == pytest.approx(1.25 * 100)


def test_reading_limits_it_where_storage_takes_longer_than_packing() -> None:
    assert predicted(works=[Work(cpu_s=0.003, read_s=0.001)] * 200).limited_by == CORES
    assert predicted(works=[Work(cpu_s=0.001, read_s=0.02)] * 200).limited_by == READING


def test_nothing_that_can_be_packed_takes_no_time() -> None:
    assert predicted(works=[]) == Duration(0.0, (0.0, 0.0), CORES)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    return open_sources(str(photographs(tmp_path_factory.mktemp("sources") / "photos")), lambda *told: None)


ASKED: dict[str, Any] = {"threads": 2, "cpu_s": 0.01, "bytes_per_image": 1.0, "seed": 0}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("format_", ["webdataset", "folder"])
def test_a_sample_is_packed_on_trial_and_nothing_of_it_stays(
    format_: str, threads: int, sources: Sources, tmp_path: Path
) -> None:
    found = duration.try_packing(
        sources, range(24), FORMATS[format_], [Pixels(), Pixels(mode="lossless")], out=tmp_path / "not" / "there",
        **{**ASKED, "threads": threads},
    )  # fmt: skip
    assert found is not None
    assert 1e-6 < found < 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        pytest.param({}, 400, id="two seconds of two threads"),
        pytest.param({"cpu_s": 1e-9, "bytes_per_image": 1 << 20}, 256, id="256 MiB"),
        pytest.param({"cpu_s": 10.0}, 50, id="some in any case"),
        pytest.param({"cpu_s": 1e-9}, 2000, id="a fifth of the pack"),
    ],
)
def test_a_trial_takes_different_images_and_so_many_at_most(
    changes: dict[str, float], count: int, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    monkeypatch.setattr(duration, "_time_packing", lambda packs, count, threads: tried.extend(packs[0].split.order))
    order = range(5, 10_005)
    duration.try_packing(sources, order, FORMATS["webdataset"], [Pixels()], out=tmp_path, **{**ASKED, **changes})
    assert len(tried) == len(set(tried)) == count
    assert set(tried) <= set(order)
    assert tried == sorted(tried)


def test_a_trial_ends_where_storage_is_slow(sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    real = shards.pack_source
    monkeypatch.setattr(shards, "pack_source", lambda number, *rest: (read.append(number), real(number, *rest))[1])
    monkeypatch.setattr(duration, "_LONGEST_TRIAL_S", 0.0)
    asked = {**ASKED, "threads": 1}
    assert duration.try_packing(sources, range(24), FORMATS["webdataset"], [Pixels()], out=tmp_path, **asked)
    assert len(read) == 2


def test_a_disk_that_is_full_leaves_the_samples_times(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **changes: Any) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(duration.tempfile, "mkdtemp", full)
    assert duration.try_packing(sources, range(2), FORMATS["folder"], [Pixels()], out=tmp_path, **ASKED) is None


def test_what_a_disk_takes_is_tried(tmp_path: Path) -> None:
    found = duration.try_disk(tmp_path)
    assert found is not None
    assert found.bytes_per_s > 0
    assert found.waits_s_per_byte[0] <= found.wait_s_per_byte <= found.waits_s_per_byte[1]
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_has_left_is_removed_and_nothing_of_a_living_one(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    here, elsewhere = f".pipetune-trial-{socket.gethostname()}@", ".pipetune-trial-elsewhere@"
    for place in (f"{here}{gone.pid}", f"{here}{os.getpid()}", f"{elsewhere}{gone.pid}"):
        (tmp_path / f"{place}-abc" / "0").mkdir(parents=True)
        (tmp_path / f"{place}-xyz").touch()
    duration.remove_trials(tmp_path)
    assert {path.name.rpartition("-")[0] for path in tmp_path.iterdir()} == {
        f"{here}{os.getpid()}", f"{elsewhere}{gone.pid}",
    }  # fmt: skip


def test_a_trial_of_the_disk_follows_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else may write into the folder, too, and foresees the name."""
    precious = tmp_path / "precious"
    precious.write_text("kept")
    out = tmp_path / "out"
    out.mkdir()
    for name in (f"{os.getpid()}-disk", f"{socket.gethostname()}@{os.getpid()}-disk"):
        (out / f".pipetune-trial-{name}").symlink_to(precious)
    assert duration.try_disk(out) is not None
    assert precious.read_text() == "kept"
