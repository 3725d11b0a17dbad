"""``pipetune scale``: from rates that were measured to a table over accelerators and hosts, with times and costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipetune.answering.answer import answer
from pipetune.answering.base import base_of
from pipetune.errors import PipetuneError, UsageError
from pipetune.records.prediction import Prediction, Question
from pipetune.records.scaling import Curve, ScaleRow, Scaling, TimeTo
from pipetune.scaling.accuracy import Reach, falls, reached_s, read_curve
from pipetune.scaling.points import Point, check_same, points_of, table_points, together, with_hosts
from pipetune.scaling.predict import (
    UNKNOWN_COMMUNICATION,
    Host,
    across,
    capped_by_storage,
    doublings,
    each_s,
    measured_host,
    predicted_host,
    short_of,
    waiting_s,
)
from pipetune.scaling.price import Prices, cost_of, expected_s
from pipetune.units import whole_percent

#: Predicted up to so many accelerators unless asked for others.
MOST = 256
#: More rows than this nobody reads.
_MOST_ROWS = 100
#: The largest number of accelerators that anybody has trained on is below.
_MOST_ACCELERATORS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleOptions:
    """The defaults are those of the command and of ``pipetune.scale``."""

    runs: tuple[Path, ...] = ()
    tables: tuple[Path, ...] = ()
    candidate: str | None = None
    to: tuple[int, ...] = ()
    """Numbers of accelerators to predict; ``()``: doublings up to :data:`MOST`."""
    per_host: int | None = None
    """Accelerators in each host; ``None``: as many as one measured host has at most."""
    images: int | None = None
    """Of an epoch; ``None``: those of the runs' data set."""
    epochs: float | None = None
    prices: Prices = field(default_factory=Prices)
    metrics: tuple[tuple[int | None, Path], ...] = ()
    """Files of trainings, with the number of accelerators that each had."""
    metric_name: str | None = None
    reach: tuple[Reach, ...] = ()
    """Values of the metric."""


def scale(chosen: ScaleOptions) -> Scaling:
    """Everything that the runs and tables tell.

    Raises:
        UsageError: an option that cannot be used, or runs that tell too little.
        PipetuneError: a file cannot be read.
    """
    _check(chosen)
    points, left_out = points_of(chosen.runs, chosen.candidate)
    for table in chosen.tables:
        points += table_points(table)
    if not points:
        raise UsageError("no rate is known" + (f": {left_out[0]}" if left_out else ""),
                         hint="name run folders of pipetune sweep, or --table FILE")  # fmt: skip
    check_same(points)
    about = next((point.workload for point in points if point.workload), "")
    per_host = _per_host(points, chosen.per_host)
    points, repeats = together(with_hosts(points, per_host))
    notes = [*(f"left out: {text}" for text in left_out), *repeats, *(text for point in points for text in point.notes)]
    rows = _rows(points, per_host, chosen, notes)
    images = chosen.images or next((point.images for point in reversed(points) if point.images), None)
    mean_bytes = next((point.mean_bytes for point in reversed(points) if point.mean_bytes), None)
    rows = [_priced(_with_bytes(row, mean_bytes), images, chosen, notes) for row in rows]
    curves = _curves(chosen, rows)
    if chosen.reach and chosen.prices.per_hour is not None and any(curve.accelerators is None for curve in curves):
        notes.append(
            "what a training costs until it reaches a value is known with --metric N=FILE only, N accelerators"
        )
    return Scaling(
        about=about, rows=tuple(rows), accelerators_per_host=per_host, images=images, epochs=chosen.epochs,
        per_hour=chosen.prices.per_hour, spot_per_hour=chosen.prices.spot_per_hour, currency=chosen.prices.currency,
        curves=curves, times_to=tuple(_time_to(curve, value, rows, chosen) for curve in curves
                                      for value in chosen.reach),
        notes=tuple(dict.fromkeys(notes)),
    )  # fmt: skip


def _check(chosen: ScaleOptions) -> None:
    if not chosen.runs and not chosen.tables:
        raise UsageError("no run was named", hint="pipetune scale RUN…, or --table FILE with rates of your own")
    for count in chosen.to:
        if not 1 <= count <= _MOST_ACCELERATORS:
            raise UsageError(f"--to {count} is no number of accelerators", hint="write --to 64,128,256")
    if len(chosen.to) > _MOST_ROWS:
        raise UsageError(f"--to names {len(chosen.to)} numbers", hint=f"{_MOST_ROWS} are the most")
    for option, value in (("--per-host", chosen.per_host), ("--images", chosen.images), ("--epochs", chosen.epochs)):
        if value is not None and not 0 < value < 1e12:
            raise UsageError(f"{option} {value:g} is out of range", hint=f"write {option} {8 if value < 1 else 90}")
    if chosen.reach and not chosen.metrics:
        raise UsageError("--reach needs what a training has written", hint="add --metric FILE")
    for goal in chosen.reach:
        if not math.isfinite(goal.value):
            raise UsageError(f"--reach {goal.value} is no value", hint="write --reach 0.75")
    if chosen.metric_name is not None and not chosen.metrics:
        raise UsageError(f"--metric-name {chosen.metric_name} is for --metric", hint="add --metric FILE")


def _per_host(points: Sequence[Point], given: int | None) -> int:
    """Accelerators in each host."""
    if given is not None:
        return given
    known = max((math.ceil(point.accelerators / point.hosts) for point in points if point.hosts), default=0)
    if any(not point.hosts and point.accelerators > known for point in points):
        raise UsageError("the table does not say how many hosts there were",
                         hint="add a column hosts, or --per-host 8")  # fmt: skip
    return known


def _wanted(chosen: ScaleOptions, per_host: int) -> list[int]:
    for count in chosen.to:
        if count > per_host and count % per_host:
            near = per_host * max(1, round(count / per_host))
            raise UsageError(f"--to {count}: hosts have {per_host} accelerators each", hint=f"write --to {near}")
    return list(chosen.to) or doublings(per_host, MOST)


def _rows(points: Sequence[Point], per_host: int, chosen: ScaleOptions, notes: list[str]) -> list[ScaleRow]:
    one = next((point.samples_per_s for point in points if point.accelerators == 1), None)
    host = measured_host(points, per_host)
    wanted = [(count, max(1, count // per_host)) for count in _wanted(chosen, per_host)]
    known = {(point.accelerators, point.hosts) for point in points}
    missing = [pair for pair in wanted if pair not in known]
    no_host = ""
    if host is None and any(hosts > 1 for _, hosts in missing):
        host, no_host = _host_of_model(points, per_host, notes)
    rows = {(point.accelerators, point.hosts): _measured_row(point, one, host) for point in points}
    for count, hosts in missing:
        row: ScaleRow | None = None
        reason = no_host
        if hosts == 1:
            row, reason = _inside(points, count, one)
        elif host is not None:
            row = _across_row(points, host, hosts, one, notes)
        if row is not None:
            rows[count, hosts] = row
        elif chosen.to:  # nobody has asked for the others
            notes.append(f"{count} accelerators: not predicted, because {reason}")
    if any(point.separate for point in points):
        notes.append("rates of several hosts in one sweep (--hosts) are without communication between them")
    if any(hosts > 1 and count != hosts * per_host for count, hosts in known):
        notes.append(f"hosts with fewer than {per_host} accelerators in use do not count for predictions")
    return [rows[pair] for pair in sorted(rows)]


def _host_of_model(points: Sequence[Point], per_host: int, notes: list[str]) -> tuple[Host | None, str]:
    """One whole host as it is predicted, or why it is not."""
    prediction, point, reason = _on_one_host(points, per_host)
    if prediction is None or point is None:
        return None, reason
    notes.append(f"one host with {per_host} accelerators was not measured: it is predicted from {point.accelerators}")
    host = predicted_host(prediction, per_host, point)
    if host.others_wait_frac is None:
        notes.append(
            "how long accelerators wait for the slowest was not measured, and is not in the rates across hosts"
        )
    return host, ""


def _on_one_host(points: Sequence[Point], count: int) -> tuple[Prediction | None, Point | None, str]:
    """What the model of ``pipetune whatif --ranks`` says of one host, from the run that is nearest; or why nothing."""
    runs = [point for point in points if point.run is not None and point.hosts == 1]
    reason = f"neither one host with {count} was measured nor a run on one host, from which it can be predicted"
    for point in sorted(runs, key=lambda point: abs(math.log(point.accelerators / count))):
        assert point.run is not None
        try:
            found = answer(Question(ranks=count), base_of(point.run, point.candidate))
        except PipetuneError as error:
            reason = error.message  # too little of it was measured
            continue
        if found.prediction is not None:
            return found.prediction, point, ""
        reason = found.refused or reason
    return None, None, reason


def _inside(points: Sequence[Point], count: int, one: float | None) -> tuple[ScaleRow | None, str]:
    prediction, point, reason = _on_one_host(points, count)
    if prediction is None or point is None:
        return None, reason
    efficiency = None if one is None else prediction.samples_per_s / (count * one)
    return ScaleRow(
        accelerators=count, hosts=1, measured=False, samples_per_s=prediction.samples_per_s,
        interval=prediction.interval90, efficiency=efficiency, efficiency_in_host=efficiency,
        efficiency_across_hosts=1.0, bytes_per_s_per_host=None,
        source=f"pipetune whatif --ranks {count}, from {point.accelerators}",
    ), ""  # fmt: skip


def _measured_row(point: Point, one: float | None, host: Host | None) -> ScaleRow:
    efficiency = None if one is None else point.samples_per_s / (point.accelerators * one)
    full = host is not None and point.hosts > 1 and point.accelerators == point.hosts * host.accelerators
    alone = host.samples_per_s if host is not None else math.nan
    across_hosts = 1.0 if point.hosts == 1 else point.samples_per_s / (point.hosts * alone) if full else None
    inside = efficiency if point.hosts == 1 else \
        None if host is None or one is None or not full else alone / (host.accelerators * one)  # fmt: skip
    sent = None
    if full and host is not None and not point.separate:
        longer = each_s(point.accelerators, point.samples_per_s)
        sent = max(0.0, 1 - (each_s(host.accelerators, alone) + waiting_s(host, point.accelerators)) / longer)
    elif point.hosts == 1 and point.others_wait_frac is not None:
        sent = 0.0
    idle, others = point.idle_frac, point.others_wait_frac
    return ScaleRow(
        accelerators=point.accelerators, hosts=point.hosts, measured=True, samples_per_s=point.samples_per_s,
        interval=point.ci95, efficiency=efficiency, efficiency_in_host=inside, efficiency_across_hosts=across_hosts,
        bytes_per_s_per_host=None, idle_frac=idle, others_wait_frac=others, communication_frac=sent,
        compute_frac=None if idle is None or others is None else max(0.0, 1 - idle - others - (sent or 0.0)),
        source=point.source,
    )  # fmt: skip


def _across_row(points: Sequence[Point], host: Host, hosts: int, one: float | None, notes: list[str]) -> ScaleRow:
    found, capped = capped_by_storage(across(host, points, hosts), host, points)
    notes += [] if capped is None else [
        f"{capped.hosts} hosts that were measured together (--hosts) got {whole_percent(short_of(host, capped))} of "
        "what as many get alone: storage that they share is taken to give more hosts no more"
    ]  # fmt: skip
    if found.communication_frac is None:
        notes.append(
            "no run across hosts was measured: what communication between hosts costs is not in the predicted rates, "
            f"and their intervals allow for {whole_percent(UNKNOWN_COMMUNICATION)}"
        )
    count = hosts * host.accelerators
    inside = None if one is None else host.samples_per_s / (host.accelerators * one)
    same = next((point for point in points if point.hosts == 1 and point.accelerators == host.accelerators), None)
    idle = None if same is None or same.idle_frac is None else \
        same.idle_frac * found.samples_per_s / (hosts * host.samples_per_s)  # fmt: skip
    if capped is not None:  # what they wait for storage was not measured of so many
        idle = None
    others = None if idle is None else found.others_wait_frac
    return ScaleRow(
        accelerators=count, hosts=hosts, measured=False, samples_per_s=found.samples_per_s, interval=found.interval90,
        efficiency=None if one is None else found.samples_per_s / (count * one), efficiency_in_host=inside,
        efficiency_across_hosts=found.samples_per_s / (hosts * host.samples_per_s), bytes_per_s_per_host=None,
        idle_frac=idle, others_wait_frac=others, communication_frac=found.communication_frac,
        compute_frac=max(0.0, 1 - idle - others - (found.communication_frac or 0.0))
        if idle is not None and others is not None else None,
        source=found.source,
    )  # fmt: skip


def _with_bytes(row: ScaleRow, mean_bytes: float | None) -> ScaleRow:
    return row if mean_bytes is None else replace(
        row, bytes_per_s_per_host=row.samples_per_s * mean_bytes / row.hosts
    )  # fmt: skip


def _priced(row: ScaleRow, images: int | None, chosen: ScaleOptions, notes: list[str]) -> ScaleRow:
    """With the time and the cost of an epoch and of the training."""
    if images is None:
        notes.append("without --images the length of an epoch is not known")
        return row
    prices, epoch_s = chosen.prices, images / row.samples_per_s
    training_s = None if chosen.epochs is None else epoch_s * chosen.epochs
    per_hour, spot = prices.per_hour, prices.spot_per_hour
    row = replace(
        row, epoch_s=epoch_s, training_s=training_s,
        epoch_cost=None if per_hour is None else cost_of(epoch_s, row.hosts, per_hour),
        training_cost=None if per_hour is None or training_s is None else cost_of(training_s, row.hosts, per_hour),
    )  # fmt: skip
    if spot is None:
        return row
    if training_s is None:
        notes.append("--spot has no effect without --epochs: what is lost depends on how long the training is")
        return row
    expected = expected_s(
        training_s, row.hosts, prices.lost_per_hour, prices.checkpoint_s or epoch_s, prices.restart_s
    )  # fmt: skip
    if math.isinf(expected):
        notes.append(f"{row.accelerators} accelerators with --spot: hosts are lost faster than the training gets from "
                     "one checkpoint to the next; --checkpoint 10m makes that shorter")  # fmt: skip
        return row
    return replace(row, spot_training_s=expected, spot_training_cost=cost_of(expected, row.hosts, spot))


def _curves(chosen: ScaleOptions, rows: Sequence[ScaleRow]) -> tuple[Curve, ...]:
    found = []
    for count, path in chosen.metrics:
        row = _row_of(rows, count)

        def epoch_s(row: ScaleRow | None = row) -> float | None:
            return None if row is None else row.epoch_s

        found.append(read_curve(path, chosen.metric_name, count, epoch_s))
    return tuple(found)


def _row_of(rows: Sequence[ScaleRow], count: int | None) -> ScaleRow | None:
    """The row with so many accelerators: a measured one before others, fewer hosts before more."""
    same = [row for row in rows if row.accelerators == count]
    return min(same, key=lambda row: (not row.measured, row.hosts), default=None)


def _time_to(curve: Curve, wanted: Reach, rows: Sequence[ScaleRow], chosen: ScaleOptions) -> TimeTo:
    row = _row_of(rows, curve.accelerators)
    at, per_hour = reached_s(curve, wanted), chosen.prices.per_hour
    return TimeTo(
        curve=curve.name, accelerators=curve.accelerators, value=wanted.value, reached_s=at,
        falls=falls(curve) if wanted.falls is None else wanted.falls,
        cost=None if at is None or per_hour is None or row is None else cost_of(at, row.hosts, per_hour),
        samples_per_s=None if row is None else row.samples_per_s, measured=row is None or row.measured,
    )  # fmt: skip
