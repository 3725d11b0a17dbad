"""The stages of ``benchmarks/gpu/lease.sh``."""

from __future__ import annotations

from benchmarks.gpu.leasing.stages import STAGES, split_calls
from docs.parts.markdown import code, table


def stages() -> str:
    """The stages in the order of their worth, with their caps and the calls that they fall into."""
    rows, sum_s = [], 0.0
    for number, call in enumerate(split_calls(STAGES), 1):
        for stage in call:
            sum_s += stage.cap_s
            needs = ", ".join(stage.needs)
            rows.append([str(number), code(stage.name), f"{stage.cap_s:.0f}", f"{sum_s:.0f}", stage.proves, needs])
    return table(["call", "stage", "cap (s)", "sum (s)", "what it shows", "needs"], rows)
