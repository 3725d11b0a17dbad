"""``lease.sh --plan``: the stages, their caps and running sums, the calls they fall into, and which have a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import bench
from benchmarks.gpu.leasing.needs import find_missing
from benchmarks.gpu.leasing.outcome import StageResult, best_try, read_results
from benchmarks.gpu.leasing.stages import MAX_CALL_S, Stage, split_calls

_HEADINGS = ("call", "stage", "cap s", "sum s", "result", "missing here", "proves")


def format_plan(stages: Sequence[Stage], results: Path, call_s: float | None) -> str:
    """The plan as a table.

    Args:
        results: the folder that has a folder for each device.
        call_s: time of one call; ``None``: the usual one.
    """
    devices = {folder.name: read_results(folder) for folder in sorted(results.glob("*")) if folder.is_dir()}
    rows, total_s, sums = [], 0.0, []
    for number, call in enumerate(split_calls(stages, call_s or MAX_CALL_S), 1):
        for stage in call:
            total_s += stage.cap_s
            missing = [item.need for item in find_missing(stage.needs)]
            rows.append(
                [
                    str(number),
                    stage.name,
                    f"{stage.cap_s:.0f}",
                    f"{total_s:.0f}",
                    _results_of_stage(stage, devices),
                    ", ".join(missing) or "-",
                    stage.proves,
                ]
            )
        sums.append(f"call {number}: {sum(stage.cap_s for stage in call):.0f} s")
    table = bench.table(_HEADINGS, rows, left=(1, 4, 5, 6))
    return f"{table}\n\n{', '.join(sums)}; all: {total_s:.0f} s"


def _results_of_stage(stage: Stage, devices: Mapping[str, Mapping[str, list[StageResult]]]) -> str:
    words = []
    for device, results in devices.items():
        if (result := best_try(results.get(stage.name, ()))) is not None:
            words.append(f"{device}: {result.status} {result.date[:10]}".rstrip())
    return "; ".join(words) or "-"
