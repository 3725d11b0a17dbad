from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest

from tests import ROOT
from tests.integration.commands import Done, python, run, start, wait_until

JOB = Path(__file__).with_name("watched_job.py")
#: A reading ten times a second, so that a window of a second and a half has enough of them.
QUICK = ("--interval", "100ms", "--window", "1500ms")
StartJob = Callable[[str], subprocess.Popen[str]]

pytestmark = pytest.mark.usefixtures("nobody_is_left")


@pytest.fixture
def start_job() -> Iterator[StartJob]:
    """Starts a job and waits until it trains."""
    jobs: list[subprocess.Popen[str]] = []

    def start_one(kind: str) -> subprocess.Popen[str]:
        job = start([sys.executable, str(JOB), kind], PYTHONPATH=str(ROOT))
        jobs.append(job)
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        return job

    yield start_one
    for job in jobs:
        job.kill()
        job.wait()


def watch(*options: str) -> list[str]:
    return [*python(), "watch", *options]


def lines_of(text: str) -> list[dict[str, Any]]:
    """Each line as the documented schema has it."""
    assert text.endswith("\n")
    schema = json.loads((ROOT / "pipetune" / "report" / "watch.schema.json").read_text())
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        if line["kind"] != "reading":
            jsonschema.validate(line, schema)
    return lines


def kinds_of(lines: list[dict[str, Any]]) -> list[str]:
    return [line["kind"] for line in lines]


def failed_in_one_line(done: Done) -> str:
    (line,) = done.stderr.splitlines()
    return line


def test_a_starved_job_is_reported_with_its_cause_its_shares_and_a_number(start_job: StartJob, tmp_path: Path) -> None:
    job = start_job("decode")
    time.sleep(1.2)  # a worker's first second counts as its start
    done = run(watch("--once", "--json", "--pid", str(job.pid), *QUICK), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = lines_of(done.stdout)
    assert kinds_of(lines)[0] == "start"
    assert kinds_of(lines)[-1] == "end"
    (window,) = [line for line in lines if line["kind"] == "window"]
    (verdict,) = window["verdicts"]
    assert verdict["cause"] in ("cpu_decode_bound", "cpu_starved")
    assert verdict["source"] == "emulated"
    assert verdict["lost_frac"] > 0.5
    assert len(verdict["workers"]) == 1
    assert sum(share["share"] for share in verdict["shares"]) == pytest.approx(1)
    assert verdict["advice"]
    assert list(tmp_path.iterdir()) == []  # --once writes no run folder


def test_a_fed_accelerator_is_healthy_and_fail_under_agrees(start_job: StartJob) -> None:
    job = start_job("healthy")
    done = run(watch("--once", "--pid", str(job.pid), "--fail-under", "0.8", *QUICK))
    assert done.returncode == 0, done.stderr
    assert "EMULATED" in done.stdout
    assert "healthy" in done.stdout


def test_fail_under_fails_a_starved_job(start_job: StartJob) -> None:
    job = start_job("decode")
    done = run(watch("--once", "--pid", str(job.pid), "--fail-under", "0.8", *QUICK))
    assert done.returncode == 1
    assert "--fail-under 0.8" in done.stdout


def test_without_an_accelerator_the_wait_for_the_loader_stands_in_and_is_named(start_job: StartJob) -> None:
    job = start_job("plain")
    done = run(watch("--once", "--json", "--no-stacks", "--pid", str(job.pid), "--interval", "100ms", "--window", "2s"))
    window = next(line for line in lines_of(done.stdout) if line["kind"] == "window")
    (verdict,) = window["verdicts"]
    assert verdict["source"] == "loader wait"
    assert verdict["util_frac"] is None
    assert any("no GPU of this job can be read" in line for line in verdict["missing"])


def test_a_loader_worker_s_number_leads_to_its_training_process(start_job: StartJob) -> None:
    job = start_job("decode")
    (worker,) = psutil.Process(job.pid).children()
    done = run(watch("--once", "--json", "--pid", str(worker.pid), *QUICK))
    first = lines_of(done.stdout)[0]
    assert first["pid"] == job.pid
    assert "loader worker" in first["found"]


def test_the_only_job_is_found_and_of_several_one_has_to_be_named(start_job: StartJob) -> None:
    job, other = start_job("decode"), start_job("healthy")
    done = run(watch("--once", *QUICK))
    assert done.returncode == 2
    message = failed_in_one_line(done)
    assert str(job.pid) in message
    assert str(other.pid) in message
    assert "--pid" in message


def test_a_job_that_is_killed_ends_the_watch_with_everything_written(start_job: StartJob, tmp_path: Path) -> None:
    job = start_job("decode")
    log = tmp_path / "log.jsonl"
    watching = start(watch("--pid", str(job.pid), "--log", str(log), "--out", str(tmp_path / "run"), *QUICK))
    wait_until(lambda: log.exists() and '"kind": "window"' in log.read_text())
    job.kill()
    job.wait()
    output, errors = watching.communicate(timeout=30)
    assert watching.returncode == 0, errors
    assert "the job ended" in output
    lines = lines_of(log.read_text())
    assert kinds_of(lines)[-1] == "end"
    assert lines[-1]["reason"] == "the job ended"
    assert "stall" in kinds_of(lines)
    run_folder = tmp_path / "run"
    assert json.loads((run_folder / "run.json").read_text())["kind"] == "watch"
    assert len(lines_of((run_folder / "windows.jsonl").read_text())) == kinds_of(lines).count("window")
    assert lines_of((run_folder / "timelines" / "main.jsonl").read_text())[0]["kind"] == "reading"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_watch_that_is_stopped_says_what_it_saw_and_leaves_the_job_alone(
    start_job: StartJob, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    job = start_job("decode")
    log = tmp_path / "log.jsonl"
    watching = start(watch("--pid", str(job.pid), "--log", str(log), "--no-save", *QUICK))
    wait_until(lambda: log.exists() and '"kind": "window"' in log.read_text())
    watching.send_signal(number)
    output, _ = watching.communicate(timeout=30)
    assert watching.returncode == code
    assert "interrupted" in output
    assert lines_of(log.read_text())[-1]["reason"] == "interrupted"
    assert job.poll() is None


def test_a_watch_that_is_killed_leaves_whole_lines_and_the_job(start_job: StartJob, tmp_path: Path) -> None:
    job = start_job("decode")
    log = tmp_path / "log.jsonl"
    watching = start(watch("--pid", str(job.pid), "--log", str(log), "--no-save", *QUICK))
    wait_until(lambda: log.exists() and '"kind": "window"' in log.read_text())
    watching.kill()
    watching.wait()
    kinds = kinds_of(lines_of(log.read_text()))
    assert kinds[0] == "start"
    assert "window" in kinds
    assert "end" not in kinds
    assert job.poll() is None


def test_a_log_on_a_full_disk_is_reported_and_does_not_end_the_watch(start_job: StartJob) -> None:
    job = start_job("decode")
    done = run(watch("--pid", str(job.pid), "--log", "/dev/full", "--no-save", "--for", "3s", *QUICK))
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "the time is up" in done.stdout
    assert "records could not be written" in done.stdout


def test_no_such_process() -> None:
    done = run(watch("--pid", str(2**22 - 1)))
    assert done.returncode == 2
    assert "there is no process" in failed_in_one_line(done)


def test_a_job_that_watch_starts_keeps_its_output_and_its_exit_code(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    script = "import sys; print(sys.stdin.read().upper(), end=''); sys.exit(3)"
    done = subprocess.run(
        watch("--no-save", "--log", str(log), "--", sys.executable, "-c", script), input="from stdin\n",
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stdout == "FROM STDIN\n"
    lines = lines_of(log.read_text())
    assert (lines[0]["found"], lines[-1]["job_exit_code"]) == ("started by pipetune", 3)


def test_a_started_job_is_judged_and_its_end_is_ours(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    job = ["timeout", "--foreground", "4", sys.executable, str(JOB), "decode"]
    done = run(watch("--no-save", "--log", str(log), *QUICK, "--", *job), PYTHONPATH=str(ROOT))
    assert done.returncode == 124
    assert done.stdout == "ready\n"
    verdict = lines_of(log.read_text())[-1]["verdicts"][0]
    assert verdict["cause"] in ("cpu_decode_bound", "cpu_starved")


SLOW_JOB = "import sys, time; time.sleep(3); sys.exit(4)"


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", "2> >(head -c 1 >/dev/null)"])
def test_whatever_its_standard_error_does_the_job_is_waited_for(redirection: str, tmp_path: Path) -> None:
    """A full disk, a closed stream, and a reader that leaves (a terminal whose connection is lost)."""
    command = watch("--no-save", "--no-stacks", *QUICK, "--", sys.executable, "-c", SLOW_JOB)
    began = time.monotonic()
    done = subprocess.run(
        ["bash", "-c", f"{shlex.join(command)} {redirection}"], capture_output=True, text=True, check=False,
        cwd=tmp_path, timeout=60,
    )  # fmt: skip
    assert done.returncode == 4
    assert time.monotonic() - began >= 3
    assert done.stdout == ""


def test_signals_reach_the_job_while_nobody_reads_standard_error(tmp_path: Path) -> None:
    reader, end = os.pipe()
    fcntl.fcntl(end, fcntl.F_SETFL, os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(end, b"x" * 4096)
    fcntl.fcntl(end, fcntl.F_SETFL, 0)
    script = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print('up', flush=True); "
        "time.sleep(60)"
    )
    command = watch("--no-save", "--no-stacks", *QUICK, "--", sys.executable, "-c", script)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=end, cwd=tmp_path) as watching:
        try:
            assert watching.stdout is not None
            assert watching.stdout.readline() == b"up\n"
            time.sleep(3)  # a window has closed, of which it cannot say a word
            watching.terminate()
            assert watching.wait(20) == 7
        finally:
            watching.kill()
            os.close(end)
            os.close(reader)


def test_a_command_that_cannot_be_started_leaves_no_folder(tmp_path: Path) -> None:
    done = run(watch("--", "no-such-program"), cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot start 'no-such-program'" in failed_in_one_line(done)
    assert list(tmp_path.glob("pipetune-runs/*")) == []
