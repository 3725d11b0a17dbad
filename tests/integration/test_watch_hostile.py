"""Jobs that harm whoever watches them: by what they publish, by what their frames name, by their many threads."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen

import pytest

from pipetune.sampler.stacks.dump import dump, find_py_spy
from tests import ROOT
from tests.integration.commands import Done, python, run, start

BEGIN = """\
import ctypes, os, sys, threading, time
ctypes.CDLL(None).prctl(0x59616d61, ctypes.c_ulong(-1))  # any process may trace it, whatever Yama says
folder = sys.argv[1]
"""
JOBS = {
    "cuts off its timeline": """\
from pipetune.accelerator.timeline import TimelineWriter, find_timeline
writer = TimelineWriter()
file = os.open(find_timeline(os.getpid()), os.O_RDWR)
whole = os.fstat(file).st_size
def work():
    for _ in range(20):
        now = time.monotonic_ns()
        writer.add(now, now + 20_000_000, 20_000_000)
        time.sleep(0.02)
for number in range(1000):  # so that the newest do not share a page with the head
    writer.add(number, number + 1, 1)
print("ready", flush=True)
while True:
    work()
    os.ftruncate(file, 100)
    time.sleep(0.1)
    os.ftruncate(file, whole)
""",
    "names a pipe": """\
print("ready", flush=True)
exec(compile("while True: sum(range(10_000))", folder + "/pipe", "exec"))
""",
    "names a device": """\
print("ready", flush=True)
exec(compile("while True: sum(range(10_000))", "/dev/zero", "exec"))
""",
    "has many threads": """\
threading.stack_size(128 << 10)
for _ in range(600):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
while True: sum(range(10_000))
""",
}

pytestmark = [pytest.mark.usefixtures("nobody_is_left"), pytest.mark.slow]
StartJob = Callable[[str], Popen[str]]


@pytest.fixture
def start_job(tmp_path: Path) -> Iterator[StartJob]:
    """Starts a job and waits until it has begun."""
    jobs: list[Popen[str]] = []

    def start_one(kind: str) -> Popen[str]:
        (tmp_path / "train.py").write_text(BEGIN + JOBS[kind])
        os.mkfifo(tmp_path / "pipe")
        job = start([sys.executable, str(tmp_path / "train.py"), str(tmp_path)], PYTHONPATH=str(ROOT))
        jobs.append(job)
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        return job

    yield start_one
    for job in jobs:
        job.kill()
        job.wait()


def _watched(job: Popen[str]) -> Done:
    return run([*python(), "watch", "--once", "--json", "--pid", str(job.pid), "--interval", "100ms", "--for", "4s"])


def test_a_job_that_cuts_off_its_timeline_ends_no_watch(start_job: StartJob) -> None:
    done = _watched(start_job("cuts off its timeline"))

    assert done.returncode == 0, done.stderr
    (window,) = [json.loads(line) for line in done.stdout.splitlines() if '"window"' in line]
    assert window["verdicts"]


@pytest.mark.parametrize("kind", ["names a pipe", "names a device"])
def test_a_frame_that_names_no_file_hangs_no_watch(start_job: StartJob, kind: str) -> None:
    job = start_job(kind)
    if find_py_spy() is None or dump(job.pid).permanent:
        pytest.skip("stacks cannot be read here")
    done = _watched(job)

    assert done.returncode == 0, done.stderr
    (window,) = [json.loads(line) for line in done.stdout.splitlines() if '"window"' in line]
    assert window["verdicts"][0]["looks"] > 8


def test_a_process_of_many_threads_is_watched_without_stacks(start_job: StartJob) -> None:
    done = _watched(start_job("has many threads"))

    assert done.returncode == 0, done.stderr
    (window,) = [json.loads(line) for line in done.stdout.splitlines() if '"window"' in line]
    assert window["verdicts"][0]["stacks"] == 0
    assert window["own_rss_bytes"] < 100e6
