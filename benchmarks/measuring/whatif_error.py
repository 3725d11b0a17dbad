"""How wrong are the answers of ``pipetune whatif``?

Promise: half of its answers are within 4 % where one thing changes up to twofold, 90 % within 12 %; beyond 10 and 25 %.

Loaders are taken apart by ``pipetune explain``, then asked what other workers, cores, accelerators, crops, smaller
images, disks and ranks would bring; each answer is measured on this machine, as ``--check`` does: cores by affinity,
disks by control groups, accelerators emulated, images really made smaller. Predictions allow for a machine that has
become faster or slower since, by a fixed loop beside each measurement, as those of ``--check`` do; what they come to
otherwise stands beside them. Only questions count in which the loader is the limit, at least 100. It also has to hold
that 90 % intervals contain 85 to 95 % of what was measured, and that what sets the pace is named right in 95 % of all:
where two limits are within 10 % of each other, either counts.

Beside it stand the plain minimum of the limits, and the rate per core times the number of cores; and how far two
measurements of the same loader, as it is, are apart: when it was taken apart, and beside the answers. Second part:
candidates of stored grids (``search_grids-*.json``), each predicted from some others of its grid, as a sweep does.

``--quick`` (two loaders) takes about 9 minutes, the full run about 45.
"""

from __future__ import annotations

import json
import math
import random
import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from benchmarks.measuring.whatif_questions import (
    LOADERS,
    QUICK,
    Known,
    bound_by,
    linear_cores,
    plain_minimum,
    questions_about,
)
from pipetune.answering.answer import answer, apply
from pipetune.answering.base import Base, base_of
from pipetune.answering.check import Bench, check_answers, here_of
from pipetune.answering.questions import question_text
from pipetune.answering.targets import Maker
from pipetune.datasets.index import write_index
from pipetune.errors import PipetuneError
from pipetune.explaining.options import ExplainOptions
from pipetune.explaining.run import ExplainObserver, start
from pipetune.machine.host import describe_host
from pipetune.predicting.candidates import predict_candidate
from pipetune.predicting.model import limits_of
from pipetune.records.prediction import EXTRAPOLATED, INTERPOLATED, ONE_FACTOR, Answer, Check, Prediction
from pipetune.records.sweep import Candidate, Outcome, from_dict
from pipetune.registry import BACKENDS, installed_version
from pipetune.runs.load import load
from pipetune.store.folder import create_run

NEAR, FAR = (0.04, 0.12), (0.10, 0.25)
INSIDE, RIGHT, LEAST = (0.85, 0.95), 0.95, 100
#: Two limits are the same where they are within this share.
_SAME = 0.10
SECONDS, BLOCKS, EXPLAINED_BLOCKS = 1.5, 2, 4


@dataclass(frozen=True, slots=True)
class Asked:
    """A question whose answer was measured."""

    loader: str
    text: str
    prediction: Prediction
    rate: float
    plain: float
    linear: float | None
    bound_by: str
    two_limits: bool
    """What would be next is as near as what sets the pace."""
    raw: float
    """Predicted without allowing for the machine's speed (samples/s)."""
    then: float
    """Rate of the loader as it is (samples/s) in what was taken apart."""
    now: float | None
    """The same beside the answers."""
    cpu_then: float | None
    """Speed of the machine, as a fixed loop of decoding has it (MB per CPU second), when the loader was taken apart."""
    cpu_now: float | None
    """The same of the answer's measurements."""

    @property
    def error(self) -> float:
        """By which share the answer is wrong."""
        return abs(math.log(self.prediction.samples_per_s / self.rate))

    @property
    def inside(self) -> bool:
        """The measured rate is in the interval."""
        low, high = self.prediction.interval90
        return low <= self.rate <= high

    @property
    def right(self) -> bool:
        """What sets the pace is named."""
        named = {self.prediction.bound_by, *([self.prediction.next_bound_by] if self.two_limits else [])}
        return self.bound_by in named


def main(options: Namespace) -> bench.Result:
    asked: list[Asked] = []
    with tempfile.TemporaryDirectory(prefix="pipetune-whatif-") as name:
        chosen = [LOADERS[number] for number in QUICK] if options.quick else LOADERS
        for number, known in enumerate(chosen):
            if installed_version(BACKENDS[known.key.partition("-w")[0]]) is None:
                print(f"left out: {known.key}, which is not installed")
                continue
            asked += ask(known, Path(name) / str(number), quick=options.quick)
    rows, numbers, broken = judged(asked, least=0 if options.quick else LEAST)
    print(
        bench.table(
            ["questions", "number", "median", "90 %", "machine not allowed for", "plain minimum", "rate per core"], rows
        )
    )
    again = measured_again(asked)
    print(f"two measurements of the same loader: {median(again):.1%} apart in the median, {max(again):.1%} at most")
    stored = stored_grids()
    print(bench.table(["grid", "predicted", "median", "90 %", "inside"], stored["rows"]))
    for text in broken:
        print(f"does not hold: {text}")
    return bench.Result(not broken, {
        **numbers, "measured_again": again, "broken": broken, "grids": stored["numbers"],
        "questions": [
            {"loader": one.loader, "question": one.text, "kind": one.prediction.kind, "rate": one.rate,
             "predicted": one.prediction.samples_per_s, "raw": one.raw, "interval90": one.prediction.interval90,
             "plain": one.plain, "linear": one.linear, "named": one.prediction.bound_by, "bound_by": one.bound_by,
             "then": one.then, "now": one.now, "cpu_then": one.cpu_then, "cpu_now": one.cpu_now}
            for one in asked
        ],
    })  # fmt: skip


def ask(known: Known, folder: Path, *, quick: bool) -> list[Asked]:
    """Take a loader apart, ask about it, measure the answers."""
    folder.mkdir()
    explained = start(
        ExplainOptions(
            dataset=known.dataset, candidate=known.key, device=known.device, image_size=known.image_size,
            blocks=BLOCKS if quick else EXPLAINED_BLOCKS, seconds=SECONDS, cold=False,
        ),
        folder / "explained", ExplainObserver(),
    )  # fmt: skip
    if explained.explanation is None:
        raise RuntimeError(f"{known.key}: {explained.message}")
    base = base_of(explained.path, None)
    answers = [answer(question, base) for question in questions_about(known, quick=quick)]
    stops: list[KeyboardInterrupt | PipetuneError] = []
    with create_run(folder / "checked", dataset_name="whatif", now=datetime.now()) as made:
        if base.images is not None:
            write_index(str(made.path / "index.json"), base.images)
        measured = Bench(made, ExplainObserver())
        with Maker(base, made.path, SECONDS) as maker:
            checked = check_answers(
                answers, base, maker, measured, here_of(describe_host(), 0), blocks=1 if quick else BLOCKS, seed=0,
                on_stop=stops.append,
            )  # fmt: skip
        if stops:
            raise stops[0]
        cpu_then = _cpu_speed(load(explained.path).outcomes)
        found = [one for answered in checked if (one := _asked(known, answered, base, measured, cpu_then)) is not None]
    errors = [one.error for one in found]
    print(f"{known.key}, {known.dataset}: {len(found)} questions, median error {median(errors):.1%}, "
          f"{sum(one.inside for one in found)} inside", flush=True)  # fmt: skip
    for one in found:
        print(f"    {one.text}: {one.prediction.samples_per_s:.0f} predicted, {one.rate:.0f} measured "
              f"({one.prediction.samples_per_s / one.rate - 1:+.1%}), {one.prediction.bound_by} named, "
              f"{one.bound_by} measured", flush=True)  # fmt: skip
    return found


def predicted_rate(one: Answer, otherwise: float) -> float:
    """What was predicted; of what could not be, ``otherwise``."""
    return otherwise if one.prediction is None else one.prediction.samples_per_s


def _cpu_speed(outcomes: Sequence[Outcome]) -> float | None:
    speeds = [o.measurement.machine_cpu_speed for o in outcomes if o.measurement and o.measurement.machine_cpu_speed]
    return fmean(speeds) if speeds else None


def _asked(known: Known, one: Answer, base: Base, measured: Bench, cpu_then: float | None) -> Asked | None:
    text = question_text(one.question)
    if one.check is None:
        print(f"    not checked: {text}: {one.refused or one.not_checked}", flush=True)
        return None
    check = one.check
    used = [
        outcome.measurement.cores_used for outcome in measured.outcomes
        if outcome.part == question_text(check.question) and outcome.measurement and outcome.measurement.cores_used
    ]  # fmt: skip
    cores = min(check.question.cores or base.cores, base.cores)
    factor = check.machine_factor or 1.0
    here = replace(base, costs=base.costs.faster(factor), measured_samples_per_s=factor * base.measured_samples_per_s)
    truth = bound_by(check.question, check.prediction, check.samples_per_s, max(used, default=None), cores)
    return Asked(
        loader=known.key, text=text, prediction=check.prediction, rate=check.samples_per_s,
        plain=plain_minimum(check.question, here), linear=linear_cores(check.question, here), bound_by=truth,
        two_limits=_two_limits(check.prediction, here, check),
        raw=predicted_rate(answer(check.question, base), check.samples_per_s), then=base.measured_samples_per_s,
        now=check.base_samples_per_s, cpu_then=cpu_then,
        cpu_now=_cpu_speed([o for o in measured.outcomes if o.part == question_text(check.question)]),
    )  # fmt: skip


def _two_limits(prediction: Prediction, base: Base, check: Check) -> bool:
    changed = apply(check.question, base)
    limits = limits_of(changed.costs, changed.setting)
    if prediction.next_bound_by is None:
        return False
    ratio = limits[prediction.next_bound_by] / limits[prediction.bound_by]
    return 1 / (1 + _SAME) <= ratio <= 1 + _SAME


def judged(asked: Sequence[Asked], *, least: int) -> tuple[list[list[str]], dict[str, Any], list[str]]:
    """Rows of the table, numbers, and what does not hold."""
    fed = [one for one in asked if one.bound_by == "accelerator"]
    # An emulated accelerator that sets the pace does so at its own rate, whatever the model says of the loader.
    limited = [one for one in asked if one.bound_by != "accelerator"]
    groups = {
        "one thing, up to twice": [one for one in limited if one.prediction.kind in (ONE_FACTOR, INTERPOLATED)],
        "beyond": [one for one in limited if one.prediction.kind == EXTRAPOLATED],
    }
    rows, numbers, broken = [], {}, []
    for (name, group), (middle, most) in zip(groups.items(), (NEAR, FAR), strict=True):
        if not group:
            continue
        errors = sorted(one.error for one in group)
        found = median(errors), quantile90(errors)
        raw = [abs(math.log(one.raw / one.rate)) for one in group]
        plain = [abs(math.log(one.plain / one.rate)) for one in group]
        linear = [abs(math.log(one.linear / one.rate)) for one in group if one.linear]
        rows.append([
            name, str(len(group)), f"{found[0]:.1%}", f"{found[1]:.1%}",
            f"{median(raw):.1%}, {quantile90(raw):.1%}", f"{median(plain):.1%}, {quantile90(plain):.1%}",
            f"{median(linear):.1%}, {quantile90(linear):.1%}" if linear else "-",
        ])  # fmt: skip
        numbers[name] = {"count": len(group), "median": found[0], "quantile90": found[1]}
        if found[0] > middle or found[1] > most:
            broken.append(f"{name}: {found[0]:.1%} in the median, 90 % within {found[1]:.1%}")
    inside = sum(one.inside for one in limited) / max(1, len(limited))
    right = sum(one.right for one in asked) / max(1, len(asked))
    print(
        f"{len(limited)} questions that the loader limits, {inside:.0%} inside of their intervals; {len(fed)} that the "
        f"accelerator does; what sets the pace is named right in {right:.0%} of all"
    )
    if len(limited) < least:
        broken.append(f"only {len(limited)} questions that the loader limits have a measured answer")
    if least and not INSIDE[0] <= inside <= INSIDE[1]:
        broken.append(f"{inside:.0%} are inside of their intervals")
    if least and right < RIGHT:
        broken.append(f"what sets the pace is named right in {right:.0%}")
    return rows, {**numbers, "limited": len(limited), "fed": len(fed), "inside": inside, "right": right}, broken


def measured_again(asked: Sequence[Asked]) -> list[float]:
    """By which share each loader, as it is, was faster or slower beside the answers than when it was taken apart."""
    pairs = {one.loader: (one.then, one.now) for one in asked if one.now is not None}
    return [abs(math.log(now / then)) for then, now in pairs.values()]


def quantile90(values: Sequence[float]) -> float:
    """The 90 % quantile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(0.9 * len(ordered)) - 1)]


def stored_grids() -> dict[str, Any]:
    """Candidates of stored grids, each predicted from others that come before it in a random order."""
    rows, numbers = [], {}
    for file in sorted(bench.RESULTS.glob("search_grids-*.json")):
        for name, grid in json.loads(file.read_text())["grids"].items():
            errors, inside = grid_errors(grid)
            rows.append([name, str(len(errors)), f"{median(errors):.1%}", f"{quantile90(errors):.1%}", f"{inside:.0%}"])
            numbers[name] = {"count": len(errors), "median": median(errors), "quantile90": quantile90(errors),
                             "inside": inside}  # fmt: skip
    return {"rows": rows, "numbers": numbers}


def grid_errors(grid: dict[str, Any], seed: int = 0) -> tuple[list[float], float]:
    """Errors of the predictions of a grid's candidates that the loader limits, and the share inside of intervals."""
    outcomes = [stored_outcome(row, grid["ceiling_samples_per_s"]) for row in grid["candidates"]]
    order = random.Random(seed).sample(outcomes, len(outcomes))
    errors, inside = [], []
    done: list[Outcome] = []
    for outcome in order:
        prediction = predict_candidate(outcome.candidate, done, cores=float(grid["cores"]))
        done.append(replace(outcome, predicted=prediction))  # so the run knows its own errors
        m = outcome.measurement
        if prediction is None or m is None or m.samples_per_s > 0.93 * grid["ceiling_samples_per_s"]:
            continue
        errors.append(abs(math.log(prediction.samples_per_s / m.samples_per_s)))
        inside.append(prediction.interval90[0] <= m.samples_per_s <= prediction.interval90[1])
    return errors, sum(inside) / len(inside)


def stored_outcome(row: dict[str, Any], ceiling: float) -> Outcome:
    """A candidate of a stored grid as an outcome."""
    from tests.fakes import measurement

    rate, cores = median(row["samples_per_s"]), median(row["cores_used"])
    return Outcome(
        candidate=from_dict(Candidate, row["candidate"]), role="candidate", attempt=1, started_unix_s=0.0, wall_s=1.0,
        measurement=measurement(samples_per_s=rate, goodput=min(1.0, rate / ceiling), cores_used=cores,
                                cpu_s_per_1000_samples=1000 * cores / rate),
    )  # fmt: skip


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
