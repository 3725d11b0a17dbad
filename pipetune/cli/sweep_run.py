"""Runs a sweep from its options to its result: prepare, measure, keep, conclude, write, print."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from pipetune.cli.output import write_result
from pipetune.cli.sweep_print import print_result
from pipetune.report.terminal.progress import Display
from pipetune.store.folder import RunFolder, open_run
from pipetune.sweeping.loop import Plan
from pipetune.sweeping.options import SweepOptions
from pipetune.sweeping.resume import read_resumed, refuse_another_sweep
from pipetune.sweeping.run import (
    Ended,
    conclude_run,
    measure_all,
    restore_index,
    resumed_record,
    run_record,
    start_new,
    undamaged,
    with_index,
)
from pipetune.sweeping.setup import Prepared, plan, prepare
from pipetune.units import parse_duration


def run_new(chosen: SweepOptions, out: Path | None, console: Console, json_file: str | None) -> int:
    """A sweep from its beginning; returns the exit code.

    Raises:
        PipetuneError: nothing could be measured, or the result could not be written to where it was asked for.
        KeyboardInterrupt, Interrupted: asked to stop before anything was measured.
    """
    began = time.monotonic()
    with contextlib.ExitStack() as held:
        with _display(chosen) as display:
            ended, prepared, plan_, folder = start_new(chosen, out, display, held)
        return _finish(ended, chosen, prepared, plan_, folder, time.monotonic() - began, 0, console, json_file)


def run_resumed(path: Path, given: Mapping[str, Any], console: Console, json_file: str | None) -> int:
    """Go on with an interrupted sweep; returns the exit code. Raises as :func:`run_new`.

    Args:
        path: its run folder.
        given: the options that were written beside ``--resume``.
    """
    began = time.monotonic()
    with contextlib.ExitStack() as held:
        folder = held.enter_context(open_run(path))  # locked before it is read: nobody adds to it meanwhile
        with undamaged(path):
            earlier = read_resumed(path, given)
        chosen = earlier.chosen
        with _display(chosen) as display:
            with undamaged(path):
                prepared = prepare(chosen, display.on_stage, limit_bytes=earlier.run.get("limit_bytes"))
                refuse_another_sweep(earlier, prepared)
            prepared = replace(prepared, notes=(*prepared.notes, *earlier.problems))
            # What was measured did fit, whatever is free at this moment; unless less is granted now.
            before = earlier.run["options"]
            if (chosen.max_ram, chosen.max_shm) == (before.get("max_ram"), before.get("max_shm")):
                prepared = prepared.with_measured({outcome.candidate for outcome in earlier.outcomes})
            index_path = (folder.path / "index.json").resolve()
            restore_index(index_path, prepared)
            plan_ = plan(chosen, prepared, str(index_path))
            spent_s = earlier.spent_s
            if plan_.budget_s is not None and "budget" not in given:
                plan_ = replace(plan_, budget_s=plan_.budget_s - spent_s)
            folder.write_json("run.json", resumed_record(earlier, run_record(chosen, prepared, plan_), given))
            ended = measure_all(plan_, prepared, folder, display, earlier.outcomes)
        seconds = time.monotonic() - began + spent_s
        return _finish(
            ended, chosen, prepared, plan_, folder, seconds, len(earlier.outcomes), console, json_file
        )  # fmt: skip


def _display(chosen: SweepOptions) -> Display:
    budget_s = None if chosen.budget is None else parse_duration(chosen.budget)
    return Display(Console(stderr=True), budget_s)


def _finish(
    ended: Ended, chosen: SweepOptions, prepared: Prepared, plan: Plan, folder: RunFolder, seconds: float, reused: int,
    console: Console, json_file: str | None,
) -> int:  # fmt: skip
    """Conclude, write and print: the screen comes last, and a disk that refuses does not keep it from coming."""
    fingerprint = prepared.images.fingerprint
    prepared = with_index(prepared, plan)
    result = conclude_run(ended, chosen, prepared, plan, seconds, reused, fingerprint)
    refused = write_result(result, folder, json_file)
    print_result(console, result, prepared.all_notes, prepared.images)
    console.print(f"run folder: {folder.path}", markup=False, highlight=False, soft_wrap=True)
    if ended.stopped == "interrupted" or (ended.stopped is not None and ended.outcomes):
        again = f"go on with: pipetune sweep --resume {shlex.quote(str(folder.path))}"
        console.print(again, markup=False, highlight=False, soft_wrap=True)
    if refused is not None:
        raise refused
    return ended.code
