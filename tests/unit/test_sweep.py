from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pipetune import search, sweep
from pipetune.errors import PipetuneError, UsageError
from pipetune.measure.harness import Live, Setting
from pipetune.measure.summary import Recording
from pipetune.records import Candidate, Failure, Goal, Outcome
from pipetune.search import Space
from pipetune.sweep import Event, Plan
from tests.fakes import outcome
from tests.photo_set import workload

SPACE = Space(backends=("pillow", "opencv"), workers=(0, 1, 2), prefetch=(2,), batch_size=64, pin_memory=False)
PLAN = Plan(
    space=SPACE,
    goal=Goal(target=0.9, metric="goodput"),
    setting=Setting(workload=workload(), paths=(), cores=frozenset({0})),
    seed=0,
)


class Bench:
    """Stands in for the harness: every measurement takes ten seconds on its own clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **by_key: Any) -> None:
        self.now = 0.0
        self.asked: list[tuple[str, str, int, float | None, float]] = []
        self.by_key: dict[str, Callable[[int], Outcome]] = by_key
        monkeypatch.setattr(sweep, "measure", self.measure)
        monkeypatch.setattr(sweep.time, "monotonic", lambda: self.now)

    def measure(
        self, candidate: Candidate, role: str, setting: Setting, *, attempt: int, ceiling_samples_per_s: float | None,
        run_noise: float, on_live: Callable[[Live], None],
    ) -> tuple[Outcome, Recording]:  # fmt: skip
        self.now += 10.0
        self.asked.append((candidate.key, role, attempt, ceiling_samples_per_s, setting.workload.seconds))
        on_live(Live(phase="timed"))
        key = "ceiling" if role == "ceiling" else candidate.key
        make = self.by_key.get(key)
        got = make(attempt) if make else outcome(rate=1250.0 if role == "ceiling" else 500.0)
        return replace(got, candidate=candidate, role=role, attempt=attempt), Recording()


def run(plan: Plan = PLAN) -> tuple[list[Outcome], list[Outcome], list[Event]]:
    saved: list[Outcome] = []
    events: list[Event] = []
    yielded = list(sweep.sweep(plan, lambda out, _: saved.append(out), events.append))
    return yielded, saved, events


def test_the_ceiling_comes_first_and_everything_is_saved_before_it_is_yielded(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    saved: list[Outcome] = []
    for number, got in enumerate(sweep.sweep(PLAN, lambda out, _: saved.append(out), lambda _: None), start=1):
        assert saved[-1] is got
        assert len(saved) == number
    assert saved[0].role == "ceiling"
    assert bench.asked[0][3] is None
    assert {ceiling for *_, ceiling, _ in bench.asked[1:]} == {1250.0}
    assert sum(out.role == "baseline" for out in saved) == 1


def test_an_emulated_ceiling_is_measured_only_shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    long = replace(PLAN, setting=replace(PLAN.setting, workload=workload(seconds=30.0)))
    run(long)
    assert bench.asked[0][4] == 1.5
    assert bench.asked[1][4] == 30.0


def test_a_drifted_candidate_is_repeated_once_and_then_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    slowed = lambda _: outcome(rate=300.0, machine_speed_after=120.0)  # noqa: E731
    Bench(monkeypatch, **{"opencv-w1-p2-b64": slowed})
    _, saved, _ = run()
    attempts = [out.attempt for out in saved if out.candidate.key == "opencv-w1-p2-b64"]
    assert attempts == [1, 2]


def test_a_candidate_off_the_usual_speed_of_the_sweep_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def moment(attempt: int) -> Outcome:
        speed = 100.0 if attempt == 1 else 200.0
        return outcome(rate=500.0, machine_speed_before=speed, machine_speed_after=speed)

    Bench(monkeypatch, **{"pillow-w2-p2-b64": moment})
    _, saved, _ = run()
    assert [out.attempt for out in saved if out.candidate.key == "pillow-w2-p2-b64"] == [1, 2]


def test_the_budget_ends_the_sweep_but_never_without_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(6):
        Bench(monkeypatch)
        _, saved, _ = run(replace(PLAN, budget_s=25.0, seed=seed))
        assert any(out.candidate == search.baseline(SPACE) and out.role == "baseline" for out in saved)
        assert len(saved) <= 4


def test_without_a_ceiling_there_is_no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, error in (("error", PipetuneError), ("usage", UsageError)):
        broken = Failure(kind=kind, phase="open", message="no such model", hint="try another")
        Bench(monkeypatch, ceiling=lambda _, failure=broken: outcome(failure=failure))
        with pytest.raises(error, match="no such model; try another"):
            run()


def test_a_ceiling_that_was_not_steady_is_looked_at_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    first_shaky = lambda attempt: outcome(rate=1000.0 if attempt == 1 else 1250.0, steady=attempt > 1)  # noqa: E731
    bench = Bench(monkeypatch, ceiling=first_shaky)
    yielded, saved, _ = run()
    assert [out.role for out in saved[:2]] == ["ceiling", "ceiling"]
    assert yielded[0].attempt == 2
    assert bench.asked[2][3] == 1250.0


def test_the_grid_measures_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    Bench(monkeypatch)
    _, saved, _ = run(replace(PLAN, grid=True))
    keys = [out.candidate.key for out in saved[1:]]
    assert sorted(keys) == sorted(c.key for c in SPACE.grid())


def test_events_name_the_running_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    Bench(monkeypatch)
    _, saved, events = run()
    assert [event.candidate for event in events] == [out.candidate for out in saved]
    assert events[0].role == "ceiling"
