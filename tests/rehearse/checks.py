"""What the stages of a rehearsal may say: nothing failed, and what is not proven is what cannot be there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

#: Reasons that a slow machine gives.
TIME = (
    r"not done (in time|after)",
    r"no time left",
    r"its time was over",
    r"the stage was ended after",
    r"in the time that there was",
    r"did not train in time",
    r"gave none in its time",
    r"in its time",
)
#: Reasons of the emulated device.
EMULATED = (
    r"the device is emulated",
    r"an emulated (device|accelerator) has no",
    r"torch sees no CUDA device",
    r"libnvidia-ml\.so\.1 is not installed",
)
#: Reasons of the stand-in CUDA runtime: its NVML gives the same utilisation always, and a budget is short for it.
STAND_IN = (r"\(--small\)", r"wave at (no|any) lag", r"none was measured")
#: Problems that the stand-in has, whose kernels compute nothing: pictures that a device decodes are not right.
MEANINGLESS_PIXELS = (r"mean difference", r"batches that were decoded on the GPU changed")


def list_complaints(
    results: Mapping[str, Mapping[str, Any]],
    *,
    stages: Sequence[str],
    reasons: Sequence[str],
    missing: Sequence[str],
    problems: Sequence[str] = (),
) -> list[str]:
    """What differs from what a rehearsal has to say.

    Args:
        results: file name without its ending -> a stage's result.
        stages: those that have to have a result.
        reasons: patterns of reasons for what is not proven.
        missing: packages that are not there.
        problems: patterns of problems that do not count; a lack of time never does.
    """
    complaints = [f"{stage} has no result" for stage in stages if stage not in results]
    for name, result in results.items():
        complaints += [
            f"{name}: problem: {text}"
            for text in result.get("problems", ())
            if not any(re.search(pattern, text) for pattern in (*TIME, *problems))
        ]
        for item in result.get("not_proven", ()):
            if item["need"] is not None and item["need"] not in missing:
                complaints.append(f"{name}: {item['need']} is missing: {item['reason']}")
            if item["need"] is None and not any(re.search(pattern, item["reason"]) for pattern in reasons):
                complaints.append(f"{name}: not proven: {item['what']}: {item['reason']}")
    return complaints
