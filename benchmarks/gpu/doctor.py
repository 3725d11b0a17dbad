"""Stage ``doctor``: does ``pipetune doctor`` find the GPU, and say what can be used on it?"""

from __future__ import annotations

import json

from benchmarks.gpu.commands import NotDone, report, run_pipetune
from benchmarks.gpu.leasing.findings import Findings


def run_stage(findings: Findings) -> None:
    """Keep its findings, which are compared with what torch and NVML say (stage ``facts``)."""
    file = findings.folder / "doctor.json"
    try:
        run_pipetune(findings, "doctor", "--json", str(file), limit_s=findings.remaining_s)
    except NotDone as error:
        report(findings, "what doctor says", error)
    if not file.exists():
        return
    answer = json.loads(file.read_text())
    findings.keep("doctor", answer)
    gpus = answer.get("gpus", [])
    findings.say(*(f"{finding['name']}: {finding['value']}" for finding in answer.get("findings", [])))
    if findings.is_cuda and not gpus:
        findings.report_problem("doctor sees no GPU, and torch does")
