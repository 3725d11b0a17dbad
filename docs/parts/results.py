"""The stored results of the benchmarks, and how their figures are written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
RESULTS = _ROOT / "benchmarks" / "results"
Stored = dict[str, Any]


class Missing(Exception):
    """No result of that benchmark is stored."""


@cache
def stored(benchmark: str) -> Stored:
    """The newest stored result of a benchmark; a full run before one with ``--quick``.

    Raises:
        Missing: there is none.
    """
    found = [
        ("-quick-" not in path.name, content["date"], path.name, content)
        for path in RESULTS.rglob("*.json")
        if path.name.startswith(f"{benchmark}-")
        and (content := json.loads(path.read_text())).get("benchmark") == benchmark
    ]
    if not found:
        raise Missing(benchmark)
    *_, name, content = max(found, key=lambda one: one[:3])
    return {**content, "file": name, "quick": "-quick-" in name}


def percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def span(values: Iterable[float], form: Callable[[float], str]) -> str:
    known = sorted(values)
    low, high = form(known[0]), form(known[-1])
    if low == high:
        return low
    return f"{low.removesuffix(' %')} to {high}"


def interval(ci95: list[float], digits: int = 2) -> str:
    return f"{ci95[0]:.{digits}f} to {ci95[1]:.{digits}f}"


def outcomes(rows: Iterable[Stored], field: str) -> str:
    found = Counter(row[field] for row in rows)
    order = ("right", "wrong", "undetermined", "silent")
    return ", ".join(f"{found[name]} {name}" for name in order if found[name] or name == "wrong")
