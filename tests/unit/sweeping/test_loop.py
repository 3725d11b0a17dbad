from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pipetune import search
from pipetune.errors import PipetuneError, UsageError
from pipetune.measure.fork_servers import ForkServers
from pipetune.measure.recording import Recording
from pipetune.records.set_up import SetUp
from pipetune.records.sweep import THOROUGH, Failure, Outcome
from pipetune.search.effort import EFFORTS
from pipetune.sweeping.sweep_plan import Plan
from tests.fakes import outcome
from tests.photo_set import workload
from tests.unit.sweeping.bench import PLAN, SPACE, Bench, run


def test_the_ceiling_comes_first_and_everything_is_saved_before_it_is_yielded() -> None:
    bench = Bench()
    saved: list[Outcome] = []
    for number, got in enumerate(bench.sweep(PLAN, lambda out, _: saved.append(out)), start=1):
        assert saved[-1] is got
        assert len(saved) == number
    assert saved[0].role == "ceiling"
    assert bench.asked[0][3] is None
    assert {ceiling for *_, ceiling, _ in bench.asked[1:]} == {1250.0}
    assert sum(out.role == "baseline" for out in saved) == 1


def test_what_was_measured_when_the_user_asked_to_stop_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, saved = Bench(), []
    measure = bench.measure

    def stopped(*args: Any, **options: Any) -> tuple[Outcome, Recording]:
        found, recording = measure(*args, **options)
        return found, replace(recording, stopped=KeyboardInterrupt() if len(saved) == 2 else None)

    monkeypatch.setattr(bench, "measure", stopped)
    with pytest.raises(KeyboardInterrupt):
        list(bench.sweep(PLAN, lambda out, _: saved.append(out)))
    assert len(saved) == 3


def test_an_emulated_ceiling_is_measured_only_shortly() -> None:
    bench = Bench()
    long = replace(PLAN, conditions=replace(PLAN.conditions, workload=workload(seconds=30.0)))
    run(bench, long)
    assert bench.asked[0][4] == 1.5
    assert bench.asked[1][4] == 30.0


def test_a_drifted_candidate_is_repeated_once_and_then_believed() -> None:
    slowed = lambda _: outcome(rate=300.0, machine_speed_after=120.0)  # noqa: E731
    _, saved, _ = run(Bench(**{"opencv-w1-p2-b64": slowed}))
    attempts = [out.attempt for out in saved if out.candidate.key == "opencv-w1-p2-b64"]
    assert attempts == [1, 2]


def test_a_candidate_that_waits_is_not_repeated_because_the_machine_has_drifted() -> None:
    slowed = lambda _: outcome(rate=300.0, machine_speed_after=120.0, cores_used=0.2)  # noqa: E731
    _, saved, _ = run(Bench(**{"opencv-w1-p2-b64": slowed}))
    assert [out.attempt for out in saved if out.candidate.key == "opencv-w1-p2-b64"] == [1]


def test_a_candidate_off_the_usual_speed_of_the_sweep_is_repeated() -> None:
    def moment(attempt: int) -> Outcome:
        speed = 100.0 if attempt == 1 else 200.0
        return outcome(rate=500.0, machine_speed_before=speed, machine_speed_after=speed)

    _, saved, _ = run(Bench(**{"pillow-w2-p2-b64": moment}))
    assert [out.attempt for out in saved if out.candidate.key == "pillow-w2-p2-b64"] == [1, 2]


def test_the_budget_ends_the_sweep_but_never_without_the_default() -> None:
    for seed in range(6):
        _, saved, _ = run(plan=replace(PLAN, budget_s=25.0, seed=seed))
        assert any(out.candidate == search.baseline(SPACE) and out.role == "baseline" for out in saved)
        assert len(saved) <= 4


def test_a_ceiling_holds_though_its_repetition_fails() -> None:
    broken = Failure(kind="error", phase="timed", message="no result")
    bench = Bench(
        ceiling=lambda attempt: outcome(rate=1000.0, steady=False) if attempt == 1 else outcome(failure=broken)
    )
    yielded, _, _ = run(bench)
    assert [out.attempt for out in yielded[:2]] == [1, 2]
    assert bench.asked[2][3] == 1000.0


def test_without_a_ceiling_there_is_no_sweep() -> None:
    for kind, error in (("error", PipetuneError), ("usage", UsageError)):
        broken = Failure(kind=kind, phase="open", message="no such model", hint="try another")
        bench = Bench(ceiling=lambda _, failure=broken: outcome(failure=failure))
        with pytest.raises(error, match="no such model; try another"):
            run(bench)


def failing(kind: str, *numbers: int, phase: str = "open") -> Callable[[int], Outcome]:
    """Measurements of any candidate, counted from 1, of which these fail."""
    count = 0

    def make(_: int) -> Outcome:
        nonlocal count
        count += 1
        broken = Failure(kind=kind, phase=phase, message="CUDA error: unspecified launch failure", hint="look at it")
        return outcome(failure=broken) if count in numbers else outcome(rate=500.0)

    return make


def measured_with(make: Callable[[int], Outcome]) -> tuple[list[Outcome], str]:
    """What a sweep saved, and why it was ended."""
    bench = Bench(**{candidate.key: make for candidate in SPACE.grid()})
    saved: list[Outcome] = []
    try:
        list(bench.sweep(replace(PLAN, grid=True, blocks=0), lambda out, _: saved.append(out)))
    except PipetuneError as error:
        return saved[1:], str(error)
    return saved[1:], ""


def test_a_lost_device_ends_the_sweep_instead_of_failing_the_rest() -> None:
    saved, why = measured_with(failing("device_lost", 3))
    assert len(saved) == 3
    assert "unspecified launch failure" in why
    assert "nvidia-smi" in why


def test_one_error_of_the_device_may_be_the_candidates_and_two_in_a_row_are_not() -> None:
    saved, why = measured_with(failing("device_error", 2, 4))
    assert (len(saved), why) == (len(SPACE.grid()), "")
    saved, why = measured_with(failing("device_error", 2, 3, 4, 5))
    assert len(saved) == 3
    assert "unspecified launch failure" in why
    saved, why = measured_with(failing("device_error", 2, 3, phase="timed"))
    assert (len(saved), why) == (len(SPACE.grid()), "")


def test_other_failures_end_nothing() -> None:
    saved, why = measured_with(failing("out_of_gpu_memory", 2, 3, 4))
    assert (len(saved), why) == (len(SPACE.grid()), "")


def test_a_ceiling_that_was_not_steady_is_measured_twice() -> None:
    first_shaky = lambda attempt: outcome(rate=1000.0 if attempt == 1 else 1250.0, steady=attempt > 1)  # noqa: E731
    bench = Bench(ceiling=first_shaky)
    yielded, saved, _ = run(bench)
    assert [out.role for out in saved[:2]] == ["ceiling", "ceiling"]
    assert [out.attempt for out in yielded[:2]] == [1, 2]
    assert bench.asked[2][3] == 1250.0


def test_the_grid_measures_everything_once() -> None:
    _, saved, _ = run(plan=replace(PLAN, grid=True))
    keys = [out.candidate.key for out in saved[1:]]
    assert sorted(keys) == sorted(c.key for c in SPACE.grid())


def test_events_name_the_running_candidate() -> None:
    _, saved, events = run()
    assert [event.candidate for event in events] == [out.candidate for out in saved]
    assert events[0].role == "ceiling"


def test_a_candidate_is_asked_whether_it_reaches_the_target_and_what_is_stated_is_measured_in_full() -> None:
    bench = Bench()
    run(bench)
    asked = dict(
        zip((key if role != "ceiling" else role for key, role, *_ in bench.asked), bench.questions, strict=True)
    )
    assert asked["ceiling"] is None
    assert asked["pillow-w0-p0-b64"] is None
    question = asked["opencv-w1-p2-b64"]
    assert question is not None
    assert question.levels == pytest.approx((0.9 * 1250,))
    bench = Bench()
    run(bench, replace(PLAN, grid=True))
    assert set(bench.questions) == {None}


def test_blocks_show_how_much_repetitions_scatter() -> None:
    """The default's second measurement is as its first, or a third faster."""

    def noise_after(second: float) -> float:
        rates = iter([200.0, second])
        bench = Bench(**{"pillow-w0-p0-b64": lambda _: outcome(rate=next(rates, second))})
        _, saved, _ = run(bench)
        assert sum(out.role == "baseline" for out in saved) == 2
        bench = Bench()
        list(bench.sweep(replace(PLAN, blocks=3), lambda *_: None, known=saved[:-1]))
        return bench.noises[0][0] if bench.noises else 0.0

    assert noise_after(300.0) > 1.3 * noise_after(200.0)


def test_each_outcome_says_why_it_was_measured() -> None:
    _, saved, _ = run()
    assert all(out.why for out in saved)
    assert next(out.why for out in saved if out.role == "baseline").startswith("PyTorch's default")


def test_the_default_and_the_first_block_of_each_candidate_are_measured_in_new_processes() -> None:
    """As a training begins. What is looked for before, and later blocks, may be forks."""
    plan = replace(PLAN, conditions=replace(PLAN.conditions, servers=ForkServers()), blocks=2)
    near = {f"opencv-w{n}-p2-b64": lambda _: outcome(rate=1130.0, ci95=(1050.0, 1210.0)) for n in (1, 2)}
    _, saved, _ = run(Bench(**near), plan)
    assert {out.block for out in saved} == {0, 1, 2}
    for out in saved:
        assert out.forked == (out.role != "baseline" and out.block != 1), out


@pytest.mark.parametrize("effort", EFFORTS)
def test_the_ceiling_of_a_script_ends_when_its_scatter_is_small_unless_the_search_is_thorough(effort: str) -> None:
    bench = Bench()
    run(bench, replace(PLAN, in_script=True, goal=replace(PLAN.goal, effort=effort)))
    question = bench.questions[0]
    assert (question is None) == (effort == THOROUGH)
    assert question is None or (question.levels, question.full_samples_per_s) == ((), None)


@pytest.mark.parametrize("effort", EFFORTS)
def test_the_default_is_asked_whether_it_reaches_the_target_unless_the_search_is_thorough(effort: str) -> None:
    bench = Bench()
    run(bench, replace(PLAN, goal=replace(PLAN.goal, effort=effort)))
    place = next(place for place, asked in enumerate(bench.asked) if asked[1] == "baseline")
    assert (bench.questions[place] is None) == (effort == THOROUGH)


def test_the_machines_speed_is_not_read_again_where_it_was_a_moment_ago() -> None:
    bench = Bench()
    run(bench)
    first, *others = bench.speeds_before
    assert first is None
    assert [speed and speed.per_second for speed in others] == [10.0 * n for n in range(1, len(bench.asked))]
    slow = Bench()
    slow.between_s = 3.0
    run(slow)
    assert set(slow.speeds_before) == {None}


@pytest.mark.parametrize("context_s", [0.0, 8.0])
def test_the_budget_counts_the_set_up_of_what_comes_next(context_s: float) -> None:
    bench = Bench()
    bench.wall_s = 2.0 + context_s
    ceiling = outcome(rate=1250.0)
    assert ceiling.measurement is not None
    set_up = SetUp(start_s=0.1, import_s=0.0, context_s=context_s)
    ceiling = replace(ceiling, measurement=replace(ceiling.measurement, set_up=set_up))
    bench.by_key = {"ceiling": lambda _: ceiling}
    conditions = replace(PLAN.conditions, servers=ForkServers())
    _, saved, _ = run(bench, replace(PLAN, budget_s=15.0, grid=True, conditions=conditions))
    # The ceiling took ten of the fifteen seconds, most of them for its context: nothing but the default follows.
    if context_s:
        assert [out.role for out in saved] == ["ceiling", "baseline"]
    else:
        assert len(saved) == 1 + len(list(SPACE.grid()))


def test_what_needs_a_start_of_the_script_is_measured_only_where_the_budget_has_time_for_it() -> None:
    def starts(plan: Plan) -> int:
        bench = Bench(**{f"opencv-w{n}-p2-b64": lambda _: outcome(rate=1130.0, ci95=(1050.0, 1210.0)) for n in (1, 2)})
        bench.can_fork = True
        run(bench, plan)
        return sum(not forked for forked in bench.forked)

    plan = replace(PLAN, in_script=True, budget_s=200.0)
    assert starts(plan) >= 1
    assert starts(replace(plan, new_start_s=300.0)) == 0
