"""A candidate in words: the one way in which text for people names it. Pure."""

from __future__ import annotations

from pipetune.candidates.settings import SETTINGS
from pipetune.records.sweep import Candidate, Outcome
from pipetune.registry import LOADERS, SCRIPT


def describe(candidate: Candidate) -> str:
    """``'jpeg-roi, 1 thread, prefetch 2, uint8'``: decode backend, workers, prefetch depth, settings off their default.

    Batch size and pinned memory are the same for all candidates of a sweep, and are left out.
    """
    count = candidate.num_workers
    loader = LOADERS.get(candidate.loader)  # a newer version's run may have another one
    noun = "thread" if count and loader is not None and loader.worker_kind == "thread" else "worker"
    script = candidate.backend == SCRIPT.name  # all of its candidates have the script's own decoding
    parts = [*([] if script else [candidate.backend]), f"{count or 'no'} {noun}{'' if count == 1 else 's'}"]
    if count:
        parts.append(f"prefetch {candidate.prefetch_depth}")
    for setting in SETTINGS.values():
        value = getattr(candidate, setting.name)
        if setting.words is not None and value != setting.default:
            parts.append(setting.words(value))
    if script and candidate.pin_memory:
        parts.append("pinned")
    return ", ".join(parts)


def describe_outcome(outcome: Outcome) -> str:
    """The candidate in words; ``'max ingestion rate'`` of the ceiling, with its batch size where that is another."""
    return describe_role(outcome.role, outcome.candidate, other_batch=outcome.other_batch)


def describe_role(role: str, candidate: Candidate, *, other_batch: bool) -> str:
    """What a measurement is of; see :class:`pipetune.records.sweep.Outcome` for the arguments."""
    if role != "ceiling":
        return describe(candidate)
    return f"max ingestion rate with batches of {candidate.batch_size}" if other_batch else "max ingestion rate"
