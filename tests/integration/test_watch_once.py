"""``watch --once`` beside jobs in which neither an accelerator nor a loader can be seen: it always has a verdict."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from pipetune.sampler.stacks.dump import dump, find_py_spy
from tests.integration.commands import python, run, start

#: What the thread of a pool does in the first one releases the interpreter's lock, as decoders do. ``ready`` says that
#: it has begun. Any process may trace it, whatever Yama says (PR_SET_PTRACER_ANY).
BEGIN = """\
import ctypes, hashlib, sys, time
from concurrent.futures import ThreadPoolExecutor
ctypes.CDLL(None).prctl(0x59616d61, ctypes.c_ulong(-1))
data = bytes(8_000_000)
print("ready", flush=True)
"""
JOBS = {
    "pool": "pool = ThreadPoolExecutor(1)\nwhile True: pool.submit(lambda: hashlib.sha256(data).digest()).result()",
    "python": "while True: sum(number % 7 for number in range(10_000))",
    "asleep": "while True: time.sleep(0.01)",
    "short": "time.sleep(2.5)",
}

pytestmark = pytest.mark.usefixtures("nobody_is_left")
StartJob = Callable[[str], Popen[str]]


@pytest.fixture
def start_job(tmp_path: Path) -> Iterator[StartJob]:
    """Starts a job and waits until it has begun."""
    jobs: list[Popen[str]] = []

    def start_one(kind: str) -> Popen[str]:
        (tmp_path / "train.py").write_text(BEGIN + JOBS[kind])
        job = start([sys.executable, str(tmp_path / "train.py")])
        jobs.append(job)
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        return job

    yield start_one
    for job in jobs:
        job.kill()
        job.wait()


def _verdict(job: Popen[str], *options: str) -> dict[str, Any]:
    done = run([*python(), "watch", "--once", "--json", "--pid", str(job.pid), "--interval", "200ms", *options])
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    (window,) = [line for line in lines if line["kind"] == "window"]
    (verdict,) = window["verdicts"]
    return dict(verdict)


def _needs_stacks(job: Popen[str]) -> None:
    if find_py_spy() is None or dump(job.pid).permanent:
        pytest.skip("stacks cannot be read here")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("pool", "cpu_decode_bound"), pytest.param("python", "main_process_python", marks=pytest.mark.slow)],
)
def test_a_job_with_no_loader_in_sight_is_judged_by_what_its_threads_do(
    start_job: StartJob, kind: str, expected: str
) -> None:
    job = start_job(kind)
    _needs_stacks(job)

    verdict = _verdict(job, "--window", "5s")

    assert verdict["cause"] in (expected, "cpu_starved")  # on a machine whose cores others use, both are true
    assert expected in [share["cause"] for share in verdict["shares"]]
    assert verdict["lost_frac"] > 0.5
    assert verdict["evidence"]


def test_what_cannot_be_told_is_undetermined_with_what_was_seen(start_job: StartJob) -> None:
    verdict = _verdict(start_job("asleep"), "--for", "4s")

    assert verdict["cause"] == "undetermined"
    assert "main thread" in verdict["evidence"][0]


def test_a_job_that_ends_first_has_a_verdict_all_the_same(start_job: StartJob) -> None:
    assert _verdict(start_job("short"))["cause"] in ("undetermined", "not_started")


def test_the_verdict_is_printed(start_job: StartJob) -> None:
    job = start_job("asleep")

    done = run([*python(), "watch", "--once", "--pid", str(job.pid), "--for", "2s"])

    assert done.returncode == 0
    assert "train.py" in done.stdout
    assert "confidence" in done.stdout
