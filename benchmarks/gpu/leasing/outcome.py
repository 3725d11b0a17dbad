"""What a stage's result says: proven, a problem, or not proven; and whether the stage is worth another try.

- ``proven``: all that the stage tries was tried, and nothing was wrong.
- ``problem``: something was wrong, whatever else was not tried.
- ``not proven``: nothing was wrong, and something could not be tried: a package is missing, time was short, there is
  no GPU. Each such thing has its reason and the command that would make it provable.

A stage that was ended at its cap is ``cut``; what it had by then counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROVEN, PROBLEM, NOT_PROVEN = "proven", "problem", "not proven"
ALL_PROVEN, PROBLEM_FOUND, CANNOT_RUN, SOME_UNPROVEN = 0, 1, 2, 3
#: A try that had this share of its cap had its time.
_FULL_FRAC = 0.9
#: ``decode.json``, and ``decode-2.json`` where the stage was tried again.
_FILE = re.compile(r"([a-z][a-z-]*[a-z])(?:-(\d+))?\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """One try of a stage, as its file has it."""

    stage: str
    number: int
    """1 for the first try."""
    status: str
    cut: bool
    has_numbers: bool
    """Whether the try measured something."""
    cap_s: float = 0.0
    """Time that the try had."""
    problems: tuple[str, ...] = ()
    not_proven: tuple[dict[str, Any], ...] = ()
    date: str = ""


def judge(content: dict[str, Any]) -> str:
    """The status of a result's content."""
    if content.get("problems"):
        return PROBLEM
    return NOT_PROVEN if content.get("not_proven") or content.get("cut") else PROVEN


def has_measured(content: dict[str, Any]) -> bool:
    """Whether a result has a number: a stage that failed at once leaves empty tables."""
    return not _is_empty(content.get("numbers"))


def _is_empty(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    return all(map(_is_empty, value)) if isinstance(value, list) else value is None


def read_results(folder: Path) -> dict[str, list[StageResult]]:
    """Stage -> its tries, in their order, of one device's folder; files that are damaged are left out."""
    results: dict[str, list[StageResult]] = {}
    for path in sorted(folder.glob("*.json")):
        matched = _FILE.fullmatch(path.name)
        try:
            content = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        if matched is None or not isinstance(content, dict) or content.get("stage") != matched[1]:
            continue
        results.setdefault(matched[1], []).append(
            StageResult(
                stage=matched[1],
                number=int(matched[2] or 1),
                status=judge(content),
                cut=bool(content.get("cut")),
                has_numbers=has_measured(content),
                cap_s=float(content.get("cap_s", 0)),
                problems=tuple(content.get("problems", ())),
                not_proven=tuple(content.get("not_proven", ())),
                date=str(content.get("date", "")),
            )
        )
    return {stage: sorted(tries, key=lambda result: result.number) for stage, tries in results.items()}


def best_try(tries: Iterable[StageResult]) -> StageResult | None:
    """The newest try that measured something; the newest of all where none did."""
    ordered = list(tries)
    return next((result for result in reversed(ordered) if result.has_numbers), ordered[-1] if ordered else None)


def judged_try(tries: Iterable[StageResult]) -> StageResult | None:
    """The try that speaks for a stage: the best, unless the newest found a problem."""
    ordered = list(tries)
    return ordered[-1] if ordered and ordered[-1].status == PROBLEM else best_try(ordered)


def is_worth_another_try(result: StageResult | None, cap_s: float, is_missing: Callable[[str], bool]) -> bool:
    """Whether ``--resume`` runs the stage.

    A stage that measured something is left alone: a problem has to be mended first (then ``--only`` repeats the
    stage), and a stage that was cut would be cut again. It is tried again where nothing was measured, where something
    is not proven and it had less time than its cap, and where a package that it lacked is here now.

    Args:
        cap_s: time that it would have now.
        is_missing: whether the package of that name is missing (:mod:`benchmarks.gpu.leasing.needs`).
    """
    if result is None or not result.has_numbers:
        return True
    if result.status == NOT_PROVEN and result.cap_s < _FULL_FRAC * cap_s:
        return True
    return has_new_package(result, is_missing)


def has_new_package(result: StageResult, is_missing: Callable[[str], bool]) -> bool:
    """Whether a package that a try lacked is here now."""
    needs = {item["need"] for item in result.not_proven if item.get("need")}
    return any(not is_missing(need) for need in needs)


def is_tried(result: StageResult | None, is_missing: Callable[[str], bool]) -> bool:
    """Whether another try of the stage would be about the same: what a new package shows was never tried."""
    return result is not None and not has_new_package(result, is_missing)


def exit_code(results: Iterable[StageResult | None]) -> int:
    """The exit code of a lease whose stages ended so; ``None``: a stage was not tried."""
    statuses = [NOT_PROVEN if result is None else result.status for result in results]
    if PROBLEM in statuses:
        return PROBLEM_FOUND
    return SOME_UNPROVEN if NOT_PROVEN in statuses or not statuses else ALL_PROVEN


def next_name(folder: Path, stage: str) -> str:
    """Name of the stage's next try in a device's folder; nothing that was measured is written over."""
    numbers = [
        int(matched[2] or 1)
        for path in folder.glob("*.json")
        if (matched := _FILE.fullmatch(path.name)) and matched[1] == stage
    ]
    return stage if not numbers else f"{stage}-{max(numbers) + 1}"
