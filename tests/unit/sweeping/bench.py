"""A sweep without processes: every measurement takes ten seconds, or another time, on its own clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipetune.candidates.space import Space
from pipetune.measure.harness import Conditions, Live
from pipetune.measure.machine_speed import Speed
from pipetune.measure.phases import Question
from pipetune.measure.recording import Recording
from pipetune.records.sweep import AcceleratorSpec, Candidate, Goal, Measurement, Outcome
from pipetune.sweeping import loop
from pipetune.sweeping.observer import Event
from pipetune.sweeping.sweep_plan import Plan
from tests.fakes import outcome
from tests.photo_set import workload

SPACE = Space(backends=("pillow", "opencv"), workers=(0, 1, 2), prefetch=(2,), batch_size=64, pin_memory=False)
REAL = AcceleratorSpec(kind="cuda", name="GPU", device_index=0)
PLAN = Plan(
    space=SPACE,
    goal=Goal(target=0.9, metric="goodput"),
    conditions=Conditions(workload=workload(), paths=(), cores=frozenset({0})),
    seed=0,
)


class Bench:
    """Stands in for the harness: every measurement takes :attr:`wall_s` on its own clock."""

    def __init__(self, find_bad_images: Callable[..., dict[int, str]] | None = None, **by_key: Any) -> None:
        self.now = 0.0
        self.asked: list[tuple[str, str, int, float | None, float]] = []
        self.questions: list[Question | None] = []
        self.noises: list[tuple[float, float | None]] = []
        self.files: list[list[str]] = []
        self.forked: list[bool] = []
        self.speeds_before: list[Speed | None] = []
        self.wall_s = 10.0
        self.can_fork = False
        """A candidate that needs no new process gets a fork though there are no fork servers, as in a script."""
        self.between_s = 0.0
        """Time from the end of one measurement to the beginning of the next."""
        self.by_key: dict[str, Callable[[int], Outcome]] = by_key
        self.find_bad_images = find_bad_images or (lambda *_, **__: {})

    def sweep(
        self, plan: Plan, save: Any, on_event: Any = lambda _: None, known: Sequence[Outcome] = ()
    ) -> Iterator[Outcome]:
        return loop.sweep(
            plan, save, on_event, known,
            measure=self.measure, find_bad_images=self.find_bad_images, clock=self.clock,
        )  # fmt: skip

    def clock(self) -> float:
        """Seconds; each look takes a while."""
        self.now += self.between_s
        return self.now

    def measure(
        self, candidate: Candidate, role: str, conditions: Conditions, *, attempt: int, ceiling: Measurement | None,
        run_noise: float, question: Question | None, on_live: Callable[[Live], None],
    ) -> tuple[Outcome, Recording]:  # fmt: skip
        self.now += self.wall_s
        self.files.append([Path(path).stem for path in conditions.paths])
        self.questions.append(question)
        self.noises.append((run_noise, conditions.device_noise))
        self.asked.append(
            (candidate.key, role, attempt, ceiling and ceiling.samples_per_s, conditions.workload.seconds)
        )
        forked = (self.can_fork or conditions.servers is not None) and not conditions.new_process
        self.forked.append(forked)
        self.speeds_before.append(conditions.speed_before)
        on_live(Live(phase="timed"))
        key = "ceiling" if role == "ceiling" else candidate.key
        make = self.by_key.get(key)
        got = make(attempt) if make else outcome(rate=1250.0 if role == "ceiling" else 500.0)
        got = replace(got, candidate=candidate, role=role, attempt=attempt, forked=forked, wall_s=self.wall_s)
        return got, Recording(speed_after=Speed(self.now, self.now))


def run(bench: Bench | None = None, plan: Plan = PLAN) -> tuple[list[Outcome], list[Outcome], list[Event]]:
    saved: list[Outcome] = []
    events: list[Event] = []
    yielded = list((bench or Bench()).sweep(plan, lambda out, _: saved.append(out), events.append))
    return yielded, saved, events
