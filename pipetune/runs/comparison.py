"""Two runs compared: configuration, machine, and which rates differ. Pure.

Two values differ where each of them lies outside the other's 95 % interval, and where it is larger
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
from pipetune.records.redact import redact_words
from pipetune.records.sweep import Measurement
from pipetune.runs.earlier import options_today
from pipetune.runs.run import BATCH_SIZE, EXPLAIN, SWEEP, WATCH, WHATIF, Run
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
    "does_not_fit",
)
#: What of a tuned script was asked for; the rest of it was measured.
_OF_SCRIPT = ("command", "cwd", "loader", "option", "origins")
#: What decides how much work a sample is, for the loader or for the accelerator.
_WORK = (
    "dataset", "dataset_fingerprint", "model", "image_size", "batch_size", "precision", "compile", "device", "cache",
    "accelerator", "ranks", "sync", "augment",
)  # fmt: skip
#: The accelerator's own rate, among those of the candidates.
_CEILING = "ceiling"
#: What of a machine changes by itself.
_FLEETING = ("memory_available_bytes", "shm_free_bytes")
#: Derived from the options, which are compared already.
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
    """Of sweeps: the key of the candidate that each of them recommends."""
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
        """Changes of the configuration that change the work per sample, so that rates say nothing about the loader."""
        return tuple(change.name for change in self.changes if change.name in _WORK)


def compare(before: Run, after: Run) -> Comparison:
    """Compare two sweeps, two watches, two observed loops or two explanations.

    Raises:
        UsageError: they are not of one kind.
    """
    if before.kind in (WHATIF, BATCH_SIZE):
        what = "predictions" if before.kind == WHATIF else "batch sizes"
        raise UsageError(f"{before.path} holds {what}", hint="compare two sweeps, watches, loops or explanations")
    if before.kind != after.kind:
        raise UsageError(
            f"{before.path} is a {before.kind} and {after.path} a {after.kind}", hint="compare two of one kind"
        )
    values = {SWEEP: _rates, WATCH: _losses, EXPLAIN: _part_rates}.get(before.kind, _loop_rate)
    first, second = values(before), values(after)
    common = [name for name in first if name in second]
    return Comparison(
        changes=tuple(_changes(before.info, after.info)),
        differences=tuple(_difference(name, first[name], second[name]) for name in common),
        only_before=tuple(name for name in first if name not in second),
        only_after=tuple(name for name in second if name not in first),
        recommended=(before.recommended_key, after.recommended_key),
        unit="lost share" if before.kind == WATCH else "samples/s",
        failed_after=tuple(
            key
            for key, outcome in search.latest(after.outcomes).items()
            if outcome.failure and key in first and before.kind == SWEEP
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Value:
    """A number of one run, with its 95 % interval."""

    value: float
    ci95: tuple[float, float]
    measurement: Measurement | None = None
    """What it is the rate of."""
    more_is_better: bool = True


def _rates(run: Run) -> dict[str, _Value]:
    """The rate of each measured candidate; the accelerator's own rate first."""
    ceilings = [outcome.measurement for outcome in run.outcomes if outcome.is_ceiling and outcome.measurement]
    found = {_CEILING: ceilings[-1]} if ceilings else {}
    newest = search.latest(run.outcomes).values()
    found |= {outcome.candidate.key: outcome.measurement for outcome in newest if outcome.measurement}
    return {name: _Value(value=m.samples_per_s, ci95=m.ci95, measurement=m) for name, m in found.items()}


def _loop_rate(run: Run) -> dict[str, _Value]:
    row = run.frame().iloc[0]
    rate, low, high = (float(row[name]) for name in ("samples_per_s", "samples_per_s_low", "samples_per_s_high"))
    return {} if isnan(rate) or isnan(low) else {"loop": _Value(value=rate, ci95=(low, high))}


def _part_rates(run: Run) -> dict[str, _Value]:
    """The rate of each part that an explanation has measured, its newest block."""
    return {
        outcome.part: _Value(value=outcome.measurement.samples_per_s, ci95=outcome.measurement.ci95)
        for outcome in run.outcomes
        if outcome.part is not None and outcome.measurement is not None
    }


def _losses(run: Run) -> dict[str, _Value]:
    return {
        "job" if verdict.rank is None else f"rank{verdict.rank}": _Value(
            value=verdict.lost_frac, ci95=verdict.lost_ci95, more_is_better=False
        )
        # The worst comes first; of processes without a rank, which share a name, that one is compared.
        for verdict in reversed(run.verdicts)
        if verdict.lost_frac is not None and verdict.lost_ci95 is not None
    }


def _difference(name: str, before: _Value, after: _Value) -> Difference:
    ratio, ratio_ci95 = None, None
    if before.more_is_better and before.value:
        ratio = after.value / before.value
    if ratio is not None and before.measurement is not None:
        ratio_ci95 = ratio_interval(after.value, after.ci95, before.measurement)
    outside = differ(before.value, before.ci95, after.value, after.ci95)
    return Difference(
        name=name, before=before.value, before_ci95=before.ci95, after=after.value, after_ci95=after.ci95, ratio=ratio,
        ratio_ci95=ratio_ci95, outside=outside,
        better=((after.value > before.value) == before.more_is_better) if outside else None,
    )  # fmt: skip


def _without_secrets(stored: Mapping[str, Any]) -> dict[str, Any]:
    """With command lines as they are shown: ``command`` of a script's options, or of what is known of the script."""
    kept = dict(stored)
    if isinstance(kept.get("command"), (list, tuple)):
        kept["command"] = redact_words(map(str, kept["command"]))
    if isinstance(kept.get("job_command"), (list, tuple)):
        kept["job_command"] = redact_words(map(str, kept["job_command"]))
    if isinstance(kept.get("script"), dict):
        kept["script"] = _without_secrets(kept["script"])
    return kept


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
    asked = _without_secrets({
        **_options(info.get("options") or {}),
        **{name: value for name, value in info.items() if name not in left_out},
    })  # fmt: skip
    script = info.get("script")
    if isinstance(script, dict):
        asked |= _without_secrets({"script": {name: script[name] for name in _OF_SCRIPT if name in script}})
    workload = info.get("workload")
    if isinstance(workload, dict) and "ranks" in workload:
        asked["ranks"] = workload["ranks"]  # what "auto" came to
    # ``device`` may be the same word, "auto", for a GPU and for the emulated one that takes its place.
    accelerator = workload.get("accelerator") if isinstance(workload, dict) else None
    if isinstance(accelerator, dict):
        rate = accelerator.get("rate_samples_per_s")
        asked["accelerator"] = f"{accelerator.get('kind')} {accelerator.get('name')}" + (
            f", {rate:g}/s" if rate else ""
        )
    return asked


def _options(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options as values, so that an earlier version's run is not another one for how it wrote them."""
    try:
        # An option that was not used says nothing: an earlier version may not have known it.
        today = {name: _as_tuples(value) for name, value in options_today(stored).items()}
        unused = {"command": ()}
        return {
            name: value
            for name, value in today.items()
            if value is not None and value is not False and (name not in unused or value != unused[name])
        }
    except (UsageError, ValueError, TypeError):  # damaged: compared as they are
        return stored


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, (list, tuple)) else value


def _machine(info: Mapping[str, Any]) -> dict[str, Any]:
    host = {name: value for name, value in (info.get("host") or {}).items() if name not in _FLEETING}
    versions = host.pop("versions", None) or {}
    gpus = [gpu.get("name") if isinstance(gpu, dict) else gpu for gpu in info.get("gpus") or ()]
    return {**host, **{str(name): version for name, version in versions.items()}, "gpus": gpus}
