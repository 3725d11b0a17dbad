"""How wrong are the answers of ``pipetune whatif``?

Promise: half of its answers are within 4 % where one thing changes up to twofold, 90 % within 12 %; beyond 10 and 25 %.

Loaders are taken apart by ``pipetune explain``, then asked what other workers, cores, accelerators, crops, smaller
images, disks and ranks would bring; each answer is measured on this machine, as ``--check`` does: cores by affinity,
disks by control groups, accelerators emulated, images really made smaller. Predictions allow for a machine that has
become faster or slower since, by a fixed loop beside each measurement and by the loader as it is, measured after every
fifth, as those of ``--check`` do; what they come to otherwise, and with the loop alone, stands beside them. Only
questions count in which the loader is the limit, at least 100. It also has to hold that 90 % intervals contain 85 to
95 % of what was measured, and that what sets the pace is named right in 95 % of all: where two limits are within 10 %
of each other, either counts.

Beside it stand the plain minimum of the limits, and the rate per core times the number of cores; and how far two
measurements of the same loader, as it is, are apart: when it was taken apart, and beside the answers. Second part:
candidates of stored grids (``search_grids-*.json``), each predicted from some others of its grid, as a sweep does.

``--quick`` (two loaders) takes about 9 minutes, the full run about 40.
"""

from __future__ import annotations

import math
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
from benchmarks.measuring.whatif_grids import quantile90, stored_grids
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
from pipetune.predicting.model import limits_of
from pipetune.records.prediction import EXTRAPOLATED, INTERPOLATED, ONE_FACTOR, Answer, Check, Prediction
from pipetune.records.sweep import Outcome
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
    by_loop: float
    """Predicted allowing for it by the fixed loop alone (samples/s)."""
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
    measured: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="pipetune-whatif-") as name:
        chosen = [LOADERS[number] for number in QUICK] if options.quick else LOADERS
        for number, known in enumerate(chosen):
            if installed_version(BACKENDS[known.key.partition("-w")[0]]) is None:
                print(f"left out: {known.key}, which is not installed")
                continue
            found, measured[known.key] = ask(known, Path(name) / str(number), quick=options.quick)
            asked += found
    rows, numbers, broken = judged(asked, least=0 if options.quick else LEAST)
    print(
        bench.table(
            [
                "questions",
                "number",
                "median",
                "90 %",
                "the loop alone",
                "machine not allowed for",
                "plain minimum",
                "rate per core",
            ],
            rows,
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
        "measured": measured,
        "questions": [
            {"loader": one.loader, "question": one.text, "kind": one.prediction.kind, "rate": one.rate,
             "predicted": one.prediction.samples_per_s, "raw": one.raw, "interval90": one.prediction.interval90,
             "by_loop": one.by_loop, "plain": one.plain, "linear": one.linear, "named": one.prediction.bound_by,
             "bound_by": one.bound_by,
             "then": one.then, "now": one.now, "cpu_then": one.cpu_then, "cpu_now": one.cpu_now}
            for one in asked
        ],
    })  # fmt: skip


def ask(known: Known, folder: Path, *, quick: bool) -> tuple[list[Asked], list[dict[str, Any]]]:
    """Take a loader apart, ask about it, measure the answers; returns them, and every measurement in its order."""
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
    return found, [
        {"part": o.part, "block": o.block, "started_unix_s": o.started_unix_s, "rate": o.measurement.samples_per_s,
         "cpu": o.measurement.machine_cpu_speed}
        for o in measured.outcomes if o.measurement
    ]  # fmt: skip


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
        raw=predicted_rate(answer(check.question, base), check.samples_per_s),
        by_loop=_by_loop(check, base, [o for o in measured.outcomes if o.part == question_text(check.question)]),
        then=base.measured_samples_per_s,
        now=check.base_samples_per_s, cpu_then=cpu_then,
        cpu_now=_cpu_speed([o for o in measured.outcomes if o.part == question_text(check.question)]),
    )  # fmt: skip


def _by_loop(check: Check, base: Base, outcomes: Sequence[Outcome]) -> float:
    speed = _cpu_speed(outcomes)
    here = (
        base if speed is None or not base.cpu_speed else replace(base, costs=base.costs.faster(speed / base.cpu_speed))
    )
    return predicted_rate(answer(check.question, here), check.samples_per_s)


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
        loop = [abs(math.log(one.by_loop / one.rate)) for one in group]
        plain = [abs(math.log(one.plain / one.rate)) for one in group]
        linear = [abs(math.log(one.linear / one.rate)) for one in group if one.linear]
        rows.append([
            name, str(len(group)), f"{found[0]:.1%}", f"{found[1]:.1%}",
            f"{median(loop):.1%}, {quantile90(loop):.1%}", f"{median(raw):.1%}, {quantile90(raw):.1%}",
            f"{median(plain):.1%}, {quantile90(plain):.1%}",
            f"{median(linear):.1%}, {quantile90(linear):.1%}" if linear else "-",
        ])  # fmt: skip
        numbers[name] = {"count": len(group), "median": found[0], "quantile90": found[1],
                         "by_loop": [median(loop), quantile90(loop)]}  # fmt: skip
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


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
