"""A measurement that is longer than what the script trains: its starts, joined. Pure.

What the parent knows when a script's process ends by itself in the middle of a measurement is every step until then:
the hook sends them with each epoch's end. Such a script is started again and again, its loader measured from its very
first batch on, and the starts are joined to one measurement: one epoch after the other, the wait for the first batch of
each in it. Only the first steps of a process, in which libraries make themselves ready, count as long as the others do.

Whole epochs are the blocks of such a measurement (starts, where the script makes one epoch), so its interval is that of
their scatter: two or three of them, each cut into four parts (:func:`pipetune.stats.rates.within_error`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any

from pipetune.measure.phases import EPOCH_PARTS, MIN_EPOCHS, MIN_WINDOWS, TARGET_WINDOWS
from pipetune.measure.recording import Recording
from pipetune.measure.script.gaps import TREE_TOTALS, busy_without, readings_without
from pipetune.records.sweep import Failure, StepTime
from pipetune.stats.rates import window_durations, within_interval

#: How a script ends by itself: its training is over, or it would have saved where that is refused.
SCRIPT_ENDED, CHECKPOINT = "script_ended", "checkpoint"
#: Kind of the failure of a script that has too few batches to be measured at all.
TOO_FEW = "too_few"
#: So many starts at most are joined, and fewer where the interval of the scatter is narrower than this.
MAX_STARTS, _NARROW = 4, 0.1
#: Steps of a process in which libraries make themselves ready.
_FIRST_STEPS = 2
#: Batches of a start, of :data:`MAX_STARTS` of which the ceiling is known: two are kept, and replayed a few times.
LEAST_BATCHES = 2 + 1 + -(-MIN_WINDOWS // MAX_STARTS)


def measure_over_starts(
    measure_start: Callable[[], tuple[Failure | None, Recording]], role: str, epoch_batches: int | None, seconds: float
) -> tuple[Failure | None, Recording]:
    """Measure a candidate in as many starts as it needs.

    Args:
        measure_start: starts the script, and measures until it has been measured or ends.
        epoch_batches: of an epoch; ``None``: not known.
        seconds: wanted length of a measurement (s).

    Returns:
        Why it could not be measured, or ``None``; and all that was recorded.
    """
    starts: list[Recording] = []
    while True:
        failure, recording = measure_start()
        if failure is None or failure.kind not in (SCRIPT_ENDED, CHECKPOINT):
            return failure, recording
        starts.append(recording)
        joined = join_starts(starts, role, epoch_batches)
        if joined is not None and (len(starts) == MAX_STARTS or _is_enough(joined, role, seconds)):
            return None, joined
        if len(starts) == MAX_STARTS or not steps_of(recording):
            return (failure if failure.kind == CHECKPOINT else too_few(len(steps_of(recording)))), recording


def too_few(batches: int) -> Failure:
    """The failure of a script that ends before it can be measured."""
    return Failure(kind=TOO_FEW, phase="timed", message=describe_too_few(batches))


def describe_too_few(batches: int) -> str:
    """The line of a script that ends too early."""
    return (
        f"the script ended after {batches} batch{'es' * (batches != 1)}; at least {LEAST_BATCHES} are needed: use more "
        "data or --epochs"
    )


def steps_of(recording: Recording) -> list[StepTime]:
    """All steps of a start, in their order."""
    return [*recording.warmup, *recording.timed]


def join_starts(starts: Sequence[Recording], role: str, epoch_batches: int | None) -> Recording | None:
    """One recording of several starts; ``None``: they have too few steps."""
    parts = [_ready_steps(steps_of(start)) for start in starts]
    if role == "ceiling":
        parts = [part[1:] for part in parts]
        count = sum(map(len, parts))
        if count < MIN_WINDOWS:
            return None
        size, epoch_windows = float(max(1, count // TARGET_WINDOWS)), 1
    else:
        batches = min([epoch_batches or len(parts[0]), *map(len, parts)])
        epochs = sum(len(part) // batches for part in parts) if batches else 0
        epoch_windows = min(EPOCH_PARTS, batches) if epochs < MIN_WINDOWS else 1
        if epochs < MIN_EPOCHS or epochs * epoch_windows < MIN_EPOCHS + 1:
            return None
        parts = [part[: len(part) // batches * batches] for part in parts]
        size = batches / epoch_windows if epoch_windows > 1 else batches * max(1, epochs // TARGET_WINDOWS)
    began_ns, timed, readings, busy = 0, [], [], []
    for start, part in zip(starts, parts, strict=True):
        shift = began_ns - part[0].t_start_ns if part else 0
        moved = [replace(step, t_start_ns=step.t_start_ns + shift, t_end_ns=step.t_end_ns + shift) for step in part]
        timed += moved
        ended_ns = moved[-1].t_end_ns if moved else began_ns
        here = [replace(r, t_ns=r.t_ns + shift) for r in readings_without(start.readings, start.result["apart"])]
        readings += [r for r in here if began_ns <= r.t_ns <= ended_ns]
        busy += [
            replace(one, t_start_ns=one.t_start_ns + shift, t_end_ns=one.t_end_ns + shift)
            for one in busy_without(start.busy_spans, start.result["apart"])
        ]
        began_ns = ended_ns
    result: dict[str, Any] = {
        **starts[-1].result, "warmup_batches": 0, "steady": True, "window_batches": size, "ended_early": False,
        "epoch_windows": epoch_windows, "whole_epochs": role != "ceiling", "apart": [],
        "epoch_starts": [one for start in starts for one in start.result["epoch_starts"]],
        "single_epochs": all(len(start.result["epoch_starts"]) <= 1 for start in starts),
    }  # fmt: skip
    return replace(
        starts[0], warmup=[], timed=timed, readings=_one_tree(readings), busy_spans=tuple(busy), result=result,
        speed_after=starts[-1].speed_after,
    )  # fmt: skip


def _ready_steps(steps: list[StepTime]) -> list[StepTime]:
    """The steps of a process, of which the first ones count no longer than the others do."""
    usual_s = median(step.compute_s for step in steps[_FIRST_STEPS:]) if len(steps) > _FIRST_STEPS else None
    if usual_s is None:
        return steps
    found, beyond_ns = [], 0
    for number, step in enumerate(steps):
        before_ns = beyond_ns
        if number < _FIRST_STEPS:
            beyond_ns += max(0, round((step.compute_s - usual_s) * 1e9))
        found.append(replace(
            step, compute_s=step.compute_s - (beyond_ns - before_ns) / 1e9, t_start_ns=step.t_start_ns - before_ns,
            t_end_ns=step.t_end_ns - beyond_ns,
        ))  # fmt: skip
    return found


def _one_tree(readings: list[Any]) -> list[Any]:
    """The readings of several process trees as if they were of one, whose totals go on."""
    found = readings[:1]
    for before, now in pairwise(readings):
        last, tree = found[-1].tree, now.tree
        if last is not None and tree is not None and before.tree is not None:
            trees = (last, tree, before.tree)
            values = {name: tuple(getattr(one, name) for one in trees) for name in TREE_TOTALS}
            tree = replace(tree, **{
                name: None if None in three else three[0] + max(0, three[1] - three[2])
                for name, three in values.items()
            })  # fmt: skip
        found.append(replace(now, tree=tree))
    return found


def _is_enough(joined: Recording, role: str, seconds: float) -> bool:
    """Whether more starts would not tell more than they cost."""
    result, timed = joined.result, joined.timed
    durations = window_durations(timed, 0, result["window_batches"])
    if (timed[-1].t_end_ns - timed[0].t_start_ns) / 1e9 >= seconds:
        return True
    return within_interval(durations, result["epoch_windows"]) <= _NARROW
