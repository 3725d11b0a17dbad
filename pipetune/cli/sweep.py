"""``pipetune sweep``: parse, run the sweep, render, return an exit code."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipetune.errors import Interrupted, PipetuneError, UsageError, exit_code_of

if TYPE_CHECKING:
    from rich.console import Console

    from pipetune.cli.display import Display
    from pipetune.cli.sweep_setup import Prepared, SweepOptions
    from pipetune.measure.summary import Recording
    from pipetune.records import Outcome
    from pipetune.report.result import SweepResult
    from pipetune.store import RunFolder
    from pipetune.sweep import Plan


def sweep_command(
    dataset: Annotated[
        str, typer.Option(help="A folder of images (flat, or class folders), or synthetic:caltech256[?n=2000&seed=0].")
    ],
    model: Annotated[str, typer.Option(help="A torchvision classifier; what is trained on the batches.")] = "resnet50",
    target: Annotated[float, typer.Option(help="Share of the accelerator's own ceiling to reach, 0 to 1.")] = 0.9,
    target_metric: Annotated[
        str, typer.Option(help="goodput: rate / max ingestion rate. nvml: GPU utilisation as NVML reports it.")
    ] = "goodput",
    backends: Annotated[
        str | None, typer.Option(help="Decode backends, comma separated. [default: all that are installed]")
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(help="Loader workers to try, e.g. 0,1,2,4. [default: from the cores after affinity and quota]"),
    ] = None,
    prefetch: Annotated[str, typer.Option(help="Prefetch depths to try, in batches per worker.")] = "2,4",
    batch_size: Annotated[int, typer.Option(help="Samples per batch.")] = 64,
    image_size: Annotated[int, typer.Option(help="Edge of the training crop, in pixels.")] = 224,
    precision: Annotated[
        str,
        typer.Option(help="fp32, amp (float16) or bf16. auto: bf16 where the GPU has it, else amp; fp32 on the CPU."),
    ] = "auto",
    device: Annotated[
        str,
        typer.Option(help="auto, cuda:N, cpu, emulated:NAME (v100, a100-tf32, …) or emulated:RATE in samples/s."),
    ] = "auto",
    seconds: Annotated[
        float, typer.Option(help="Steady measurement per candidate, in seconds, after the warm-up.")
    ] = 4.0,
    budget: Annotated[
        str | None, typer.Option(help="Stop proposing candidates after this long, e.g. 90s, 5m. [default: none]")
    ] = None,
    grid: Annotated[bool, typer.Option("--grid", help="Measure every combination instead of searching.")] = False,
    cache: Annotated[str, typer.Option(help="State of the page cache before every candidate: warm or cold.")] = "warm",
    timeout: Annotated[
        str | None, typer.Option(help="End a candidate that takes longer, e.g. 3m. [default: from --seconds]")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for this run. [default: pipetune-runs/TIME-DATASET]")] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the order of candidates, the shuffling and the crops.")] = 0,
) -> None:
    """Measure candidate input pipelines and recommend the cheapest one that keeps the accelerator fed."""
    from rich.console import Console

    from pipetune.cli.sweep_setup import SweepOptions

    _stop_on_sigterm()
    _check_json_file(json_file)
    chosen = SweepOptions(
        dataset=dataset, model=model, target=target, target_metric=target_metric, backends=backends, workers=workers,
        prefetch=prefetch, batch_size=batch_size, image_size=image_size, precision=precision, device=device,
        seconds=seconds, budget=budget, grid=grid, cache=cache, timeout=timeout, seed=seed,
    )  # fmt: skip
    # Where the JSON goes to standard output, the text for people goes to standard error.
    to_stderr = json_file == "-"
    terminal = (sys.stderr if to_stderr else sys.stdout).isatty()
    # A file or a pipe has no width of its own; the whole table is what its reader wants.
    console = Console(stderr=to_stderr, width=None if terminal else 160)
    try:
        code = _run(chosen, out, console, json_file)
    except KeyboardInterrupt as stop:  # before anything was measured
        typer.echo("pipetune: interrupted", err=True)
        code = exit_code_of(stop)
    raise typer.Exit(code)


def _run(chosen: SweepOptions, out: Path | None, console: Console, json_file: str | None) -> int:
    from rich.console import Console

    from pipetune.cli.display import Display
    from pipetune.cli.sweep_render import print_result
    from pipetune.cli.sweep_setup import plan, prepare
    from pipetune.datasets.index import write_index
    from pipetune.search import baseline
    from pipetune.store import create_run
    from pipetune.store_files import told
    from pipetune.units import parse_duration

    began = time.monotonic()
    budget_s = None if chosen.budget is None else parse_duration(chosen.budget)
    with contextlib.ExitStack() as held:
        with Display(Console(stderr=True), budget_s) as display:
            prepared = prepare(chosen, display.on_stage)
            display.emulated = prepared.accelerator.kind == "emulated"
            folder = held.enter_context(create_run(out, dataset_name=prepared.images.name, now=datetime.now()))
            index_path = (folder.path / "index.json").resolve()
            with told("write", index_path):
                write_index(str(index_path), prepared.images)
            plan_ = plan(chosen, prepared, str(index_path))
            folder.write_json("run.json", _run_record(chosen, prepared, plan_))
            display.candidates = len({baseline(plan_.space), *plan_.space.grid()})
            outcomes, stopped, message, code = _measure_all(plan_, folder, display)
        result = _conclude(outcomes, chosen, prepared, plan_, time.monotonic() - began, stopped, message)
        refused = _write_result(result, folder, json_file)
        print_result(console, result, prepared.notes, prepared.images)
        console.print(f"run folder: {folder.path}", markup=False, highlight=False, soft_wrap=True)
    if refused is not None:
        raise refused
    return code


def _measure_all(plan: Plan, folder: RunFolder, display: Display) -> tuple[list[Outcome], str | None, str | None, int]:
    """(outcomes so far, how it was stopped, why, exit code): whatever stops the sweep, what was measured is kept."""
    from pipetune.sweep import sweep

    outcomes: list[Outcome] = []
    try:
        for outcome in sweep(plan, _saver(folder, outcomes), display.on_event):
            display.on_outcome(outcome)
    except KeyboardInterrupt as stop:
        return outcomes, "interrupted", "interrupted", exit_code_of(stop)
    except PipetuneError as error:
        return outcomes, "failed", str(error), error.exit_code
    measured = any(outcome.measurement for outcome in outcomes if outcome.role != "ceiling")
    return outcomes, None, None, 0 if measured else 1


def _saver(folder: RunFolder, outcomes: list[Outcome]) -> Callable[[Outcome, Recording], None]:
    def save(outcome: Outcome, recording: Recording) -> None:
        outcomes.append(outcome)  # before it is written: even if the disk refuses, it is in the ranking
        key = outcome.candidate.key if outcome.role != "ceiling" else "ceiling"
        if outcome.attempt > 1:
            key += f"-again{outcome.attempt}"
        folder.append_outcome(outcome)
        folder.append_timeline(key, "step", [*recording.warmup, *recording.timed])
        folder.append_timeline(key, "reading", recording.readings)
        folder.close_timeline(key)

    return save


def _conclude(
    outcomes: list[Outcome], chosen: SweepOptions, prepared: Prepared, plan: Plan, seconds: float, stopped: str | None,
    message: str | None,
) -> SweepResult:  # fmt: skip
    from pipetune.records import to_dict
    from pipetune.report.result import conclude

    images, accelerator = prepared.images, prepared.accelerator
    # The child knows the device's name, and what arithmetic "auto" came to.
    told = outcomes[0].measurement.versions if outcomes and outcomes[0].measurement else {}
    accelerator = replace(accelerator, name=told.get("gpu", accelerator.name))
    dataset = {
        "name": images.name, "root": images.root, "images": len(images.images), "found_images": images.found_images,
        "classes": len(images.classes), "skipped": images.skipped_count, "mean_bytes": images.mean_bytes,
        "median_width_px": images.median_size[0], "median_height_px": images.median_size[1],
        "fingerprint": images.fingerprint,
    }  # fmt: skip
    workload = {
        "model": chosen.model, "batch_size": chosen.batch_size, "image_size_px": chosen.image_size,
        "precision": told.get("precision", prepared.precision),
        "seconds": chosen.seconds, "cache": chosen.cache, "seed": chosen.seed,
    }  # fmt: skip
    return conclude(
        outcomes, goal=plan.goal, accelerator=accelerator, dataset=dataset, workload=workload,
        host=to_dict(prepared.host), usable_cores=prepared.host.cores_usable, seconds=seconds, stopped=stopped,
        message=message,
    )  # fmt: skip


def _run_record(chosen: SweepOptions, prepared: Prepared, plan: Plan) -> dict[str, Any]:
    """run.json: everything that is needed to understand or repeat the sweep, written before it starts."""
    from pipetune.records import SCHEMA, to_dict
    from pipetune.version import __version__

    return {
        "schema": SCHEMA, "kind": "sweep", "pipetune": __version__, "started": datetime.now().astimezone().isoformat(),
        "command": shlex.join(sys.argv), "cwd": os.getcwd(), "options": to_dict(chosen),
        "workload": to_dict(plan.setting.workload), "goal": to_dict(plan.goal), "space": to_dict(plan.space),
        "host": to_dict(prepared.host), "dataset_fingerprint": prepared.images.fingerprint,
        "notes": list(prepared.notes),
    }  # fmt: skip


def _write_result(result: SweepResult, folder: RunFolder, json_file: str | None) -> PipetuneError | None:
    """Write it to every place that takes it; the first refusal is returned, not raised: the screen comes next."""
    from pipetune.report.result import to_json

    content = to_json(result)
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    refused: PipetuneError | None = None
    if json_file == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    elif json_file is not None:
        try:
            _write_file(Path(json_file), text)
        except PipetuneError as error:
            refused = error
    try:
        folder.write_json("result.json", content)
    except PipetuneError as error:
        refused = refused or error
    return refused


def _write_file(target: Path, text: str) -> None:
    from pipetune.store_files import replace_file, told

    if target.exists() and not target.is_file():  # /dev/stderr, a named pipe: to be written to, not replaced
        with told("write", target):
            target.write_text(text)
        return
    replace_file(target.resolve(), text.encode())  # resolve: through a symbolic link, not over it


def _check_json_file(json_file: str | None) -> None:
    if json_file is None or json_file == "-":
        return
    target = Path(json_file)
    if target.is_dir():
        raise UsageError(f"--json {json_file} is a folder", hint=f"write --json {target / 'result.json'}")
    if not target.parent.is_dir():
        raise UsageError(f"--json {json_file}: there is no folder {target.parent}", hint=f"mkdir -p {target.parent}")


def _stop_on_sigterm() -> None:
    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: the child is being ended already
        raise Interrupted(number)

    signal.signal(signal.SIGTERM, stop)
