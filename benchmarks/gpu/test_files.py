"""Stage ``tests``: the tests that need a GPU (tests/gpu), one pytest for each file.

A test that hangs loses the rest of its file only; what came of the tests before it is known.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.bench import ROOT, Skipped
from benchmarks.gpu.commands import MIN_S, run_command
from benchmarks.gpu.leasing.findings import Findings
from benchmarks.gpu.test_rows import VARIABLE

FOLDER = ROOT / "tests" / "gpu"
#: Works with any pytest, with and without plugins: the project's own settings name options of a plugin.
BARE_PYTEST = (
    "-c",
    os.devnull,
    "--rootdir",
    str(ROOT),
    "--confcutdir",
    str(ROOT),
    "-p",
    "no:cacheprovider",
    "-v",
    "-p",
    "benchmarks.gpu.test_rows",
    "-m",
    "gpu",
    "-o",
    "markers=gpu: needs a CUDA device\nslow: takes long\ntimeout: longest time, for a plugin that may be absent",
)
#: Longest time of one file (s): a child of its tests loads CUDA in 5 to 10 s.
MAX_FILE_S = 60.0


def run_stage(findings: Findings) -> None:
    """Run each file; without the sweep, which has a stage of its own."""
    if importlib.util.find_spec("pytest") is None:
        raise Skipped("pytest is not installed")
    for file in sorted(FOLDER.glob("test_*.py")):
        run_file(findings, file)
    rows = findings.numbers.get("tests", [])
    if not rows:
        return
    counts = {status: sum(row["status"] == status for row in rows) for status in ("passed", "failed", "skipped")}
    findings.keep("counts", counts)
    findings.say(", ".join(f"{count} {status}" for status, count in counts.items()))


def run_file(findings: Findings, file: Path) -> None:
    """Run the tests of one file, and keep what came of each."""
    limit_s = min(MAX_FILE_S, findings.remaining_s)
    if limit_s < MIN_S:
        findings.report_unproven(file.name, "there was no time left")
        return
    with tempfile.TemporaryDirectory() as folder:
        rows_file = Path(folder, "rows.jsonl")
        # No plugins but ours: other packages on the machine must not decide how the tests run.
        environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", VARIABLE: str(rows_file)}
        base = ("--basetemp", str(Path(folder, "tests")), "-k", "not sweep")
        command = [sys.executable, "-m", "pytest", *BARE_PYTEST, *base, str(file)]
        code = run_command(findings, command, limit_s, environment=environment)
        lines = rows_file.read_text().splitlines() if rows_file.exists() else []
    rows, unfinished = read_rows(lines)
    for row in rows:
        findings.append("tests", {"file": file.name, **row})
        if row["status"] == "failed":
            findings.report_problem(f"{row['name']}: {' | '.join(row['message'])}")
        elif row["status"] == "skipped":
            findings.report_unproven(str(row["name"]), row["message"][-1] if row["message"] else "skipped")
    if code is None and limit_s == MAX_FILE_S:
        findings.report_problem(f"{file.name}: {unfinished or 'no test'} was not done after {limit_s:.0f} s")
    elif code is None:
        findings.report_unproven(f"the rest of {file.name}", f"its time was over at {unfinished or 'its start'}")
    elif not rows:
        findings.report_problem(f"{file.name}: pytest ended with exit code {code} and ran no test")
    elif unfinished is not None:
        findings.report_problem(f"{file.name}: pytest ended with exit code {code} in {unfinished}")


def read_rows(lines: list[str]) -> tuple[list[dict[str, Any]], str | None]:
    """What came of the tests, and the one that had begun and not ended; ``None``: there is none."""
    rows: list[dict[str, Any]] = []
    unfinished: str | None = None
    for line in lines:
        row = json.loads(line)
        if row["status"] == "started":
            unfinished = row["name"]
        else:
            rows.append(row)
            unfinished = None
    return rows, unfinished
