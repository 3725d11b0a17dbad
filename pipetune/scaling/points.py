"""Rates that were measured with different numbers of accelerators: from run folders, arrays and tables."""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from pipetune.augmentation.recipes import BASIC
from pipetune.errors import PipetuneError, UsageError
from pipetune.records.sweep import Measurement, Outcome
from pipetune.runs.load import load
from pipetune.runs.run import SWEEP, Run
from pipetune.scaling.launch import LAUNCH_FILE, read_launch
from pipetune.store.files import os_errors_as
from pipetune.sweeping.result import SweepResult
from pipetune.sweeping.stored import sweep_result

#: Columns of a table, with other names that they may have.
_COLUMNS = {
    "accelerators": ("accelerators", "gpus", "ranks", "devices", "n", "# gpus"),
    "hosts": ("hosts", "nodes", "machines", "# machines"),
    "rate": ("samples_per_s", "images_per_s", "images/s", "images/sec", "img/s", "samples/s", "rate", "throughput"),
    "low": ("low", "samples_per_s_low", "ci95_low"),
    "high": ("high", "samples_per_s_high", "ci95_high"),
}  # fmt: skip
#: What a sweep says that has come to its end.
_ENDED = ("target_met", "target_missed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A rate that was measured."""

    accelerators: int
    hosts: int
    """0: a table does not say how many."""
    samples_per_s: float
    ci95: tuple[float, float] | None
    source: str
    workload: str = ""
    """What was trained, in words; ``""``: a table does not say."""
    identity: Mapping[str, Any] = field(default_factory=dict)
    """What has to be the same in rates that are compared, as far as it is known."""
    images: int | None = None
    """Of an epoch."""
    mean_bytes: float | None = None
    """Of a file."""
    idle_frac: float | None = None
    others_wait_frac: float | None = None
    run: Path | None = None
    """The folder, from whose loader other numbers can be predicted."""
    candidate: str | None = None
    separate: bool = False
    """Its hosts share the storage, and exchange nothing: it tells nothing of communication."""
    apart_samples_per_s: float | None = None
    """Of such hosts: what they got in all, none of them waiting for another; ``None``: it is not known."""
    notes: tuple[str, ...] = ()
    """What has to be known of the rate."""


def points_of(paths: Sequence[Path], candidate: str | None) -> tuple[list[Point], list[str]]:
    """What sweeps have measured, and why some tell nothing.

    Args:
        paths: run folders, or folders of arrays.
        candidate: key of the loader; ``recommended`` or ``default``; ``None``: the recommended one.

    Raises:
        UsageError: one is no sweep, or has no such candidate.
    """
    found: list[Point] = []
    left_out: list[str] = []
    for path in paths:
        if os.path.isfile(path):
            raise UsageError(f"{path} is a file, not a run folder", hint=f"of a table of rates: --table {path}")
        if os.path.exists(path / LAUNCH_FILE):
            for task in read_launch(path).tasks:
                folder = path / f"task-{task.number}"
                try:
                    found.append(_point_of(folder, candidate))
                except PipetuneError as error:
                    left_out.append(f"task {task.number} ({task.label or 'the only one'}): {error.message}")
        else:
            found.append(_point_of(path, candidate))
    return found, left_out


def _point_of(path: Path, candidate: str | None) -> Point:
    run = load(path)
    if run.kind != SWEEP:
        raise UsageError(f"{path} is a run of pipetune {run.kind}, not of pipetune sweep",
                         hint="pipetune sweep --ranks N measures N accelerators of a host")  # fmt: skip
    result = sweep_result(run)
    outcome = _chosen(run, result, candidate)
    m = outcome.measurement
    assert m is not None
    ranks = max(1, len(m.ranks)) if result.script is None or result.script.loader is None \
        else result.script.loader.ranks  # fmt: skip
    dataset = result.dataset
    images = dataset.get("found_images") or dataset.get("images")
    hosts = max(1, len(m.hosts))
    alone = result.workload.get("sync") == "none" and ranks > 1
    rate, interval = _in_step(m, alone=alone)
    notes = [f"{path}: {text}" for text in m.warnings] if hosts > 1 else []
    if alone:
        notes.append(f"{path}: measured with --sync none: its rate is that of {ranks} times the slowest rank")
    if candidate in (None, "recommended") and run.result.get("status") not in _ENDED:
        notes.append(f"{path} has not come to its end: its rate is that of the best loader so far")
    return Point(
        accelerators=ranks * hosts, hosts=hosts, samples_per_s=rate, ci95=interval, source=str(path),
        workload=_workload_text(result), identity=_identity(run, result, m), images=images or None,
        mean_bytes=dataset.get("mean_bytes") or None, idle_frac=m.accelerator_idle_frac,
        others_wait_frac=None if alone else m.others_wait_frac if ranks > 1 else 0.0, run=path,
        candidate=outcome.candidate.key, separate=hosts > 1, notes=tuple(notes),
        apart_samples_per_s=sum(share.samples_per_s for share in m.hosts) or None,
    )  # fmt: skip


def _in_step(m: Measurement, *, alone: bool) -> tuple[float, tuple[float, float]]:
    """Rate and interval of all accelerators of one training, in which each step waits for the slowest.

    Args:
        alone: the ranks of a host did not wait for each other when they were measured.
    """
    rate, (low, high), times = m.samples_per_s, m.ci95, 1.0
    if m.hosts:
        slowest = min(m.hosts, key=lambda share: share.samples_per_s)
        rate, (low, high), times = slowest.samples_per_s, slowest.ci95, len(m.hosts)
    if alone and m.ranks:
        rates = [share.samples_per_s for share in m.ranks]
        times *= min(1.0, len(rates) * min(rates) / sum(rates))
    return times * rate, (times * low, times * high)


def _chosen(run: Run, result: SweepResult, candidate: str | None) -> Outcome:
    named = {"recommended": result.recommended, "default": result.baseline}
    wanted = candidate or "recommended"
    found = named.get(wanted) if wanted in named else next(
        (outcome for outcome in result.ranking if outcome.candidate.key == wanted), None
    )  # fmt: skip
    if found is None or found.measurement is None:
        raise UsageError(f"{run.path} has no measured candidate {wanted}",
                         hint=f"pipetune report {run.path} shows what it has")  # fmt: skip
    return found


def _workload_text(result: SweepResult) -> str:
    """``'resnet50 of 224 px on imagenet, EMULATED a100'``, or the command of a script."""
    if result.script is not None:
        return " ".join(_without_ranks(result.script.command))
    work = result.workload
    return (f"{work.get('model')} of {work.get('image_size_px')} px on {result.dataset.get('name')}, "
            f"{result.accelerator.name}")  # fmt: skip


def _identity(run: Run, result: SweepResult, m: Measurement) -> dict[str, Any]:
    """What a run has in common with others whose rates may be compared; ``None``: it is not known."""
    if result.script is not None:
        loader = result.script.loader
        return {"the command": _workload_text(result), "the GPU": None if loader is None else loader.device_name}
    work, accelerator = result.workload, result.accelerator
    # Of a run that was killed it is what the user has asked for; those who measured know what came of it.
    asked_precision = None if work.get("precision") == "auto" else work.get("precision")
    asked = run.info.get("workload") or {}
    return {
        # Of a run that was killed it is what the user has written.
        "the data set": os.path.basename(str(asked.get("dataset") or "").rstrip("/")),
        "the folder of images": result.dataset.get("root"), "the model": work.get("model"),
        "the crop": work.get("image_size_px"), "the batch size": work.get("batch_size"),
        "the precision": m.versions.get("precision", asked_precision), "the page cache": work.get("cache"),
        "the augmentation": work.get("augment", BASIC),
        "the accelerator": (accelerator.kind, accelerator.rate_samples_per_s), "the GPU": m.versions.get("gpu"),
    }  # fmt: skip


#: Options that launchers have for the number of ranks.
_RANK_OPTION = re.compile(r"--(nproc[-_]per[-_]node|nnodes|num[-_]processes|num[-_]machines)(=.*)?")


def _without_ranks(command: Sequence[str]) -> list[str]:
    """A script's command without the number of its ranks."""
    found: list[str] = []
    words = iter(command)
    for word in words:
        option = _RANK_OPTION.fullmatch(word)
        if option is None:
            found.append(word)
        elif option[2] is None:
            next(words, None)
    return found


def check_same(points: Sequence[Point]) -> None:
    """Refuse rates of different trainings.

    Raises:
        UsageError: names what is different.
    """
    known: dict[str, tuple[Any, str]] = {}
    for point in points:
        for name, value in point.identity.items():
            if value in (None, ""):
                continue
            before, source = known.setdefault(name, (value, point.source))
            if before != value:
                raise UsageError(
                    f"{name} differs: {_shown(before)} in {source}, {_shown(value)} in {point.source}",
                    hint="name runs that differ in the number of ranks alone",
                )


def _shown(value: Any) -> str:
    return " at ".join(f"{part:g}/s" if isinstance(part, float) else str(part) for part in value if part is not None) \
        if isinstance(value, tuple) else str(value)  # fmt: skip


def table_points(path: Path) -> list[Point]:
    """The lines of a CSV table, which somebody else has measured.

    Raises:
        UsageError: it is no such table, or a line has no positive numbers.
        PipetuneError: it cannot be read.
    """
    if not os.path.isfile(path):
        raise UsageError(f"--table {path}: there is no such file", hint="write a CSV file with a line of headers: "
                         "accelerators,hosts,samples_per_s")  # fmt: skip
    with os_errors_as("read", path):
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    try:
        columns = {name: _column(name, reader.fieldnames or ()) for name in _COLUMNS}
        lines = [(reader.line_num, line) for line in reader]
    except csv.Error as error:
        raise UsageError(f"{path} is no CSV file: {error}", hint="write accelerators,hosts,samples_per_s") from error
    for name, shown in (("accelerators", "accelerators"), ("rate", "samples_per_s")):
        if columns[name] is None:
            raise UsageError(f"{path} has no column {shown}",
                             hint="its first line names the columns: accelerators,hosts,samples_per_s")  # fmt: skip
    found = [_of_line(path, number, line, columns) for number, line in lines]
    if not found:
        raise UsageError(f"{path} has no lines below its headers", hint="write one for each number of accelerators")
    return found


def _column(name: str, headers: Iterable[str]) -> str | None:
    by_name = {header.strip().lower(): header for header in headers if header}
    return next((by_name[known] for known in _COLUMNS[name] if known in by_name), None)


def _of_line(path: Path, number: int, line: Mapping[str, Any], columns: Mapping[str, str | None]) -> Point:
    def value(name: str, least: float) -> float | None:
        column = columns[name]
        text = "" if column is None else str(line.get(column) or "").strip()
        if not text and name not in ("accelerators", "rate"):
            return None
        try:
            read = float(text)
        except ValueError:
            read = math.nan
        whole = name not in ("accelerators", "hosts") or read == int(read) if math.isfinite(read) else False
        if not least <= read < 1e12 or not whole:
            raise UsageError(f"{path}, line {number}: {column} is {text!r}",
                             hint="write a number above 0" + (", a whole one" if least == 1 else ""))  # fmt: skip
        return read

    count, rate = value("accelerators", 1), value("rate", 1e-9)
    assert count is not None
    assert rate is not None
    low, high = value("low", 0.0), value("high", 1e-9)
    if (low is None) != (high is None) or (low is not None and high is not None and not low <= rate <= high):
        raise UsageError(f"{path}, line {number}: the interval {low} to {high} does not hold the rate {rate:g}",
                         hint="write both ends, low and high, or none")  # fmt: skip
    hosts = int(value("hosts", 1) or 0)
    if hosts > count:
        raise UsageError(f"{path}, line {number}: {hosts} hosts have {count:g} accelerators",
                         hint="hosts are those that the accelerators are in")  # fmt: skip
    return Point(
        accelerators=int(count), hosts=hosts, samples_per_s=rate, source=f"{path}, line {number}",
        ci95=(low, high) if low is not None and high is not None else None,
    )  # fmt: skip


def with_hosts(points: Sequence[Point], per_host: int) -> list[Point]:
    """With the hosts of those whose table does not say how many: as few as have room.

    Raises:
        UsageError: a run has more accelerators in one host than there are.
    """
    for point in points:
        if point.hosts and point.accelerators > point.hosts * per_host:
            raise UsageError(f"--per-host {per_host}: {point.source} has {point.accelerators} accelerators in "
                             f"{point.hosts} host{'s' * (point.hosts != 1)}", hint="omit --per-host")  # fmt: skip
    return [point if point.hosts else replace(point, hosts=math.ceil(point.accelerators / per_host))
            for point in points]  # fmt: skip


def together(points: Sequence[Point]) -> tuple[list[Point], list[str]]:
    """One point for each number of accelerators and hosts, and what was left out.

    Of repeats the mean, with an interval where each has one; of different loaders the fastest. Hosts that exchanged
    nothing do not count where others were measured that did.
    """
    groups: dict[tuple[int, int], list[Point]] = {}
    for point in points:
        groups.setdefault((point.accelerators, point.hosts), []).append(point)
    found, notes = [], []
    for (count, hosts), group in sorted(groups.items()):
        trained = [point for point in group if not point.separate]
        if trained and len(trained) < len(group):
            notes.append(f"{count} accelerators in {hosts} hosts: rates without communication are left out, because "
                         "one with it is known")  # fmt: skip
        by_loader: dict[str | None, list[Point]] = {}
        for point in trained or group:
            by_loader.setdefault(point.candidate, []).append(point)
        loaders = sorted(map(_mean_of, by_loader.values()), key=lambda point: -point.samples_per_s)
        found.append(loaders[0])
        if len(loaders) > 1:
            where = "" if hosts == 1 else f" in {hosts} hosts"
            notes.append(f"{count} accelerators{where}: the fastest of {len(loaders)} loaders is shown, "
                         f"{loaders[0].candidate or loaders[0].source}")  # fmt: skip
    return found, notes


def _mean_of(same: Sequence[Point]) -> Point:
    """Repeats of one loader: their mean, and an interval that holds all of theirs."""
    if len(same) == 1:
        return same[0]
    known = [one.ci95 for one in same if one.ci95 is not None]
    return replace(
        same[-1], samples_per_s=fmean(one.samples_per_s for one in same),
        ci95=(min(low for low, _ in known), max(high for _, high in known)) if len(known) == len(same) else None,
        source=", ".join(dict.fromkeys(one.source for one in same)),
    )  # fmt: skip
