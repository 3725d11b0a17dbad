from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipetune.errors import PipetuneError
from pipetune.records.observation import Reading
from pipetune.records.sweep import from_dict
from pipetune.records.watch import Stall, WatchResult, WatchStart, Window
from pipetune.runs.load import load
from pipetune.store.folder import RunFolder
from pipetune.store.watch_log import WatchLog, is_kept, timeline_key, timeline_of
from tests.unit.samples import sample

RECORDS: dict[str, Any] = {
    "start": sample(WatchStart), "window": sample(Window), "stall": sample(Stall), "end": sample(WatchResult),
}  # fmt: skip


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(log: WatchLog) -> None:
    for kind, record in RECORDS.items():
        getattr(log, kind)(record)


def test_every_record_is_one_line_of_the_log_and_comes_back(tmp_path: Path) -> None:
    write(WatchLog(None, tmp_path / "log"))
    lines = lines_of(tmp_path / "log")
    assert [line["kind"] for line in lines] == list(RECORDS)
    assert {line["schema"] for line in lines} == {1}
    assert [from_dict(type(RECORDS[line["kind"]]), line) for line in lines] == list(RECORDS.values())


@pytest.mark.parametrize("before", [b"somebody's file without an end", b"whole\nhalf a line that", b"\x00" * 100])
def test_what_was_in_the_log_stays(before: bytes, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(before)
    write(WatchLog(None, tmp_path / "log"))
    after = (tmp_path / "log").read_bytes()
    assert after.startswith(before + b"\n{")
    assert len(after.splitlines()) == len(before.splitlines()) + len(RECORDS)


def test_two_watches_with_one_log_lose_no_line(tmp_path: Path) -> None:
    logs = [WatchLog(None, tmp_path / "log") for _ in range(2)]
    for _ in range(3):
        for log in logs:
            write(log)
    assert len(lines_of(tmp_path / "log")) == 6 * len(RECORDS)


def test_a_log_is_added_to(tmp_path: Path) -> None:
    for _ in range(2):
        write(WatchLog(None, tmp_path / "log"))
    assert len(lines_of(tmp_path / "log")) == 2 * len(RECORDS)


def test_the_run_folder_has_a_file_for_each_kind(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as folder:
        log = WatchLog(folder, None)
        assert log.keeps_readings
        write(log)
        log.readings([(None, 17, sample(Reading)), (3, 18, sample(Reading))])
    assert json.loads((tmp_path / "run.json").read_text())["kind"] == "watch"
    assert from_dict(WatchStart, json.loads((tmp_path / "run.json").read_text())) == RECORDS["start"]
    assert from_dict(WatchResult, json.loads((tmp_path / "result.json").read_text())) == RECORDS["end"]
    assert [from_dict(Window, line) for line in lines_of(tmp_path / "windows.jsonl")] == [RECORDS["window"]]
    assert [from_dict(Stall, line) for line in lines_of(tmp_path / "stalls.jsonl")] == [RECORDS["stall"]]
    assert sorted(path.name for path in (tmp_path / "timelines").iterdir()) == ["main.jsonl", "rank3.jsonl"]


def test_training_processes_without_a_rank_have_a_timeline_each(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as folder:
        log = WatchLog(folder, None)
        for pids in [(17,), (17, 18), (18, 19), (19,)]:  # 19 takes the place of 17
            log.readings([(None, pid, sample(Reading)) for pid in pids])
    counts = {path.stem: len(lines_of(path)) for path in (tmp_path / "timelines").iterdir()}
    assert counts == {"main": 4, "main-18": 2}
    assert [timeline_of(None, pid, counts) for pid in (17, 18, 19)] == ["main", "main-18", "main"]
    assert timeline_of(2, 18, counts) == "rank2"


def test_what_cannot_be_written_is_counted(tmp_path: Path) -> None:
    log = WatchLog(None, tmp_path / "nowhere" / "log")
    assert not log.keeps_readings
    write(log)
    assert log.lost == len(RECORDS)
    assert log.problem is not None
    assert "No such file or directory" in log.problem


def test_what_was_watched_is_written_as_soon_as_the_disk_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunFolder(tmp_path) as folder:
        log, write_json, refused = WatchLog(folder, None), folder.write_json, ["run.json", "run.json"]

        def full(name: str, content: dict[str, object]) -> None:
            if name in refused:
                refused.remove(name)
                raise PipetuneError("no space left")
            write_json(name, content)

        monkeypatch.setattr(folder, "write_json", full)
        log.start(RECORDS["start"])  # type: ignore[arg-type]
        log.window(RECORDS["window"])  # type: ignore[arg-type]
        assert not (tmp_path / "run.json").exists()
        assert log.lost == 1
        assert load(tmp_path).kind == "watch", "and the folder can be read meanwhile"
        log.window(RECORDS["window"])  # type: ignore[arg-type]
        assert from_dict(WatchStart, json.loads((tmp_path / "run.json").read_text())) == RECORDS["start"]
    assert log.lost == 0


@pytest.mark.parametrize(
    ("number", "kept"),
    [(1, True), (10_000, True), (10_001, False), (10_010, True), (100_000, True), (100_010, False), (100_100, True)],
)
def test_readings_are_thinned_out(number: int, kept: bool) -> None:
    assert is_kept(number) is kept


def test_a_timeline_is_named_by_its_rank() -> None:
    assert (timeline_key(None), timeline_key(7)) == ("main", "rank7")
