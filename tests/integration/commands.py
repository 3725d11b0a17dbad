"""Runs the real command in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

Done = subprocess.CompletedProcess[str]


def python() -> list[str]:
    """How the command is started."""
    return [sys.executable, "-m", "pipetune"]


def sweep_command(root: Path | str, out: Path, *options: str) -> list[str]:
    """A sweep short enough for a test; later options win over earlier ones.

    The accelerator is so slow that it is fed even on a machine that is busy otherwise: what runs slower meanwhile is
    then not measured again.
    """
    return [
        *python(), "sweep", "--dataset", str(root), "--out", str(out), "--device",
        "emulated:100", "--batch-size", "4", "--image-size", "64", "--seconds", "0.4", "--workers", "0",
        "--prefetch", "2", "--backends", "pillow", "--vary", "none", "--blocks", "0", "--effort", "thorough", *options,
    ]  # fmt: skip


def run(command: list[str], cwd: Path | None = None, **environment: str) -> Done:
    return subprocess.run(
        command, capture_output=True, text=True, errors="surrogateescape", check=False, timeout=290, cwd=cwd,
        env={**os.environ, **environment},
    )  # fmt: skip


def start(command: list[str], cwd: Path | None = None, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
        cwd=cwd, start_new_session=True,
    )  # fmt: skip


def result_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def outcomes_in(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of a run folder, those of a running sweep included."""
    path = folder / "outcomes.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def wait_until(true: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def failed_in_one_line(done: Done, code: int, *texts: str) -> str:
    """The error: one line with what is wrong and what to try; no traceback anywhere."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    line = done.stderr.strip().splitlines()[-1]
    for text in texts:
        assert text in line
    return line


def swept(root: Path | str, out: Path, *options: str, **environment: str) -> dict[str, Any]:
    """A sweep that comes to its end, its JSON checked for a measured default."""
    done = run(sweep_command(root, out, *options, "--json", "-"), **environment)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    result = result_of(done)
    result["stderr"] = done.stderr
    return result


def gone_on(half: Path, out: Path, *options: str, **environment: str) -> dict[str, Any]:
    """The second half of the sweep in the folder ``half``, in a folder of its own."""
    shutil.copytree(half, out)
    done = run([*python(), "sweep", "--resume", str(out), *options, "--json", "-"], **environment)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return {**result_of(done), "stderr": done.stderr}


def failures(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["key"]: row["failure"] for row in result["outcomes"] if "failure" in row}
