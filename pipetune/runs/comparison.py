"""Two runs beside each other: what was asked otherwise, what ran elsewhere, which rates differ. Pure.

A difference is called one where each of the two values lies outside the other's 95 % interval, and where it is larger
than what both intervals together allow (the root of the sum of their squares, which is the 95 % interval of the
difference of two independent estimates). Without the second condition two equal candidates would differ in one of six
comparisons. The ratio has an interval of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

from pipetune import search
from pipetune.errors import UsageError
from pipetune.records.sweep import Measurement
from pipetune.runs.run import SWEEP, WATCH, Run
from pipetune.stats.intervals import differ, ratio_interval

#: What of ``run.json`` says how a run came about and not what was asked.
_NOT_ASKED = (
    "started",
    "command",
    "cwd",
    "resumed",
    "notes",
    "schema",
    "kind",
    "unix_s",
    "monotonic_ns",
    "limit_bytes",
)
#: What decides how much work a sample is, for the loader or for the accelerator.
_WORK = (
    "dataset", "dataset_fingerprint", "model", "image_size", "batch_size", "precision", "device", "cache",
    "accelerator",
)  # fmt: skip
#: The accelerator's own rate, among those of the candidates.
_CEILING = "ceiling"
#: What of a machine changes by itself.
_FLEETING = ("memory_available_bytes", "shm_free_bytes")
#: Written twice: as options, and as what came of them.
_DERIVED = ("workload", "space", "goal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that is not the same."""

    part: str
    """``configuration``, ``machine`` or ``pipetune``."""
    name: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One number that both runs have: the rate of a candidate (samples/s), or the lost share of a rank."""

    name: str
    before: float
    before_ci95: tuple[float, float]
    after: float
    after_ci95: tuple[float, float]
    ratio: float | None
    """After / before; of rates only."""
    ratio_ci95: tuple[float, float] | None
    outside: bool
    """Each value lies outside the other's interval, and the difference is beyond what both together allow."""
    better: bool | None
    """Where they differ: whether the second run does better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What :func:`compare` found."""

    changes: tuple[Change, ...]
    differences: tuple[Difference, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    recommended: tuple[str | None, str | None]
    """Of sweeps: what each of them recommends."""
    unit: str
    """Of the differences: ``samples/s`` or ``lost share``."""
    failed_after: tuple[str, ...] = ()
    """Candidates that the first run measured and that failed in the second."""

    @property
    def worse(self) -> tuple[str, ...]:
        """Why the second run is worse: what differs for the worse, failed only there, or cannot be compared at all."""
        slower = tuple(f"{difference.name} is worse" for difference in self.differences if difference.better is False)
        failed = tuple(f"{name} failed in the second run" for name in self.failed_after)
        common = any(difference.name != _CEILING for difference in self.differences)
        return slower + failed or (() if common else ("the runs have no measurement of a loader in common",))

    @property
    def other_work(self) -> tuple[str, ...]:
        """What was asked otherwise and makes the work another one, so that rates say nothing about the loader."""
        return tuple(change.name for change in self.changes if change.name in _WORK)


def compare(before: Run, after: Run) -> Comparison:
    """Set two sweeps, or two watches, beside each other.

    Raises:
        UsageError: they are not of one kind.
    """
    if before.kind != after.kind:
        raise UsageError(
            f"{before.path} is a {before.kind} and {after.path} a {after.kind}", hint="compare two of one kind"
        )
    values = {SWEEP: _rates, WATCH: _losses}.get(before.kind, _loop_rate)
    first, second = values(before), values(after)
    common = [name for name in first if name in second]
    return Comparison(
        changes=tuple(_changes(before.info, after.info)),
        differences=tuple(_difference(name, first[name], second[name]) for name in common),
        only_before=tuple(name for name in first if name not in second),
        only_after=tuple(name for name in second if name not in first),
        recommended=(before.recommended, after.recommended),
        unit="lost share" if before.kind == WATCH else "samples/s",
        failed_after=tuple(
            key for key, outcome in search.latest(after.outcomes).items() if outcome.failure and key in first
        ),
    )


def _rates(run: Run) -> dict[str, Any]:
    """What was measured of each candidate; the accelerator's own rate first."""
    ceilings = [outcome.measurement for outcome in run.outcomes if outcome.role == "ceiling" and outcome.measurement]
    newest = search.latest(run.outcomes).values()
    return {
        **({_CEILING: ceilings[-1]} if ceilings else {}),
        **{outcome.candidate.key: outcome.measurement for outcome in newest if outcome.measurement},
    }


def _loop_rate(run: Run) -> dict[str, Any]:
    row = run.frame().iloc[0]
    rate, low, high = (float(row[name]) for name in ("samples_per_s", "samples_per_s_low", "samples_per_s_high"))
    return {} if isnan(rate) or isnan(low) else {"loop": (rate, (low, high))}


def _losses(run: Run) -> dict[str, Any]:
    verdicts = run.result.get("verdicts") or (run.windows[-1]["verdicts"] if run.windows else [])
    return {
        "job" if verdict.get("rank") is None else f"rank{verdict['rank']}": verdict
        for verdict in verdicts
        if verdict.get("lost_frac") is not None and verdict.get("lost_ci95")
    }


def _difference(name: str, before: Any, after: Any) -> Difference:
    ratio, ratio_ci95, more_is_better = None, None, True
    if isinstance(before, Measurement):
        a, b = (before.samples_per_s, before.ci95), (after.samples_per_s, after.ci95)
        ratio = after.samples_per_s / before.samples_per_s if before.samples_per_s else None
        ratio_ci95 = None if ratio is None else ratio_interval(after.samples_per_s, after.ci95, before)
    elif isinstance(before, tuple):
        a, b = before, after
        ratio = b[0] / a[0] if a[0] else None
    else:
        a, b = (before["lost_frac"], tuple(before["lost_ci95"])), (after["lost_frac"], tuple(after["lost_ci95"]))
        more_is_better = False
    outside = differ(*a, *b)
    return Difference(
        name=name, before=a[0], before_ci95=a[1], after=b[0], after_ci95=b[1], ratio=ratio, ratio_ci95=ratio_ci95,
        outside=outside, better=((b[0] > a[0]) == more_is_better) if outside else None,
    )  # fmt: skip


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    found = []
    for part, first, second in (
        ("configuration", _asked(before), _asked(after)),
        ("machine", _machine(before), _machine(after)),
        ("pipetune", {"version": before.get("pipetune")}, {"version": after.get("pipetune")}),
    ):
        for name in dict.fromkeys([*first, *second]):
            if first.get(name) != second.get(name):
                found.append(Change(part=part, name=name, before=first.get(name), after=second.get(name)))
    return found


def _asked(info: Mapping[str, Any]) -> dict[str, Any]:
    left_out = (*_NOT_ASKED, *_DERIVED, "host", "gpus", "pipetune", "options", "pid", "title", "found")
    asked = {**(info.get("options") or {}), **{name: value for name, value in info.items() if name not in left_out}}
    workload = info.get("workload")
    # ``device`` may be the same word, "auto", for a GPU and for the emulated one that takes its place.
    accelerator = workload.get("accelerator") if isinstance(workload, dict) else None
    if isinstance(accelerator, dict):
        rate = accelerator.get("rate_samples_per_s")
        asked["accelerator"] = f"{accelerator.get('kind')} {accelerator.get('name')}" + (
            f", {rate:g}/s" if rate else ""
        )
    return asked


def _machine(info: Mapping[str, Any]) -> dict[str, Any]:
    host = {name: value for name, value in (info.get("host") or {}).items() if name not in _FLEETING}
    versions = host.pop("versions", None) or {}
    gpus = [gpu.get("name") if isinstance(gpu, dict) else gpu for gpu in info.get("gpus") or ()]
    return {**host, **{str(name): version for name, version in versions.items()}, "gpus": gpus}
