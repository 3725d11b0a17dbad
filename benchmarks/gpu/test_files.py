"""Stage ``tests``: the tests that need a GPU (tests/gpu), one pytest for each file.

A test that hangs loses its file only.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.bench import ROOT, Skipped
from benchmarks.gpu.commands import run_command
from benchmarks.gpu.leasing.findings import Findings

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
    "-o",
    "markers=gpu: needs a CUDA device\nslow: takes long\ntimeout: longest time, for a plugin that may be absent",
)
#: Longest time of one file (s): a child of its tests loads CUDA in 5 to 10 s.
MAX_FILE_S = 60.0
_MESSAGE_LINES = 12


def run_stage(findings: Findings) -> None:
    """Run each file; without the sweep, which has a stage of its own."""
    if importlib.util.find_spec("pytest") is None:
        raise Skipped("pytest is not installed")
    for file in sorted(FOLDER.glob("test_*.py")):
        run_file(findings, file)
    rows = findings.numbers.get("tests", [])
    counts = {status: sum(row["status"] == status for row in rows) for status in ("passed", "failed", "skipped")}
    findings.keep("counts", counts)
    findings.say(", ".join(f"{count} {status}" for status, count in counts.items()))
    if findings.is_cuda and not counts["passed"]:
        findings.report_problem("no test passed, though there is a CUDA device")


def run_file(findings: Findings, file: Path) -> None:
    """Run the tests of one file, and keep what came of each."""
    limit_s = min(MAX_FILE_S, findings.remaining_s)
    if limit_s < 2:
        findings.report_unproven(file.name, "there was no time left")
        return
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        # No plugins: other packages on the machine must not decide how the tests run.
        environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
        command = [
            sys.executable,
            "-m",
            "pytest",
            *BARE_PYTEST,
            "-m",
            "gpu",
            "-k",
            "not sweep",
            "--basetemp",
            str(Path(folder, "tests")),
            "--junitxml",
            str(report),
            str(file),
        ]
        code = run_command(findings, command, limit_s, environment=environment)
        if code is None:
            findings.report_problem(f"{file.name} was not done after {limit_s:.0f} s; its last line in the log hangs")
            return
        if not report.exists():
            findings.report_problem(f"{file.name}: pytest ended with exit code {code} and gave no report")
            return
        rows = [{"file": file.name, **describe_test(case)} for case in ElementTree.parse(report).iter("testcase")]
    for row in rows:
        findings.append("tests", row)
        if row["status"] == "failed":
            findings.report_problem(f"{row['name']}: {' | '.join(row['message'])}")
        elif row["status"] == "skipped":
            findings.report_unproven(str(row["name"]), row["message"][-1] if row["message"] else "skipped")


def describe_test(case: ElementTree.Element) -> dict[str, Any]:
    """Name, status, seconds and the end of the message of a test in pytest's report."""
    outcome = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
    status = "passed" if outcome is None else "skipped" if outcome.tag == "skipped" else "failed"
    lines: list[str] = []
    if outcome is not None:
        text = (outcome.text or "") if status == "failed" else outcome.get("message", "")
        lines = [line for line in text.splitlines() if line.strip()][-_MESSAGE_LINES:]
    return {"name": case.get("name"), "status": status, "seconds": float(case.get("time", 0)), "message": lines}
