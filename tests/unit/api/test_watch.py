"""``pipetune.watch`` of a job that does what a test says. A real job is in ``tests/integration/test_api.py``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import pytest

import pipetune
from pipetune.api import watch as module
from pipetune.api.watch import Watching
from pipetune.errors import PipetuneError, UsageError
from pipetune.sampler.job.gpus import RankGpus
from pipetune.sampler.job.roles import ProcessInfo
from pipetune.watching import session
from pipetune.watching.find import Target
from pipetune.watching.options import WatchOptions
from tests.unit.watching.session_scene import FakeGpus
from tests.unit.watching.watch_scene import PID, TRAINING, FakeJob

#: As good as never, for tests that wait for something and must not hang.
LONG_S = 30.0


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> FakeJob:
    job = FakeJob()
    job.rank(PID, **TRAINING | {"busy_frac": 0.25})
    monkeypatch.setattr(session, "JobReader", lambda pid, gpu_of, neighbours: job)
    monkeypatch.setattr(module, "_POLL_S", 0.01)
    return job


@pytest.fixture
def watching(job: FakeJob, tmp_path: Path) -> Watching:
    info = ProcessInfo(
        pid=PID, parent=1, start_ticks=1, name="x", command=("python", "<b>train.py"), rank=None, local_rank=None
    )
    gpus: Any = FakeGpus()
    gpus.of = gpus.neighbours = None
    target = Target(info=info, found="named", gpus=cast(RankGpus, gpus), notes=SimpleQueue())
    return Watching(WatchOptions(interval_s=0.05, window_s=2.0, out=tmp_path / "run", stacks=False), target)


def test_a_watch_describes_itself_from_its_begin_to_its_end(watching: Watching, tmp_path: Path) -> None:
    assert "state not begun" in repr(watching)
    with watching as seen:
        assert f"<b>train.py (process {PID}); state watching; duration" in repr(seen)
        assert "lost unknown before the first window closes" in repr(seen)
        until = time.monotonic() + LONG_S
        while "cause" not in repr(seen) and time.monotonic() < until:
            time.sleep(0.02)
        assert "lost 75 % of the accelerator's time; cause " in repr(seen)
        seen_html = seen._repr_html_()
    assert "&lt;b&gt;train.py" in seen_html
    assert "<b>" not in seen_html
    assert "state the watch was ended; duration" in repr(watching)
    assert repr(watching).endswith(f"run folder {tmp_path / 'run'}>")
    assert repr(watching) == repr(watching)  # the duration does not change


def test_the_end_record_is_that_of_the_command(watching: Watching, job: FakeJob, tmp_path: Path) -> None:
    with watching as seen:
        seen.wait(0.2)
        job.ended = True
        seen.wait(LONG_S)

    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["reason"] == "the job ended"
    assert (result["job_exit_code"], result["below"]) == (None, None)
    assert seen.run.result is not None
    assert len(seen.frame()) >= 1


def test_notes_about_gpus_are_in_the_window(watching: Watching, tmp_path: Path) -> None:
    watching._target.notes.put("GPU 0 cannot be read: it is lost")
    with watching as seen:
        until = time.monotonic() + LONG_S
        while "cause" not in repr(seen) and time.monotonic() < until:
            time.sleep(0.02)

    first = json.loads((tmp_path / "run" / "windows.jsonl").read_text().splitlines()[0])
    assert first["notes"] == ["GPU 0 cannot be read: it is lost"]


def test_readings_that_fail_are_raised_and_recorded(watching: Watching, job: FakeJob, tmp_path: Path) -> None:
    with watching as seen:
        job.seen[PID]["no_such_field"] = 1
        with pytest.raises(PipetuneError, match="reading failed: TypeError"):
            seen.wait(LONG_S)
        assert "state reading failed: TypeError" in repr(seen)

    assert json.loads((tmp_path / "run" / "result.json").read_text())["reason"].startswith("reading failed: TypeError")


def test_a_watch_is_used_once_and_inside_its_with(watching: Watching) -> None:
    for use in (lambda: watching.verdicts, lambda: watching.run, lambda: watching.wait(0.0)):
        with pytest.raises(UsageError, match="nothing has been watched yet"):
            use()
    with watching:
        pass
    with pytest.raises(UsageError, match="used already"), watching:
        pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"interval_s": 0.01}, "--interval 0.01s is out of range"),
        ({"window_s": 0.5}, "--window 0.5s is out of range"),
        ({"interval_s": 0.1, "window_s": 121.0}, "more than 1200"),
        ({"gpu": -1}, "--gpu -1 is out of range"),
    ],
)
def test_arguments_out_of_range_are_named_as_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        pipetune.watch(1, **options)

    assert message in refused.value.message
