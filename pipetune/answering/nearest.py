"""The configuration nearest to a question that this machine can be put to. Pure."""

from __future__ import annotations

import math
from dataclasses import replace

from pipetune.answering.base import Base
from pipetune.records.prediction import Question
from pipetune.registry import SCRIPT
from pipetune.units import format_bytes

#: More workers than this per core would measure how processes take turns.
_MOST_PER_CORE = 8
#: Ranks per core: emulated accelerators take no CPU time, so their loaders are what is limited.
_MOST_RANKS_PER_CORE = 4


class NotHereError(Exception):
    """Nothing near it can be measured on this machine; the text says why."""


def nearest(
    question: Question, base: Base, *, cores_here: float, memory_here: int | None, devices_here: int
) -> tuple[Question, tuple[str, ...]]:  # fmt: skip
    """The question that can be measured, and in which way it is another one.

    Args:
        cores_here: that this process may use.
        memory_here: that it may use (bytes); ``None``: not known.
        devices_here: CUDA devices.

    Raises:
        NotHereError: there is none.
    """
    if base.candidate.backend == SCRIPT.name:
        raise NotHereError("only the script can open its loader")
    notes = []
    wanted = question.cores or base.cores
    cores = _cores(wanted, cores_here)
    if not math.isclose(cores, wanted):
        question = replace(question, cores=cores)
        notes.append(f"with {cores:g} core{'s' * (cores != 1)}, as this machine {_has(cores_here, wanted)}")
    if question.workers is not None and question.workers > _MOST_PER_CORE * cores:
        question = replace(question, workers=max(1, round(_MOST_PER_CORE * cores)))
        notes.append(f"with {question.workers} workers, {_MOST_PER_CORE} per core")
    most = _most_ranks(question, base, cores, devices_here)
    if (question.ranks or base.ranks) > most:
        question = replace(question, ranks=most)
        notes.append(f"with {most} rank{'s' * (most != 1)}, as many as this machine can have")
    if question.memory_bytes is not None and memory_here is not None and question.memory_bytes > memory_here:
        raise NotHereError(f"this machine has {format_bytes(memory_here)} of memory")
    return question, tuple(notes)


def _most_ranks(question: Question, base: Base, cores: float, devices_here: int) -> int:
    kind = base.workload.accelerator.kind
    if kind in ("cuda", "xpu") and question.device is None:
        if kind == "xpu" or devices_here < 1:
            raise NotHereError(
                f"this machine has no {kind} device that could be used; --device emulated:RATE stands in"
            )
        return devices_here
    return max(1, math.floor(_MOST_RANKS_PER_CORE * cores))


def _cores(wanted: float, here: float) -> float:
    """Whole cores, which affinity can give: more processes than a quota allows take turns in another way."""
    if math.isclose(wanted, here):
        return here
    return float(max(1, min(round(wanted), math.floor(here)))) if here >= 1 else here


def _has(here: float, wanted: float) -> str:
    return f"has {here:g}" if wanted > here else "can give whole ones"
