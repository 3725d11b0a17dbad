"""Runs one stage: in its own process, within its cap, with everything that it started ended at the end.

The stage runs under pipetune's supervisor (:mod:`pipetune.processes.supervise`), which adopts and kills all that the
stage leaves, also when the lease itself is killed: the kernel closes the supervisor's input then.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.gpu.leasing.archive import LOG, RUNS, make_work_folder
from benchmarks.gpu.leasing.findings import write_json
from benchmarks.gpu.leasing.needs import Missing
from benchmarks.gpu.leasing.outcome import judge
from pipetune.processes.supervised import Supervised

_TAIL_LINES = 25
#: Between two looks whether the stage has ended, and between two copies of its unfinished result (s).
_CHECK_S, _COPY_S = 0.5, 2.0


def run_stage(
    stage: str,
    name: str,
    folder: Path,
    *,
    device: str,
    uuid: str | None,
    cap_s: float,
    facts: Mapping[str, Any],
    environment: Mapping[str, str],
    copy_to: Path | None,
) -> dict[str, Any]:
    """Run a stage and return its result, which is in ``folder/NAME.json`` as well, at any time.

    Args:
        name: of this try.
        folder: the device's.
        facts: what the lease knows of device, date and version; goes into the result.
        copy_to: a file that has a copy of the unfinished result while the stage runs; ``None``: nowhere.
    """
    file, began = folder / f"{name}.json", time.monotonic()
    # Until it has ended it counts as cut: a kill at this moment leaves a result that says so.
    write_json(file, {"stage": stage, **facts, "cap_s": round(cap_s, 1), "cut": True, "status": judge({"cut": True})})
    work = make_work_folder(folder, name)
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu.leasing.stage",
        stage,
        device,
        str(file),
        str(work / RUNS),
        f"{cap_s:.1f}",
        uuid or "",
    ]
    error, cut = None, False
    with (work / LOG).open("wb") as log:
        process = Supervised(command, {**environment, "TMPDIR": str(make_place(environment, name))}, log)
        try:
            cut = not _wait(process, began + cap_s, lambda: _copy(file, copy_to))
        finally:
            process.close()
    if process.error is not None:
        error = process.error
    elif not cut and (code := process.exit_code):
        error = f"ended with {f'exit code {code}' if code > 0 else signal.Signals(-code).name}"
    content = _read(file)
    content |= {"seconds": round(time.monotonic() - began, 1), "cut": cut}
    if error is not None:
        tail = (work / LOG).read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        content["problems"] = [*content.get("problems", ()), error]
        content["log_tail"] = tail
    return content


def finish(file: Path, content: dict[str, Any], missing: list[Missing], *, rehearsal: str | None) -> dict[str, Any]:
    """Write a stage's last result: with what it could not try here, and with its status.

    Args:
        rehearsal: why the stage proves nothing of a GPU; ``None``: it was no rehearsal.
    """
    again = f"bash benchmarks/gpu/lease.sh --only {content['stage']}"
    if content.get("cut"):
        content.setdefault("not_proven", []).append(
            {
                "what": "the rest",
                "reason": f"the stage was ended after {content['seconds']:.0f} s",
                "command": again,
                "need": None,
            }
        )
    for item in missing:
        content.setdefault("not_proven", []).append(
            {
                "what": item.need,
                "reason": item.reason,
                "command": f"{item.command} && {again}",
                "need": item.need,
            }
        )
    if rehearsal is not None:
        content.setdefault("not_proven", []).append(
            {
                "what": "on a GPU",
                "reason": rehearsal,
                "command": f"{again} --device cuda:0",
                "need": None,
            }
        )
    content["status"] = judge(content)
    write_json(file, content)
    return content


def make_place(environment: Mapping[str, str], name: str) -> Path:
    """The stage's own temporary folder; empty."""
    place = Path(environment["TMPDIR"], name)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return place


def _wait(process: Supervised, deadline: float, copy: Callable[[], None]) -> bool:
    """Wait until the stage has ended; ``False``: its time is over."""
    copied = time.monotonic()
    while (remaining_s := deadline - time.monotonic()) > 0:
        if select.select([process], [], [], min(_CHECK_S, remaining_s))[0] and (
            not process.read() or process.exit_code is not None or process.error is not None
        ):
            return True
        if time.monotonic() - copied > _COPY_S:
            copied = time.monotonic()
            copy()
    return False


def _copy(file: Path, target: Path | None) -> None:
    if target is not None:
        with contextlib.suppress(OSError):
            partial = target.with_name(f".{target.name}.new")
            shutil.copyfile(file, partial)
            os.replace(partial, target)


def _read(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text())
    return content
