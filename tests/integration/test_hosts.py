"""``pipetune sweep --hosts`` as two processes of this machine, with real loaders and real signals."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests import ROOT

pytest.importorskip("torch.distributed", reason="hosts agree by its store")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SWEEP = (
    "sweep", "--dataset", "synthetic:caltech256?n=60", "--device", "emulated:300", "--batch-size", "8", "--backends",
    "pillow", "--workers", "0,1,2", "--vary", "none", "--prefetch", "2", "--grid", "--blocks", "0", "--seconds", "1",
    "--progress", "lines", "--out", "run",
)  # fmt: skip


@contextlib.contextmanager
def two_hosts(folder: Path, *words: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Host 1 and host 2; whatever is left of them is ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "pipetune", *words, "--hosts", "auto"], env={**env, "RANK": str(rank)}, cwd=folder,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        yield started
    finally:
        for process in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()
            process.communicate()


def wait_until_measured(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    file = folder / "run" / "outcomes.jsonl"
    while not file.exists() or len(file.read_text().splitlines()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def left_behind(process: subprocess.Popen[str]) -> set[psutil.Process]:
    return set(psutil.Process(process.pid).children(recursive=True))


def test_both_measure_and_the_result_has_both(tmp_path: Path) -> None:
    with two_hosts(tmp_path, *SWEEP) as (first, second):
        said, errors = first.communicate(timeout=200)
        other = second.communicate(timeout=30)[1]
    assert (first.returncode, second.returncode) == (0, 0), errors + other
    assert "2 hosts at the same time deliver" in " ".join(said.split())
    assert other.splitlines()[0] == "host 2 of 2: measures what host 1 asks for"
    assert "socket" not in other, "torch's own remarks on each wait"
    outcomes = [json.loads(line) for line in (tmp_path / "run" / "outcomes.jsonl").read_text().splitlines()]
    measured = [outcome["measurement"] for outcome in outcomes]
    assert len(measured) >= 4
    for one in measured:
        assert [share["host"] for share in one["hosts"]] == [0, 1]
        assert one["samples_per_s"] in [share["samples_per_s"] for share in one["hosts"]]
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["workload"]["hosts"] == 2


def test_a_host_that_is_killed_is_named_and_the_sweep_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    with two_hosts(tmp_path, *SWEEP, "--workers", "0,1,2,3") as (first, second):
        wait_until_measured(tmp_path, 2)
        children = left_behind(second)
        second.kill()
        said, errors = first.communicate(timeout=100)
    assert first.returncode == 1
    text = " ".join((said + errors).split())
    assert "(host 2) has not answered for 20 s" in text
    assert "resume with: pipetune sweep --resume run --hosts auto" in text
    psutil.wait_procs(children, timeout=10)
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    before = (tmp_path / "run" / "outcomes.jsonl").read_text()
    alone = subprocess.run(
        [sys.executable, "-m", "pipetune", "sweep", "--resume", "run"], env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert alone.returncode == 2
    assert "run was measured on 2 hosts; resume it on as many, with --hosts auto" in alone.stderr
    with two_hosts(tmp_path, "sweep", "--resume", "run") as (first, second):
        assert first.wait(timeout=200) == 0
        assert second.wait(timeout=30) == 0
    after = (tmp_path / "run" / "outcomes.jsonl").read_text()
    assert after.startswith(before), "nothing is measured twice or lost"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_where_host_1_is_stopped_both_end_with_what_was_measured(tmp_path: Path, number: signal.Signals) -> None:
    with two_hosts(tmp_path, *SWEEP, "--workers", "0,1,2,3,4") as (first, second):
        wait_until_measured(tmp_path, 2)
        children = left_behind(first) | left_behind(second)
        first.send_signal(number)
        first.communicate(timeout=60)
        other = second.communicate(timeout=60)[1]
    assert first.returncode == 128 + number
    assert second.returncode == 1
    assert other.splitlines()[-1].startswith("pipetune: host 1 was stopped: it was interrupted")
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "interrupted"
    psutil.wait_procs(children, timeout=10)
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def test_torchrun_as_the_manual_shows_it(tmp_path: Path) -> None:
    manual = (ROOT / "docs/guides/ranks.md").read_text()
    (line,) = [line for line in manual.splitlines() if line.startswith("torchrun ")]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    words = shlex.split(line)
    options = words[1 : words.index("-m")]
    launcher = [option.replace("=4", "=2").replace("n1:29400", endpoint) for option in options]
    assert [option for option in launcher if endpoint in option]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *launcher, "-m", "pipetune", *SWEEP, "--hosts", "auto"],
            env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=250) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], said
    assert sum("host 2 of 2: done" in errors for _, errors in said) == 1
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["workload"]["hosts"] == 2
