"""Stages ``sweep`` (resnet50: the device is the limit) and ``sweep-bound`` (resnet18: the loader is).

``sweep`` first measures PyTorch's default decoder with 0, 2, 8 and 16 workers: goodput beside NVML's utilisation, which
is what people look at. Then both search as a user would. Run folders come back whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import bench
from benchmarks.gpu.commands import NotDone, report, run_pipetune
from benchmarks.gpu.leasing.findings import Findings
from benchmarks.gpu.workloads import (
    EMULATED,
    FAST_MODEL,
    IMAGE_SIZE,
    MODEL,
    batch_size,
    cpu_relatives,
    dataset_uri,
    fastest_cpu_backend,
    gpu_decoders,
    usable_cores,
)
from pipetune.registry import BACKENDS, installed_version

#: Of the stage's time: the worker counts take this share, a sweep's budget leaves this share for its end.
_LADDER_FRAC, _BUDGET_FRAC = 0.45, 0.8
_WORKERS = (0, 2, 8, 16)
#: CPU backends of the first search, as far as they are installed.
_SEARCHED = ("pillow", "opencv", "torchvision", "simplejpeg", "jpeg-roi")


def run_stage(findings: Findings) -> None:
    """Which of the two it is says the stage's name."""
    if findings.stage == "sweep-bound":
        libraries = [*gpu_decoders(findings.is_cuda), *cpu_relatives(findings.is_cuda)] if findings.is_cuda else []
        decoders = [backend.name for backend in libraries]
        backends = [*decoders, fastest_cpu_backend().name, "opencv"]
        rows = run_search(findings, FAST_MODEL, backends, ["--effort", "thorough"])
        measured = {row["candidate"]["backend"] for row in rows if "failure" not in row}
        for backend in decoders:
            if backend not in measured:
                findings.report_unproven(f"the rate with {backend}", "it was not measured in the time that there was")
        return
    run_ladder(findings)
    sizes = ",".join(str(size) for size in (batch_size(True) // 2, 2 * batch_size(True)))
    run_search(findings, MODEL, _SEARCHED, ["--ceilings", sizes] if findings.is_cuda else [])


def run_ladder(findings: Findings) -> None:
    """Goodput beside the utilisation, for few to many workers of PyTorch's default."""
    workers = sorted({count for count in _WORKERS if count <= max(2, usable_cores())})
    words = [
        "--grid",
        "--backends",
        "pillow",
        "--workers",
        ",".join(map(str, workers)),
        "--prefetch",
        "2",
        "--vary",
        "none",
        "--blocks",
        "0",
        "--seconds",
        "1",
    ]
    result = run_sweep(findings, "workers", MODEL, words, _LADDER_FRAC * findings.remaining_s)
    rows = [row for row in result.get("outcomes", []) if "failure" not in row]
    unmeasured = set(workers) - {row["candidate"]["num_workers"] for row in rows}
    for count in sorted(unmeasured):
        findings.report_unproven(f"goodput with {count} workers", "it was not measured in the time that there was")


def run_search(findings: Findings, model: str, backends: Iterable[str], further: Iterable[str]) -> list[dict[str, Any]]:
    """A sweep that searches among the backends that are installed; its outcomes.

    Args:
        further: options of the sweep.
    """
    usable = [backend for backend in dict.fromkeys(backends) if installed_version(BACKENDS[backend])]
    words = ["--backends", ",".join(usable), "--seconds", "1.5", *further]
    result = run_sweep(findings, "search", model, words, findings.remaining_s)
    if findings.is_cuda and result and not result.get("recommended"):
        findings.report_unproven("a recommendation", f"the sweep gave none in its time: {result.get('message')}")
    outcomes: list[dict[str, Any]] = result.get("outcomes", [])
    return outcomes


def run_sweep(findings: Findings, name: str, model: str, words: Iterable[str], limit_s: float) -> dict[str, Any]:
    """Run ``pipetune sweep``; its result, which is kept with problems. Empty: it gave none."""
    file, run = findings.folder / f"{name}.json", findings.folder / name
    try:
        run_pipetune(
            findings,
            "sweep",
            "--dataset",
            dataset_uri(findings.is_cuda),
            "--model",
            model,
            "--image-size",
            str(IMAGE_SIZE),
            "--device",
            findings.device if findings.is_cuda else EMULATED,
            "--batch-size",
            str(batch_size(findings.is_cuda)),
            *words,
            "--budget",
            f"{max(1.0, _BUDGET_FRAC * limit_s):.0f}s",
            "--progress",
            "lines",
            "--out",
            str(run),
            "--json",
            str(file),
            limit_s=limit_s,
        )
    except NotDone as error:
        report(findings, f"the end of the sweep {name}", error)
    result = read_result(file, run)
    outcomes = result.get("outcomes", [])
    findings.keep(name, {key: value for key, value in result.items() if key not in ("host", "outcomes")})
    findings.keep(f"{name}_rows", [shorten_row(row) for row in outcomes])
    findings.say(f"{name}: {model}", *format_rows(outcomes, result))
    for row in outcomes:
        if "failure" in row:
            failure = row["failure"]
            findings.report_problem(f"{name}: {row['key']} failed: {failure['kind']}: {failure['message']}")
    if outcomes and not result.get("ceiling_samples_per_s"):
        findings.report_problem(f"{name}: no ceiling: {result.get('message')}")
    (run / "index.json").unlink(missing_ok=True)  # of synthetic photographs, which the data set's name makes again
    return result


def read_result(file: Path, run: Path) -> dict[str, Any]:
    """The sweep's result; where it was ended before, what its run folder has."""
    if file.exists():
        result: dict[str, Any] = json.loads(file.read_text())
        return result
    lines = run / "outcomes.jsonl"
    if not lines.exists():
        return {}
    rows = [json.loads(line) for line in lines.read_text().splitlines() if line.endswith("}")]
    return {"message": "ended before its end", "outcomes": [flatten(row) for row in rows]}


def flatten(row: dict[str, Any]) -> dict[str, Any]:
    """A line of ``outcomes.jsonl`` as a result has it: the measurement's fields beside the candidate's."""
    candidate = row["candidate"]
    key = f"{candidate['backend']}-w{candidate['num_workers']}-p{candidate['prefetch_depth']}"
    flat = {"key": key, **row, **(row.get("measurement") or {})}
    return {name: value for name, value in flat.items() if name != "measurement" and (name != "failure" or value)}


_KEPT = (
    "key",
    "candidate",
    "role",
    "block",
    "attempt",
    "wall_s",
    "samples_per_s",
    "ci95",
    "goodput",
    "goodput_ci95",
    "gpu_util_pct",
    "gpu_util_ci95",
    "sm_active_pct",
    "gpu_mem_bytes",
    "data_wait_frac",
    "accelerator_idle_frac",
    "h2d_frac",
    "cores_used",
    "gpu_clock_mhz",
    "gpu_power_w",
    "sampler_readings",
    "sampler_core_frac",
    "warnings",
    "failure",
    "open_s",
    "time_to_first_batch_s",
    "copy_bytes_per_s",
)


def shorten_row(row: dict[str, Any]) -> dict[str, Any]:
    """What a question about a GPU needs of an outcome, and all that is new in it; the run folder has the rest."""
    new = {
        key: value for key, value in row.items() if any(word in key for word in ("set_up", "jpeg", "pcie", "energy"))
    }
    return {**{key: row[key] for key in _KEPT if key in row}, **new}


def format_rows(rows: list[dict[str, Any]], result: dict[str, Any]) -> list[str]:
    """The outcomes as a table, and the conclusion."""
    cells = [
        [
            row["key"],
            f"{row['samples_per_s']:.0f}/s",
            *(_percent(row.get(key)) for key in ("goodput", "data_wait_frac")),
            *(_number(row.get(key)) for key in ("gpu_util_pct", "sm_active_pct", "gpu_power_w")),
            f"{row['wall_s']:.1f}",
        ]
        for row in rows
        if "samples_per_s" in row
    ]
    headings = ["candidate", "rate", "goodput", "data wait", "NVML %", "SM %", "W", "wall s"]
    lines = bench.table(headings, cells).splitlines() if cells else []
    lines += [f"{key}: {result.get(key)}" for key in ("status", "ceiling_samples_per_s", "speedup") if key in result]
    return [*lines, *(f"{key}: {result[key]['key']}" for key in ("baseline", "recommended") if result.get(key))]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
