"""What a lease prints about a stage, and at its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.gpu.leasing.outcome import ALL_PROVEN, NOT_PROVEN, PROBLEM, StageResult, exit_code


def describe_stage(content: Mapping[str, Any]) -> list[str]:
    """A stage that has just ended: its numbers in words, its problems, and what is not proven."""
    status = f"{content['status']}{', cut' if content.get('cut') else ''}"
    return [
        *(f"   {line}" for line in [*content.get("lines", ()), *content.get("log_tail", ())]),
        *(f"   PROBLEM: {problem}" for problem in content.get("problems", ())),
        *(f"   not proven: {item['what']}: {item['reason']}" for item in content.get("not_proven", ())),
        f"   {status} ({content['seconds']:.0f} s)",
    ]


def describe_end(results: Mapping[str, StageResult | None]) -> list[str]:
    """All stages that were asked for.

    Args:
        results: stage -> its best try; ``None``: the stage was not tried.
    """
    lines = []
    for stage, result in results.items():
        if result is None:
            lines.append(f"not proven: {stage}: there was no time for it")
            lines.append("    bash benchmarks/gpu/lease.sh --resume")
            continue
        lines += [f"PROBLEM: {stage}: {problem}" for problem in result.problems]
        for item in result.not_proven:
            lines.append(f"not proven: {stage}: {item['what']}: {item['reason']}")
            lines.append(f"    {item['command']}")
    if exit_code(results.values()) == ALL_PROVEN:
        return [*lines, "no problem was found: everything that was asked for is proven"]
    statuses = {stage: NOT_PROVEN if result is None else result.status for stage, result in results.items()}
    for status, word in ((PROBLEM, "PROBLEMS in"), (NOT_PROVEN, "NOT PROVEN:")):
        if named := [stage for stage, each in statuses.items() if each == status]:
            lines.append(f"{word} {', '.join(named)}")
    return lines
