"""Stage ``script``: a training script that knows nothing of pipetune is tuned in its own loop."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.gpu.commands import NotDone, report, run_pipetune
from benchmarks.gpu.leasing.findings import Findings
from benchmarks.gpu.sweep import format_rows, read_result, shorten_row
from benchmarks.gpu.workloads import COPIES, training_words
from tests.photo_set import small_photos

_BUDGET_FRAC = 0.65


def run_stage(findings: Findings) -> None:
    """``pipetune sweep -- python train.py``; its outcomes count, also where its time ran out."""
    with TemporaryDirectory() as folder:
        data = small_photos(Path(folder, "photos"), copies=COPIES)
        file, run = findings.folder / "script.json", findings.folder / "script"
        budget_s = max(5.0, _BUDGET_FRAC * findings.remaining_s)
        try:
            run_pipetune(
                findings,
                "sweep",
                "--budget",
                f"{budget_s:.0f}s",
                "--seconds",
                "1",
                "--effort",
                "quick",
                "--progress",
                "lines",
                "--out",
                str(run),
                "--json",
                str(file),
                "--",
                *training_words(findings.is_cuda, data, "--workers", "2"),
                limit_s=findings.remaining_s,
            )
        except NotDone as error:
            report(findings, "the end of the sweep of a script", error)
        result = read_result(file, run)
        rows = result.get("outcomes", [])
        findings.keep("result", {key: value for key, value in result.items() if key not in ("host", "outcomes")})
        findings.keep("rows", [shorten_row(row) for row in rows])
        findings.say(*format_rows(rows, result))
        for row in rows:
            if "failure" in row:
                findings.report_problem(f"{row['key']} failed: {row['failure']['kind']}: {row['failure']['message']}")
        if not [row for row in rows if "samples_per_s" in row]:
            findings.report_unproven("rates of a script", "none was measured")
