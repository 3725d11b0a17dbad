"""What a lease prints about a stage, and at its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.gpu.leasing.outcome import ALL_PROVEN, NOT_PROVEN, PROBLEM, StageResult, exit_code

#: So many things with the same reason are named.
_MAX_NAMED = 3


def describe_stage(content: Mapping[str, Any]) -> list[str]:
    """A stage that has just ended: its numbers in words, its problems, and what is not proven."""
    status = f"{content['status']}{', cut' if content.get('cut') else ''}"
    return [
        *(f"   {line}" for line in [*content.get("lines", ()), *content.get("log_tail", ())]),
        *(f"   PROBLEM: {problem}" for problem in content.get("problems", ())),
        *(f"   not proven: {what}: {reason}" for what, reason, _ in group_unproven(content.get("not_proven", ()))),
        f"   {status} ({content['seconds']:.0f} s)",
    ]


def describe_end(results: Mapping[str, StageResult | None], untried: str = "") -> list[str]:
    """All stages that were asked for.

    Args:
        results: stage -> its best try; ``None``: the stage was not tried.
        untried: why not.
    """
    lines = []
    for stage, result in results.items():
        if result is None:
            lines.append(f"not proven: {stage}: {untried}")
            lines.append("    bash benchmarks/gpu/lease.sh --resume")
            continue
        lines += [f"PROBLEM: {stage}: {problem}" for problem in result.problems]
        for what, reason, command in group_unproven(result.not_proven):
            lines += [f"not proven: {stage}: {what}: {reason}", f"    {command}"]
    if exit_code(results.values()) == ALL_PROVEN:
        return [*lines, "no problem was found: everything that was asked for is proven"]
    statuses = {stage: NOT_PROVEN if result is None else result.status for stage, result in results.items()}
    for status, word in ((PROBLEM, "PROBLEMS in"), (NOT_PROVEN, "NOT PROVEN:")):
        if named := [stage for stage, each in statuses.items() if each == status]:
            lines.append(f"{word} {', '.join(named)}")
    return lines


def group_unproven(items: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """What, reason and command; what has the same reason and command is told together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for item in items:
        groups.setdefault((item["reason"], item["command"]), []).append(item["what"])
    return [(_join(names), reason, command) for (reason, command), names in groups.items()]


def _join(names: list[str]) -> str:
    names = list(dict.fromkeys(names))
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
