"""STAGES: one line per stage, the one of most worth first. Options, plan, run and manual read this table.

The caps are sized for one H100 with 16 cores. Their sum is at most MAX_TOTAL_S, because a GPU that is rented for a
quarter of an hour takes one to two minutes to start. A call ends within MAX_CALL_S.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from benchmarks.gpu.leasing.findings import Findings
from benchmarks.gpu.leasing.needs import GPU_DECODERS, PY_SPY

MAX_CALL_S, MAX_TOTAL_S = 390.0, 800.0
#: A call needs this for finding the device and for its last archive (s).
CALL_OVERHEAD_S = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A part of the lease: its own process, its own cap, its own result."""

    name: str
    cap_s: float
    """The stage is ended after this."""
    least_s: float
    """With less time the stage would show nothing, so it is not started."""
    proves: str
    needs: tuple[str, ...] = ()
    """Packages without which something stays unproven (:mod:`benchmarks.gpu.leasing.needs`)."""
    module: str = ""
    """Below ``benchmarks.gpu``; its function ``run_stage`` takes the findings. Empty: the stage's name."""

    def load(self) -> Callable[[Findings], None]:
        """The stage's function; imports what it needs."""
        module = importlib.import_module(f"benchmarks.gpu.{self.module or self.name}")
        return cast(Callable[[Findings], None], module.run_stage)


STAGES: tuple[Stage, ...] = (
    Stage(name="facts", cap_s=20, least_s=5, proves="what is measured on: GPU, driver, machine, packages"),
    Stage(name="doctor", cap_s=10, least_s=5, proves="`pipetune doctor` finds the GPU and what can be used on it"),
    Stage(
        name="probe",
        cap_s=60,
        least_s=20,
        proves="page-locked memory survives a fork; NVML's pace, lag and cost; start-up seconds; copy rates",
    ),
    Stage(name="tests", cap_s=90, least_s=20, module="test_files", proves="the tests that need a GPU pass"),
    Stage(
        name="sweep",
        cap_s=150,
        least_s=45,
        needs=("jpeg-roi", "simplejpeg"),
        proves="a sweep of resnet50 ends with an answer; goodput beside NVML's utilisation for 0 to 16 workers",
    ),
    Stage(
        name="decode",
        cap_s=60,
        least_s=20,
        module="decode_stage",
        needs=(GPU_DECODERS, "jpeg-roi"),
        proves="images/s of each decoder on the GPU, alone and beside a training step",
    ),
    Stage(
        name="parity",
        cap_s=35,
        least_s=10,
        needs=(GPU_DECODERS,),
        proves="pictures decoded on the GPU are right, and batches do not change while they are in use",
    ),
    Stage(
        name="sweep-bound",
        cap_s=95,
        least_s=45,
        module="sweep",
        needs=(GPU_DECODERS, "jpeg-roi"),
        proves="a sweep that the loader bounds (resnet18): GPU decoders against the fastest on the CPU",
    ),
    Stage(
        name="watch",
        cap_s=75,
        least_s=25,
        module="watch_stage",
        needs=(PY_SPY,),
        proves="`pipetune watch` tells starved, fed and device-bound jobs apart, and slows none",
    ),
    Stage(name="script", cap_s=55, least_s=25, proves="a training script is tuned in its own loop"),
    Stage(
        name="batch",
        cap_s=45,
        least_s=15,
        module="batch",
        proves="the batch size that is said to be the largest is the largest",
    ),
    Stage(name="repeat", cap_s=35, least_s=12, proves="95 % intervals cover a repetition; the sampler's cost"),
    Stage(
        name="clocks",
        cap_s=50,
        least_s=15,
        proves="rate, clock and power of a model that trains without a pause; what compiling it gains",
    ),
    Stage(
        name="nvml",
        cap_s=20,
        least_s=10,
        module="nvml_cost",
        proves="the sampler takes under 1 % of a core",
    ),
)


def find_stages(names: str | None) -> list[Stage]:
    """The stages of these names, comma separated and in the table's order; ``None``: all.

    Raises:
        ValueError: there is no such stage.
    """
    if names is None:
        return list(STAGES)
    asked = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in asked if name not in {stage.name for stage in STAGES}]
    if unknown or not asked:
        raise ValueError(
            f"--only must name stages (got {', '.join(unknown) or 'none'}); there are "
            f"{', '.join(stage.name for stage in STAGES)}"
        )
    return [stage for stage in STAGES if stage.name in asked]


def split_calls(stages: Iterable[Stage], call_s: float = MAX_CALL_S) -> list[list[Stage]]:
    """The stages in the calls that they fall into, where each call may take ``call_s``."""
    calls: list[list[Stage]] = []
    used_s = 0.0
    for stage in stages:
        if not calls or used_s + stage.cap_s > call_s - CALL_OVERHEAD_S:
            calls.append([])
            used_s = 0.0
        calls[-1].append(stage)
        used_s += stage.cap_s
    return calls


def pick_next(waiting: Sequence[Stage], remaining_s: float, shorten: float = 1.0) -> Stage | None:
    """The stage of most worth that the time left is enough for; ``None``: there is none.

    Args:
        waiting: stages in the order of their worth.
        remaining_s: of the call.
        shorten: factor on all caps.
    """
    return next((stage for stage in waiting if shorten * stage.least_s <= remaining_s), None)
