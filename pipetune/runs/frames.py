"""Records and columns -> tidy pandas frames. Pure. Every column's unit is the end of its name.

``time_s`` is seconds since the timeline's first step or reading, the same zero in all frames of one candidate;
``*_pct`` are percent, ``*_frac`` and ``share_*`` go from 0 to 1. What was not measured is NaN, and never 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipetune.diagnosis.candidate import diagnosis_of
from pipetune.errors import MissingPackageError
from pipetune.records.batch_size import BatchPoint
from pipetune.records.set_up import SetUp
from pipetune.records.sweep import Candidate, HostShare, Measurement, Outcome, RankShare, to_dict
from pipetune.records.watch import Window
from pipetune.stats.rates import rate_interval
from pipetune.store.read import timeline_name

if TYPE_CHECKING:
    import pandas as pd

    from pipetune.runs.stalls import Columns

#: Intervals: field -> names of its two ends.
_INTERVALS = {
    "ci95": ("samples_per_s_low", "samples_per_s_high"), "goodput_ci95": ("goodput_low", "goodput_high"),
    "gpu_util_ci95": ("gpu_util_low", "gpu_util_high"),
    "energy_ci95": ("energy_j_per_1000_samples_low", "energy_j_per_1000_samples_high"),
}  # fmt: skip
_LEFT_OUT = ("versions", "warnings", "batch_shape", "ranks", "hosts", "set_up")
#: Stages of the set-up: column -> field.
_SET_UP = {f"set_up_{field.name}": field.name for field in dataclasses.fields(SetUp)}
#: Readings up to which a frame is a copy that may be changed.
_MAX_COPIED = 200_000
#: Windows that the interval of an observed loop's rate is computed from, and the fewest that allow one.
_WINDOWS, _MIN_WINDOWS = 10, 4


def require_pandas() -> None:
    """Say how to get pandas where it is missing.

    Raises:
        MissingPackageError: it is not installed.
    """
    try:
        import pandas  # noqa: F401
    except ImportError as error:
        raise MissingPackageError(
            "pandas, which holds the frames, is not installed", hint="pip install 'pipetune[notebook]'"
        ) from error


def outcome_frame(
    outcomes: Sequence[Outcome], *, usable_cores: float, recommended: str | None, counted_cores: float | None = None
) -> pd.DataFrame:
    """One row per outcome, in the order of measurement.

    Args:
        usable_cores: of the machine of the run, for the cause.
        recommended: key of the candidate that the run recommends.
        counted_cores: of the machine, those whose load was measured; ``None``: as many.
    """
    import pandas as pd

    rows = [_row(outcome, usable_cores, counted_cores, recommended) for outcome in outcomes]
    frame = pd.DataFrame(rows, columns=_columns())
    for name in ("num_workers", "prefetch_depth", "batch_size", "attempt", "block"):
        frame[name] = frame[name].astype("int64")
    for name in (*_measured_columns(), "predicted_samples_per_s"):
        if name not in ("steady", "ended_early", "other_process"):
            frame[name] = pd.to_numeric(frame[name])
    return frame


def point_frame(result: Mapping[str, Any]) -> pd.DataFrame:
    """One row per batch size: see :class:`pipetune.records.batch_size.BatchPoint`.

    Args:
        result: what ``pipetune batch-size`` has stored.
    """
    import pandas as pd

    names = [field.name for field in dataclasses.fields(BatchPoint)]
    return pd.DataFrame((result.get("batch_sizes") or {}).get("points") or [], columns=names)


def rank_frame(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """One row per outcome and rank; empty where one rank was measured at a time."""
    return _share_frame(outcomes, RankShare, lambda m: m.ranks)


def host_frame(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """One row per outcome and host; empty where one host measured."""
    return _share_frame(outcomes, HostShare, lambda m: m.hosts)


def _share_frame(
    outcomes: Sequence[Outcome], kind: type[Any], shares_of: Callable[[Measurement], Sequence[Any]]
) -> pd.DataFrame:  # fmt: skip
    import pandas as pd

    rows = [
        {"key": outcome.candidate.key, "timeline": timeline_name(outcome), "role": outcome.role, **to_dict(share)}
        for outcome in outcomes
        if outcome.measurement is not None
        for share in shares_of(outcome.measurement)
    ]
    names = ["key", "timeline", "role", *(field.name for field in dataclasses.fields(kind))]
    frame = pd.DataFrame(rows, columns=names)
    if "ci95" in names:
        ends = frame.pop("ci95").tolist()
        frame["samples_per_s_low"], frame["samples_per_s_high"] = [one[0] for one in ends], [one[1] for one in ends]
    return frame


def reading_frame(readings: Columns, zero_ns: int) -> pd.DataFrame:
    """One row per reading, ``time_s`` first; ``cores_used`` is what the process tree used since the reading before."""
    import numpy as np
    import pandas as pd

    columns: dict[str, Any] = {"time_s": (readings["t_ns"] - zero_ns) / 1e9}
    columns |= {name: values for name, values in readings.items() if name != "t_ns"}
    cpu_s = readings["tree_cpu_s"]
    # Not the reading's own interval: a long watch keeps one of many.
    span_s = np.diff(readings["t_ns"], prepend=readings["t_ns"][:1]) / 1e9
    grown = np.diff(cpu_s, prepend=np.nan) if len(cpu_s) else cpu_s
    with np.errstate(divide="ignore", invalid="ignore"):
        # Processes that ended between two readings may take some of the sum along.
        columns["cores_used"] = np.where(span_s > 0, np.maximum(grown, 0) / span_s, np.nan)
    if len(cpu_s) < _MAX_COPIED:
        return pd.DataFrame(columns)
    # Twice a million readings would be too much: shared with the run, and therefore not to be written to.
    for values in columns.values():
        values.flags.writeable = False
    return pd.DataFrame(columns, copy=False)


def step_frame(steps: Columns, zero_ns: int, timed: slice) -> pd.DataFrame:
    """One row per training step.

    Args:
        steps: columns of :class:`pipetune.records.sweep.StepTime`.
        zero_ns: of ``time_s``.
        timed: the steps that were measured; those before are the warm-up, those after an incomplete window.
    """
    import numpy as np
    import pandas as pd

    count = len(steps["t_start_ns"])
    phase = np.full(count, "rest", dtype=object)
    phase[: timed.start or 0] = "warmup"
    phase[timed] = "timed"
    return pd.DataFrame(
        {
            "step": np.arange(count),
            "phase": pd.Categorical(phase, categories=["warmup", "timed", "rest"]),
            "time_s": (steps["t_start_ns"] - zero_ns) / 1e9,
            "end_s": (steps["t_end_ns"] - zero_ns) / 1e9,
            "data_wait_s": steps["data_wait_s"],
            "h2d_s": steps["h2d_s"],
            "compute_s": steps["compute_s"],
            "idle_s": steps["idle_s"],
            "others_s": steps["others_s"],
            "samples": _whole(steps["samples"]),
        }
    )


def _whole(values: Any) -> Any:
    """As whole numbers, where none is missing."""
    import numpy as np

    return values.astype(np.int64) if np.isfinite(values).all() else values


def loop_frame(steps: pd.DataFrame, readings: pd.DataFrame, stalls: pd.DataFrame) -> pd.DataFrame:
    """One row: the result of an observed loop, without its warm-up. The interval is that of batch means (95 %).

    Args:
        steps, readings, stalls: of the loop.
    """
    import numpy as np
    import pandas as pd

    timed = steps[steps["phase"] == "timed"]
    row: dict[str, Any] = {"steps": len(timed), "samples": int(timed["samples"].sum())}
    # From the end of the step before the first one to the end of the last one.
    began_s = steps["end_s"][steps["phase"] == "warmup"].max() if (steps["phase"] == "warmup").any() else None
    began_s = timed["time_s"].min() if began_s is None else began_s
    seconds = float(timed["end_s"].max() - began_s - _between_epochs(steps, timed)) if len(timed) else 0.0
    row |= {"seconds": seconds, "samples_per_s": row["samples"] / seconds if seconds else np.nan}
    row["samples_per_s_low"], row["samples_per_s_high"] = _rate_ci95(timed, began_s) if seconds else (np.nan, np.nan)
    row["data_wait_frac"] = float(timed["data_wait_s"].sum()) / seconds if seconds else np.nan
    row["accelerator_idle_frac"] = float(stalls["lost_s"].sum()) / seconds if seconds else np.nan
    row["stalls"] = len(stalls)
    during = readings[readings["time_s"].between(began_s, timed["end_s"].max())] if seconds else readings[:0]
    for name in ("cpu_busy_pct", "psi_cpu_some_pct", "psi_io_some_pct", "gpu_util_pct", "cores_used"):
        row[name] = during[name].mean()
    return pd.DataFrame([row])


def _between_epochs(steps: pd.DataFrame, timed: pd.DataFrame) -> float:
    """Time in which the loop was not asking for batches: it evaluated, or saved, after an epoch (s)."""
    outside = (steps["time_s"] - steps["end_s"].shift()).clip(lower=0)
    return float(outside[timed.index[0] :].sum())


def _rate_ci95(timed: pd.DataFrame, began_s: float) -> tuple[float, float]:
    """Interval of the rate from up to ten windows of equally many steps; NaN from fewer than four."""
    import numpy as np

    windows = min(_WINDOWS, len(timed))
    if windows < _MIN_WINDOWS:
        return np.nan, np.nan
    size = len(timed) // windows
    outside = (timed["time_s"] - timed["end_s"].shift(fill_value=began_s)).clip(lower=0).cumsum()
    ends = (timed["end_s"] - outside).to_numpy()[size - 1 : windows * size : size]
    durations = np.diff(ends, prepend=began_s)
    samples = timed["samples"].to_numpy()[: windows * size].reshape(windows, size).sum(axis=1).mean()
    _, low, high = rate_interval(list(map(float, durations)), float(samples), 0.0)
    return low, high


def stall_frame(stalls: Mapping[str, Any], zero_ns: int) -> pd.DataFrame:
    """One row per stall: ``start_s``, ``end_s``, ``lost_s`` and ``cause`` first, then what else is known of it."""
    import numpy as np
    import pandas as pd

    times = {
        "start_s": (np.asarray(stalls["t_start_ns"], dtype=np.int64) - zero_ns) / 1e9,
        "end_s": (np.asarray(stalls["t_end_ns"], dtype=np.int64) - zero_ns) / 1e9,
        "lost_s": np.asarray(stalls["lost_s"], dtype=np.float64),
        "cause": np.asarray(stalls["cause"], dtype=object),
    }
    more = {name: values for name, values in stalls.items() if name not in {*times, "t_start_ns", "t_end_ns"}}
    return pd.DataFrame({**times, **more})


def window_frame(windows: Sequence[Window]) -> pd.DataFrame:
    """One row per window and rank of a watch, with a column ``share_CAUSE`` for every cause that was named."""
    import pandas as pd

    rows = []
    for window in windows:
        for verdict in window.verdicts:
            low, high = verdict.lost_ci95 or (None, None)
            rows.append(
                {
                    "window": window.number,
                    "started": pd.Timestamp(window.started_unix_s, unit="s", tz="UTC"),
                    **{name: getattr(window, name) for name in ("seconds", *_WINDOW_COLUMNS)},
                    **{name: getattr(verdict, name) for name in _VERDICT_COLUMNS},
                    "lost_frac_low": low,
                    "lost_frac_high": high,
                    **{f"share_{share.cause}": share.share for share in verdict.shares},
                }
            )
    frame = pd.DataFrame(rows)
    if frame.empty:
        names = ("window", "started", "seconds", *_WINDOW_COLUMNS, *_VERDICT_COLUMNS, "lost_frac_low", "lost_frac_high")
        return pd.DataFrame(columns=list(names))
    shares = [str(name) for name in frame if str(name).startswith("share_")]
    frame[shares] = frame[shares].fillna(0.0)
    return frame


_WINDOW_COLUMNS = (
    "cpu_busy_pct", "cpu_idle_pct", "cpu_iowait_pct", "psi_cpu_some_pct", "psi_io_some_pct", "psi_memory_some_pct",
    "throttled_frac", "cores", "own_core_frac",
)  # fmt: skip
_VERDICT_COLUMNS = (
    "rank", "pid", "source", "cause", "confidence", "util_frac", "lost_frac", "sentence", "advice", "looks", "stacks",
)  # fmt: skip


def _row(
    outcome: Outcome, usable_cores: float, counted_cores: float | None, recommended: str | None
) -> dict[str, Any]:  # fmt: skip
    m, failure = outcome.measurement, outcome.failure
    row = {
        "key": outcome.candidate.key,
        "timeline": timeline_name(outcome),
        **to_dict(outcome.candidate),
        "role": outcome.role,
        "attempt": outcome.attempt,
        "block": outcome.block,
        "forked": outcome.forked,
        "why": outcome.why,
        "recommended": outcome.role != "ceiling"
        and outcome.measurement is not None
        and outcome.candidate.key == recommended,
        "wall_s": outcome.wall_s,
    }
    if m is not None:
        for field in dataclasses.fields(Measurement):
            value = getattr(m, field.name)
            if field.name in _INTERVALS:
                row |= dict(zip(_INTERVALS[field.name], value or (None, None), strict=True))
            elif field.name not in _LEFT_OUT:
                row[field.name] = value
        row |= {column: getattr(m.set_up, stage, None) for column, stage in _SET_UP.items()}
    diagnosis = None if outcome.role == "ceiling" else diagnosis_of(outcome, usable_cores, counted_cores)
    row["predicted_samples_per_s"] = None if outcome.predicted is None else outcome.predicted.samples_per_s
    row["cause"] = None if diagnosis is None else diagnosis.cause
    row["failure"] = None if failure is None else failure.kind
    row["failure_message"] = None if failure is None else failure.message
    return row


def _measured_columns() -> list[str]:
    names: list[str] = []
    for field in dataclasses.fields(Measurement):
        names += _INTERVALS.get(field.name, () if field.name in _LEFT_OUT else (field.name,))
    return names


def _columns() -> list[str]:
    """Of a frame of outcomes, so that an empty one has them, too."""
    candidate = [*(field.name for field in dataclasses.fields(Candidate)), "worker_kind"]
    head = ["key", "timeline", *candidate, "role", "attempt", "block", "forked", "why", "recommended", "wall_s"]
    return [*head, *_measured_columns(), *_SET_UP, "predicted_samples_per_s", "cause", "failure", "failure_message"]
