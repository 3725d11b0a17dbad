from __future__ import annotations

import dataclasses
import json
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from pipetune.errors import PipetuneError
from pipetune.records.observation import GpuReading, Reading, TreeReading
from pipetune.records.sweep import StepTime
from pipetune.store import columns
from pipetune.store.columns import column_names, columns_of, load_columns
from pipetune.store.folder import RunFolder
from tests.run_folders import readings, steps
from tests.unit.samples import sample

KEY = "opencv-w2-p4-b64"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with RunFolder(tmp_path) as made:
        made.append_timeline(KEY, "step", steps(3))
        made.append_timeline(KEY, "reading", [sample(Reading), *readings(2)])
    return tmp_path


def file_of(folder: Path) -> Path:
    return folder / "timelines" / f"{KEY}.jsonl"


def test_every_field_of_a_record_becomes_a_column_with_its_values(folder: Path) -> None:
    found = load_columns(folder, KEY)

    reading = sample(Reading)
    assert found.problems == ()
    assert len(found.steps["t_start_ns"]) == len(found.readings["t_ns"]) == 3
    for field in dataclasses.fields(Reading):
        value = getattr(reading, field.name)
        if field.name in ("tree", "gpu"):
            for part in dataclasses.fields(value):
                assert found.readings[f"{field.name}_{part.name}"][0] == getattr(value, part.name)
        else:
            assert found.readings[field.name][0] == value
    assert set(found.readings) == set(column_names(Reading))
    assert set(found.steps) == {field.name for field in dataclasses.fields(StepTime)}


def test_instants_are_exact_and_what_was_not_measured_is_nan(folder: Path) -> None:
    found = load_columns(folder, KEY)

    assert found.readings["t_ns"].dtype == found.steps["t_end_ns"].dtype == np.int64
    assert found.steps["t_end_ns"].tolist() == [step.t_end_ns for step in steps(3)]
    assert np.isnan(found.steps["h2d_s"]).all()
    assert np.isnan(found.readings["gpu_util_pct"]).tolist() == [False, True, True]


def test_a_timeline_in_memory_has_the_same_columns(folder: Path) -> None:
    stored = load_columns(folder, KEY)
    here = columns_of([sample(Reading), *readings(2)], steps(3))

    for ours, theirs in ((here.readings, stored.readings), (here.steps, stored.steps)):
        assert list(ours) == list(theirs)
        assert all(np.array_equal(ours[name], theirs[name], equal_nan=True) for name in ours)
    assert [len(values) for values in columns_of().readings.values()] == [0] * len(column_names(Reading))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"kind": "reading", "t_ns": 1, broken\n', "line 4 was left out: "),
        (b'\xff\xfe{"kind": "reading"}\n', "line 4 was left out: "),
        (b'{"kind": "nothing of ours", "t_ns": 1}\n', "line 4 was left out: Invalid value 'nothing of ours'"),
        (b'{"kind": "reading"}\n', "line 4 was left out: Object missing required field `t_ns`"),
        (b'{"kind": "reading", "t_ns": "soon"}\n', "line 4 was left out: Expected `int`, got `str`"),
        (b'{"kind": "reading", "t_ns": 1, "cpu_busy_pct": NaN}\n', "line 4 was left out: "),
        (b"[1, 2]\n", "line 4 was left out: "),
    ],
)
def test_a_bad_line_is_left_out_and_reported_and_the_others_are_kept(folder: Path, line: bytes, said: str) -> None:
    lines = file_of(folder).read_bytes().splitlines(keepends=True)
    file_of(folder).write_bytes(b"".join([*lines[:3], line, *lines[3:]]))

    found = load_columns(folder, KEY)

    assert len(found.steps["t_start_ns"]) == len(found.readings["t_ns"]) == 3
    assert len(found.problems) == 1
    assert found.problems[0].startswith(f"{KEY}.jsonl {said}")


def test_a_timeline_cut_off_at_any_byte_keeps_its_whole_lines(folder: Path) -> None:
    content = file_of(folder).read_bytes()
    for size in range(0, len(content), 7):
        file_of(folder).write_bytes(content[:size])
        found = load_columns(folder, KEY)
        assert len(found.steps["t_start_ns"]) + len(found.readings["t_ns"]) == content[:size].count(b"\n")
        torn = size > 0 and content[size - 1 : size] != b"\n"
        assert len(found.problems) == torn
        assert not torn or "was not written to its end" in found.problems[0]


def test_blocks_are_joined_where_a_line_crosses_their_border(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = load_columns(folder, KEY)
    monkeypatch.setattr(columns, "_BLOCK_BYTES", 100)

    found = load_columns(folder, KEY)

    assert found.problems == ()
    assert all(np.array_equal(found.readings[n], whole.readings[n], equal_nan=True) for n in whole.readings)
    file_of(folder).write_bytes(file_of(folder).read_bytes() + b"broken\n")
    assert load_columns(folder, KEY).problems[0].startswith(f"{KEY}.jsonl line 7 was left out")


def test_a_text_that_comes_again_is_reported_once_and_counted_once(folder: Path) -> None:
    lines = [json.dumps({"schema": 2, "kind": "reading", "t_ns": number}) for number in range(100)]
    file_of(folder).write_text("\n".join(lines) + "\n")

    assert len(load_columns(folder, KEY).problems) == 1


def test_an_instant_out_of_reach_is_a_bad_line(folder: Path) -> None:
    file_of(folder).write_text('{"kind": "reading", "t_ns": 100000000000000000000}\n' + "[" * 100_000 + "\n")

    assert len(load_columns(folder, KEY).problems) == 2


def test_very_many_bad_lines_are_counted(folder: Path) -> None:
    file_of(folder).write_bytes(b"broken\n" * 1000)

    found = load_columns(folder, KEY)

    assert len(found.problems) == 21
    assert found.problems[-1] == f"{KEY}.jsonl: 980 more lines were left out"


def test_what_an_older_version_did_not_write_is_absent_and_what_a_newer_one_adds_is_ignored(folder: Path) -> None:
    older = {"kind": "reading", "t_ns": 7, "tree": {"cpu_s": 1.5}, "gpu": {}}
    newer = {"schema": 2, "kind": "step", "t_start_ns": 1, "t_end_ns": 2, "colour": "blue"}
    file_of(folder).write_text(json.dumps(older) + "\n" + json.dumps(newer) + "\n")

    found = load_columns(folder, KEY)

    assert found.readings["tree_cpu_s"].tolist() == [1.5]
    assert np.isnan(found.readings["gpu_power_w"]).all()
    assert np.isnan(found.readings["interval_s"]).all()
    assert found.steps["t_end_ns"].tolist() == [2]
    assert found.problems == (f"{KEY}.jsonl was written in schema 2, this version reads 1: upgrade pipetune",)


def test_a_timeline_that_is_missing_and_one_that_cannot_be_read(folder: Path) -> None:
    assert load_columns(folder, "other").problems == ("other.jsonl is missing",)
    (folder / "timelines" / "folder.jsonl").mkdir()
    with pytest.raises(PipetuneError, match=r"cannot read .*folder\.jsonl"):
        load_columns(folder, "folder")
    with pytest.raises(ValueError, match="safe"):
        load_columns(folder, "../b")


def test_nested_columns_carry_their_records_name() -> None:
    names = column_names(Reading)
    for prefix, kind in (("tree_", TreeReading), ("gpu_", GpuReading)):
        assert [n for n in names if n.startswith(prefix)] == [prefix + f.name for f in dataclasses.fields(kind)]


def test_a_line_that_is_too_long_is_passed_over_in_little_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_MOST_ROWS", 1000)  # or room for more is set aside, and not used
    lines = file_of(folder).read_bytes().splitlines(keepends=True)
    with file_of(folder).open("wb") as file:
        file.writelines(lines[:3])
        for _ in range(64):
            file.write(b"x" * (1 << 20))
        file.write(b"\n")
        file.writelines(lines[3:])
    tracemalloc.start()
    try:
        found = load_columns(folder, KEY)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    assert len(found.steps["t_start_ns"]) == len(found.readings["t_ns"]) == 3
    assert found.problems == (f"{KEY}.jsonl line 4 was left out: it is too long ({64 << 20 | 1} bytes)",)


def test_what_is_behind_the_limits_is_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_BLOCK_BYTES", 100)
    monkeypatch.setattr(columns, "_MOST_ROWS", 2)
    found = load_columns(folder, KEY)
    assert len(found.steps["t_start_ns"]) + len(found.readings["t_ns"]) == 2
    assert found.problems == (f"{KEY}.jsonl has more than 2 rows, and the rest was left out",)
    monkeypatch.setattr(columns, "_MOST_BYTES", 100)
    monkeypatch.setattr(columns, "_MOST_ROWS", 1000)
    found = load_columns(folder, KEY)
    assert len(found.steps["t_start_ns"]) + len(found.readings["t_ns"]) == 1
    assert "and the rest was left out" in found.problems[0]


def test_a_named_pipe_is_not_waited_for(folder: Path) -> None:
    file_of(folder).unlink()
    os.mkfifo(file_of(folder))
    with pytest.raises(PipetuneError, match=r"cannot read .*: not a regular file"):
        load_columns(folder, KEY)


def test_numbers_that_nobody_has_measured_are_left_out(folder: Path) -> None:
    file_of(folder).write_bytes(b'{"kind": "step", "t_start_ns": 1, "t_end_ns": 2, "idle_s": 1e18}\n')
    assert "Expected `float` <= 1000000000.0" in load_columns(folder, KEY).problems[0]
