"""Stage ``batch``: the batch size that is said to be the largest is the largest (:mod:`benchmarks.gpu.batch_sizes`)."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu.batch_sizes import batch_sizes
from benchmarks.gpu.leasing.findings import Findings


def run_stage(findings: Findings) -> None:
    """Each batch size is kept when it is measured, since the whole search may take longer than the stage has."""

    def keep(subject: str, point: dict[str, Any]) -> None:
        findings.append("points", {"subject": subject, **point})

    result = batch_sizes(findings.device, quick=True, on_point=keep)
    findings.say(*result.pop("lines"))
    findings.report_problem(*result.pop("problems"))
    for name, value in result.items():
        findings.keep(name, value)
