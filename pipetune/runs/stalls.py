"""When the accelerator was idle, step by step. Pure.

A step knows how long the accelerator had nothing to run before it. That time is one stall, and all of them together are
the stall time of the timeline, to the nanosecond; none is made longer or shorter by merging.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipetune.diagnosis.causes import NOT_INPUT

if TYPE_CHECKING:
    import numpy as np

    Columns = dict[str, np.ndarray[tuple[int], np.dtype[Any]]]


def stalls_of_steps(steps: Columns, cause: str, timed: slice = slice(None)) -> dict[str, Any]:
    """The stalls of a timeline's steps, in the order of time.

    Args:
        steps: columns of :class:`pipetune.records.sweep.StepTime`.
        cause: why batches come late, for the stalls in which the loop waited for one.
        timed: the steps whose stalls count.

    Returns:
        ``t_start_ns``, ``t_end_ns``, ``lost_s``, ``cause`` and ``step`` (the number of the step that came late).
    """
    import numpy as np

    lost_s = np.nan_to_num(steps["idle_s"])
    # Where a damaged step does not say when it worked, it is not known when the accelerator did not.
    known = np.isfinite(steps["compute_s"]) & (lost_s > 0)
    late = (timed.start or 0) + np.flatnonzero(known[timed])
    lost_s = lost_s[late]
    device_s = steps["compute_s"] + np.nan_to_num(steps["h2d_s"]) + np.nan_to_num(steps["others_s"])
    end_ns = steps["t_end_ns"][late] - np.rint(device_s[late] * 1e9).astype(np.int64)
    start_ns = end_ns - np.rint(lost_s * 1e9).astype(np.int64)
    # The wait for the batch, cut to the stall: had the batch been there, that much of the stall would not be. Waiting
    # for other ranks is kept with the step before, though it may have come after the wait for the batch.
    others_ns = np.rint(np.concatenate(([0.0], np.nan_to_num(steps["others_s"])[:-1]))[late] * 1e9).astype(np.int64)
    asked_ns = steps["t_start_ns"][late]
    got_ns = asked_ns + np.rint(np.nan_to_num(steps["data_wait_s"])[late] * 1e9).astype(np.int64)
    waited_s = np.maximum(0, np.minimum(got_ns, end_ns) - np.maximum(asked_ns, start_ns - others_ns)) / 1e9
    by_input = waited_s >= lost_s / 2
    return {
        "t_start_ns": start_ns,
        "t_end_ns": end_ns,
        "lost_s": lost_s,
        "cause": np.where(by_input, cause, NOT_INPUT).astype(object),
        "step": late,
    }
