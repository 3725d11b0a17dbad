from __future__ import annotations

import json
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pipetune.diagnosis import causes
from pipetune.errors import PipetuneError
from pipetune.records.observation import LOADER_WAIT
from pipetune.records.sweep import to_dict
from pipetune.store.folder import create_run
from tests.unit.watching.session_scene import FakeProcess, Watch
from tests.unit.watching.watch_scene import PID, TRAINING, WAITING


@pytest.fixture
def make(tmp_path: Path) -> Any:
    with ExitStack() as held:

        def one(*, save: bool = True, **options: Any) -> Watch:
            folder = create_run(tmp_path / "run", dataset_name="watch", now=datetime(2026, 1, 1)) if save else None
            watch = Watch(folder, **options)
            held.callback(lambda: watch.session and watch.session.thread.stop())
            if folder is not None:
                held.callback(folder.close)
            return watch

        yield one


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_window_is_written_reported_and_exported(make: Any, tmp_path: Path) -> None:
    watch = make()
    watch.start(**TRAINING | {"busy_frac": 0.4})
    watch.until(lambda: watch.observer.windows)

    (window, *_) = watch.observer.windows
    assert window.verdicts[0].lost_frac == pytest.approx(0.6)
    assert watch.exporter.windows == watch.observer.windows
    assert watch.observer.names == ["Test GPU"]
    assert read(tmp_path / "run" / "windows.jsonl")[0]["number"] == 1
    assert len(read(tmp_path / "run" / "timelines" / "main.jsonl")) >= 4
    assert watch.observer.pauses >= 1


def test_the_start_record_is_written_and_reported(make: Any, tmp_path: Path) -> None:
    watch = make()
    watch.start(**TRAINING)

    record = watch.observer.record
    assert record is not None
    assert (record.pid, record.title, record.found) == (PID, "train.py", "found")
    assert (record.interval_s, record.window_s) == (0.05, 2.0)
    assert json.loads((tmp_path / "run" / "run.json").read_text()) == json.loads(
        json.dumps({"schema": 1, "kind": "watch"} | to_dict(record))
    )


def test_the_job_s_end_ends_the_watch(make: Any) -> None:
    watch = make()
    watch.start(**TRAINING)
    watch.job.ended = True

    assert watch.reason() == "the job ended"


def test_a_started_job_s_exit_ends_the_watch_and_is_in_the_end_record(make: Any, tmp_path: Path) -> None:
    watch, process = make(), FakeProcess()
    session = watch.start(process, **TRAINING)
    watch.job.ended = True
    watch.until(lambda: not session.thread.running)  # as long as the process runs, the watch goes on
    process.exit_code = 3

    assert watch.reason() == "the job ended"
    end = session.close("the job ended")
    assert end.exit_code == 0
    assert end.record.job_exit_code == 3
    assert json.loads((tmp_path / "run" / "result.json").read_text())["job_exit_code"] == 3


def test_the_time_limit_ends_the_watch(make: Any) -> None:
    watch = make(for_s=0.2)
    watch.start(**TRAINING)

    assert watch.reason() == "the time is up"


def test_once_ends_after_a_window_in_which_the_job_trains(make: Any) -> None:
    watch = make(once=True, save=False)
    watch.start(**TRAINING)

    assert watch.reason() == "one window was asked for"
    assert len(watch.observer.windows) == 1
    watch.session.close("one window was asked for")
    assert len(watch.observer.windows) == 1


UNSEEN: dict[str, Any] = {"source": LOADER_WAIT, "busy_frac": None, "workers": (), "worker_kind": None}


@pytest.mark.parametrize("seen", [TRAINING, UNSEEN])
@pytest.mark.parametrize("ends", ["job", "time", "signal"])
def test_once_has_a_verdict_however_the_watch_ends(make: Any, seen: dict[str, Any], ends: str) -> None:
    watch = make(once=True, save=False, window_s=1000.0, for_s=0.5 if ends == "time" else None)
    session = watch.start(**seen)
    if ends == "job":
        watch.until(lambda: len(session.watcher.machine) > 3)
        watch.job.ended = True
    if ends != "signal":
        watch.reason()
    else:
        watch.until(lambda: len(session.watcher.machine) > 3)

    session.close(ends)

    (window,) = watch.observer.windows
    (verdict,) = window.verdicts
    assert verdict.pid == PID
    assert verdict.looks > 0
    assert watch.exporter.windows == [window]


def test_once_has_a_verdict_of_a_job_that_was_gone_before_it_was_read(make: Any) -> None:
    watch = make(once=True, save=False)
    session = watch.start(**TRAINING)
    watch.job.seen.clear()
    watch.job.ended = True
    watch.reason()

    session.close("the job ended")

    (window,) = watch.observer.windows
    assert [verdict.pid for verdict in window.verdicts] == [PID]


def test_what_cannot_be_seen_reaches_no_share_of_used_time(make: Any) -> None:
    watch = make(once=True, save=False, window_s=1000.0, fail_under=0.5)
    session = watch.start(**UNSEEN)
    watch.until(lambda: len(session.watcher.machine) > 12)

    end = session.close("interrupted")

    assert watch.observer.windows[0].verdicts[0].cause == causes.UNDETERMINED
    assert end.exit_code == 1
    assert "nothing was seen that could be judged" in (end.record.below or "")


def test_readings_that_fail_end_the_watch_with_the_reason(make: Any) -> None:
    watch = make()
    session = watch.start(**TRAINING)
    watch.job.seen[PID]["no_such_field"] = 1

    with pytest.raises(PipetuneError, match="reading failed: TypeError"):
        watch.reason()
    assert not session.thread.running


def test_close_takes_the_rest(make: Any, tmp_path: Path) -> None:
    watch = make(window_s=1000.0)
    session = watch.start(**TRAINING)
    watch.until(lambda: len(session.watcher.machine) > 3)
    watch.job.rank(PID, **WAITING)
    seen = len(session.watcher.machine)
    watch.until(lambda: len(session.watcher.machine) > seen + 10)

    end = session.close("interrupted", 130)

    assert watch.observer.end is end
    assert [window.number for window in watch.observer.windows] == [1]
    assert len(watch.observer.stalls) == end.record.stalls == 1
    assert (end.record.reason, end.exit_code, end.lost, end.record.below) == ("interrupted", 130, 0, None)
    assert end.folder == tmp_path / "run"
    assert end.record.verdicts[0].looks == watch.observer.windows[0].verdicts[0].looks
    assert (watch.job.closed, watch.gpus.closed) == (True, True)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["reason"] == "interrupted"
    assert set(result) == {
        "schema", "kind", "reason", "verdicts", "stalls", "stalled_s", "own_core_frac", "own_rss_bytes",
        "job_exit_code", "below",
    }  # fmt: skip


def test_a_window_without_a_reading_of_a_rank_is_not_written_at_the_end(make: Any) -> None:
    watch = make()
    session = watch.start(busy_frac=0.0, workers=(), worker_kind=None)
    watch.until(lambda: len(session.watcher.machine) > 3)

    session.close("interrupted")

    assert watch.observer.windows == []


def test_a_thread_that_hangs_is_left_behind_with_its_files(make: Any) -> None:
    watch = make(window_s=1.0)
    session = watch.start(**TRAINING)
    watch.until(lambda: watch.observer.windows)
    written = len(watch.observer.windows)
    session.thread.stop()
    session.thread.stop = lambda: False  # type: ignore[method-assign]

    end = session.close("interrupted")

    assert (watch.job.closed, watch.gpus.closed) == (False, False)
    assert len(watch.observer.windows) == written
    assert end.record.verdicts


@pytest.mark.parametrize("once", [False, True])
def test_a_reading_that_does_not_end_is_told(make: Any, once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipetune.watching.session._SILENCE_S", 0.5)
    watch = make(once=once)
    watch.observer.on_pause = lambda held: None
    session = watch.start(**TRAINING)
    with session.thread.held(5.0):  # as a driver that does not answer
        if once:
            with pytest.raises(PipetuneError, match=r"a reading takes longer than 0\.5 s.*nvidia-smi"):
                watch.until(lambda: False)
        else:
            watch.until(lambda: watch.observer.notes)
            assert "takes longer than 0.5 s" in watch.observer.notes[0]


@pytest.mark.parametrize(
    ("fail_under", "seen", "below"),
    [
        (0.8, TRAINING, None),
        (0.8, TRAINING | {"busy_frac": 0.5}, "--fail-under 0.8: 0.50 of the time was used"),
        (None, TRAINING | {"busy_frac": 0.5}, None),
    ],
)
def test_fail_under(make: Any, fail_under: float | None, seen: dict[str, Any], below: str | None) -> None:
    watch = make(fail_under=fail_under, save=False)
    session = watch.start(**seen)
    watch.until(lambda: watch.observer.windows)

    end = session.close("interrupted")

    assert (end.record.below is None) == (below is None)
    assert below is None or below in str(end.record.below)
    assert end.exit_code == (0 if below is None else 1)


def test_fail_under_fails_where_nothing_was_judged(make: Any) -> None:
    watch = make(fail_under=0.8, save=False)
    session = watch.start(busy_frac=0.0, workers=(), worker_kind=None)

    end = session.close("interrupted")

    assert end.record.below == "--fail-under 0.8: nothing was seen that could be judged"
    assert end.exit_code == 1


def test_a_log_that_refuses_is_noted_and_decides_the_exit_code(make: Any) -> None:
    watch = make(log=Path("/dev/full"), save=False)
    session = watch.start(**TRAINING)
    watch.until(lambda: watch.observer.windows)

    end = session.close("interrupted")

    assert end.lost >= 3
    assert "No space left on device" in str(end.problem)
    assert end.exit_code == 1
    assert end.problem in watch.observer.notes


def test_notes_are_reported_and_kept_in_the_window(make: Any) -> None:
    watch = make()
    watch.notes.put("GPU 0 cannot be read: it is lost")
    watch.start(**TRAINING)
    watch.until(lambda: watch.observer.windows)

    assert watch.observer.notes == ["GPU 0 cannot be read: it is lost"]
    assert "GPU 0 cannot be read: it is lost" in watch.observer.windows[0].notes


def test_missing_figures_of_a_gpu_are_explained_in_the_window(make: Any) -> None:
    watch = make()
    watch.gpus.problem = "NVML is not installed"
    watch.start(**TRAINING | {"source": LOADER_WAIT, "busy_frac": None})
    watch.until(lambda: watch.observer.windows)

    assert watch.observer.windows[0].notes == ("no figures of a GPU: NVML is not installed",)
    assert watch.observer.notes == []
