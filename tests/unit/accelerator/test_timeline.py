from __future__ import annotations

import itertools
import os
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipetune.accelerator.timeline import (
    NAME,
    DeviceEntry,
    TimelineReader,
    TimelineWriter,
    busy_between,
    find_timeline,
    idle_at,
)

HEADER, ENTRY = 24, 24


@pytest.fixture
def writer() -> Iterator[TimelineWriter]:
    made = TimelineWriter(capacity=8)
    yield made
    made.close()


@pytest.fixture
def reader(writer: TimelineWriter) -> Iterator[TimelineReader]:
    path = find_timeline(os.getpid())
    assert path is not None
    made = TimelineReader(path)
    yield made
    made.close()


def _entries(*spans: tuple[int, int]) -> list[DeviceEntry]:
    return [DeviceEntry(start, end, (end - start) // 2) for start, end in spans]


def _file(folder: Path, data: bytes) -> str:
    path = folder / "timeline"
    path.write_bytes(data)
    return str(path)


def test_steps_are_read_as_they_were_written(writer: TimelineWriter, reader: TimelineReader) -> None:
    assert (reader.steps, reader.entries(0)) == (0, [])

    writer.add(10, 20, 5)
    writer.add(30, 40, 10)

    assert reader.steps == 2
    assert reader.entries(0) == [DeviceEntry(10, 20, 5), DeviceEntry(30, 40, 10)]


def test_steps_that_ended_before_are_left_out(writer: TimelineWriter, reader: TimelineReader) -> None:
    for start in (10, 30, 50):
        writer.add(start, start + 10, 1)

    assert [entry.t_start_ns for entry in reader.entries(39)] == [30, 50]
    assert [entry.t_start_ns for entry in reader.entries(40)] == [50]
    assert reader.entries(60) == []


@pytest.mark.parametrize("count", [7, 8, 9, 16, 17, 100])
def test_a_ring_keeps_the_newest_steps_in_order(writer: TimelineWriter, reader: TimelineReader, count: int) -> None:
    for number in range(count):
        writer.add(10 * number, 10 * number + 5, number)

    # One short of its length: the oldest place may be written over at this moment.
    newest = list(range(max(0, count - 7), count))
    assert [entry.full_ns for entry in reader.entries(-1)] == newest
    assert reader.steps == count


def test_a_reader_that_comes_late_sees_the_same(writer: TimelineWriter) -> None:
    for number in range(20):
        writer.add(10 * number, 10 * number + 5, number)
    path = find_timeline(os.getpid())
    assert path is not None

    late = TimelineReader(path)

    assert [entry.full_ns for entry in late.entries(0)] == list(range(13, 20))
    late.close()
    late.close()


def test_an_entry_overwritten_during_the_read_is_left_out(writer: TimelineWriter, reader: TimelineReader) -> None:
    # The entry is written, and the count not yet raised.
    for number in range(8):
        writer.add(number, number + 1, number)
    struct.pack_into("<q", writer._map, HEADER, 10**6)

    assert [entry.t_start_ns for entry in reader.entries(-1)] == list(range(1, 8))


def test_a_timeline_longer_than_one_piece_is_read_whole() -> None:
    writer = TimelineWriter(capacity=1000)
    for number in range(1500):
        writer.add(number, number + 1, 1)
    path = find_timeline(os.getpid())
    assert path is not None
    reader = TimelineReader(path)

    assert [entry.t_start_ns for entry in reader.entries(-1)] == list(range(501, 1500))
    assert [entry.t_start_ns for entry in reader.entries(1300)] == list(range(1300, 1500))
    reader.close()
    writer.close()


@pytest.mark.parametrize("size", [0, 8, 12, HEADER, HEADER + 5, HEADER + 3 * ENTRY])
def test_a_file_that_is_cut_off_meanwhile_ends_nobody(size: int) -> None:
    # Mapped memory beyond the end of its file ends the process that reads it, so this runs in one of its own.
    code = (
        "import os, sys; from pipetune.accelerator.timeline import *; writer = TimelineWriter(8)\n"
        "for n in range(6): writer.add(n, n + 1, 1)\n"
        "path = find_timeline(os.getpid()); reader = TimelineReader(path)\n"
        "other = os.open(path, os.O_RDWR); os.ftruncate(other, int(sys.argv[1]))\n"
        "print(len(reader.entries(-1)) <= 3, flush=True); os._exit(0)"
    )

    done = subprocess.run([sys.executable, "-c", code, str(size)], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "True", "")


def test_a_count_that_is_wrong_is_no_endless_search(writer: TimelineWriter, reader: TimelineReader) -> None:
    struct.pack_into("<Q", writer._map, 8, 2**64 - 1)

    assert len(reader.entries(-1)) <= 8


def test_a_pipe_in_its_place_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fd")

    with pytest.raises(ValueError, match="timeline"):
        TimelineReader(str(tmp_path / "fd"))


def test_a_full_time_below_nothing_is_no_work() -> None:
    assert busy_between([DeviceEntry(0, 10, -5)], 0, 10) == (1.0, 0.0)


def test_another_process_reads_the_steps(writer: TimelineWriter) -> None:
    writer.add(1, 2, 3)
    code = (
        "import sys; from pipetune.accelerator.timeline import *; "
        "print(TimelineReader(find_timeline(int(sys.argv[1]))).entries(0))"
    )

    done = subprocess.run([sys.executable, "-c", code, str(os.getpid())], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == str([DeviceEntry(1, 2, 3)])


def test_a_program_that_this_process_starts_does_not_have_it(writer: TimelineWriter) -> None:
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        found = find_timeline(child.pid)
        child.kill()

    assert found is None


def test_a_timeline_is_gone_when_it_is_closed() -> None:
    writer = TimelineWriter()
    writer.close()
    writer.close()

    assert find_timeline(os.getpid()) is None


def test_the_newest_of_several_is_found(writer: TimelineWriter) -> None:
    newer = TimelineWriter()
    newer.add(5, 6, 7)
    path = find_timeline(os.getpid())
    assert path is not None
    reader = TimelineReader(path)
    entries = reader.entries(0)
    reader.close()
    newer.close()

    assert entries == [DeviceEntry(5, 6, 7)]


def test_a_process_without_one_has_none(tmp_path: Path) -> None:
    folder = tmp_path / "7/fd"
    folder.mkdir(parents=True)
    (folder / "0").symlink_to("/dev/null")
    (folder / "1").symlink_to("/memfd:something else (deleted)")

    assert find_timeline(7, str(tmp_path)) is None
    assert find_timeline(8, str(tmp_path)) is None
    (folder / "3").symlink_to(f"/memfd:{NAME} (deleted)")
    (folder / "11").symlink_to(f"/memfd:{NAME} (deleted)")
    assert find_timeline(7, str(tmp_path)) == f"{tmp_path}/7/fd/11"


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        TimelineReader(str(tmp_path / "absent"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"pipetun2" + struct.pack("<QQ", 0, 4) + bytes(4 * ENTRY),  # another version
        bytes(HEADER + 8 * ENTRY),  # the header is not written yet
        b"pipetun1" + struct.pack("<QQ", 0, 9) + bytes(8 * ENTRY),  # shorter than it says
        b"pipetun1" + struct.pack("<QQ", 0, 0),
    ],
    ids=["empty", "another version", "no header yet", "cut short", "no capacity"],
)
def test_another_file_is_an_error(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"timeline|empty file"):
        TimelineReader(_file(tmp_path, data))


@pytest.mark.parametrize("size", [1, HEADER - 1])
def test_a_file_shorter_than_a_header_is_an_error(tmp_path: Path, size: int) -> None:
    with pytest.raises(ValueError, match="timeline"):
        TimelineReader(_file(tmp_path, b"pipetun1".ljust(size, b"\0")[:size]))


@pytest.mark.parametrize(
    ("span", "busy"),
    [
        ((0, 100), 0.4),
        ((10, 30), 1.0),
        ((30, 50), 0.0),
        ((20, 40), 0.5),
        ((60, 100), 0.25),
        ((0, 15), 1 / 3),
        ((15, 65), 0.6),
        ((70, 200), 0.0),
        ((12, 18), 1.0),
    ],
)
def test_a_step_counts_as_far_as_it_lies_in_the_span(span: tuple[int, int], busy: float) -> None:
    entries = _entries((10, 30), (50, 70))

    util, active = busy_between(entries, *span)

    assert util == pytest.approx(busy)
    assert active == pytest.approx(busy / 2)


def test_nothing_is_no_work() -> None:
    assert busy_between([], 0, 100) == (0.0, 0.0)
    assert busy_between(_entries((0, 10)), 5, 5) == (0.0, 0.0)


def test_a_step_of_no_length_is_no_division_by_zero() -> None:
    assert busy_between([DeviceEntry(5, 5, 0)], 0, 10) == (0.0, 0.0)


def test_shares_are_never_more_than_all() -> None:
    assert busy_between(_entries((0, 100), (0, 100), (0, 100)), 0, 100) == (1.0, 1.0)


def test_work_that_lies_ahead_counts_up_to_now() -> None:
    assert busy_between([DeviceEntry(50, 10**9, 10**9 - 50)], 0, 100)[0] == pytest.approx(0.5)


def test_spans_side_by_side_add_up() -> None:
    rng = random.Random(4)
    entries, now = [], 0
    for _ in range(50):
        start = now + rng.randint(0, 30)
        now = start + rng.randint(1, 40)
        entries.append(DeviceEntry(start, now, rng.randint(0, now - start)))
    marks = sorted({0, now, *(rng.randint(0, now) for _ in range(20))})

    for which in (0, 1):
        parts = [busy_between(entries, a, b)[which] * (b - a) for a, b in itertools.pairwise(marks)]
        assert sum(parts) == pytest.approx(busy_between(entries, 0, now)[which] * now)


@pytest.mark.parametrize(
    ("t_ns", "idle"), [(0, True), (9, True), (10, False), (29, False), (30, True), (50, False), (99, True)]
)
def test_an_instant_is_idle_or_not(t_ns: int, idle: bool) -> None:
    assert idle_at(_entries((10, 30), (50, 70)), t_ns) is idle


def test_idle_instants_and_busy_shares_agree() -> None:
    rng = random.Random(9)
    entries = _entries(*((start, start + rng.randint(1, 40)) for start in range(0, 2000, 50)))

    idle = sum(idle_at(entries, t_ns) for t_ns in range(2000)) / 2000

    assert idle == pytest.approx(1 - busy_between(entries, 0, 2000)[0])
