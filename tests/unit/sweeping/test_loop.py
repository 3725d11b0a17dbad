from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune import search
from pipetune.candidates.space import Space
from pipetune.datasets.index import read_index, write_index
from pipetune.errors import PipetuneError, UsageError
from pipetune.measure.harness import Conditions, Live
from pipetune.measure.phases import Question
from pipetune.measure.recording import Recording
from pipetune.records.sweep import AcceleratorSpec, Candidate, Failure, Goal, Measurement, Outcome
from pipetune.stats.noise import device_noise
from pipetune.sweeping import loop
from pipetune.sweeping.loop import Plan
from pipetune.sweeping.observer import Event
from tests.fakes import outcome
from tests.photo_set import workload
from tests.unit.datasets.test_index import image, image_set

SPACE = Space(backends=("pillow", "opencv"), workers=(0, 1, 2), prefetch=(2,), batch_size=64, pin_memory=False)
REAL = AcceleratorSpec(kind="cuda", name="GPU", device_index=0)
PLAN = Plan(
    space=SPACE,
    goal=Goal(target=0.9, metric="goodput"),
    conditions=Conditions(workload=workload(), paths=(), cores=frozenset({0})),
    seed=0,
)


class Bench:
    """Stands in for the harness: every measurement takes ten seconds on its own clock."""

    def __init__(self, find_bad_images: Callable[..., dict[int, str]] | None = None, **by_key: Any) -> None:
        self.now = 0.0
        self.asked: list[tuple[str, str, int, float | None, float]] = []
        self.questions: list[Question | None] = []
        self.noises: list[tuple[float, float | None]] = []
        self.files: list[list[str]] = []
        self.by_key: dict[str, Callable[[int], Outcome]] = by_key
        self.find_bad_images = find_bad_images or (lambda *_, **__: {})

    def sweep(
        self, plan: Plan, save: Any, on_event: Any = lambda _: None, known: Sequence[Outcome] = ()
    ) -> Iterator[Outcome]:
        return loop.sweep(
            plan, save, on_event, known,
            measure=self.measure, find_bad_images=self.find_bad_images, clock=lambda: self.now,
        )  # fmt: skip

    def measure(
        self, candidate: Candidate, role: str, conditions: Conditions, *, attempt: int, ceiling: Measurement | None,
        run_noise: float, question: Question | None, on_live: Callable[[Live], None],
    ) -> tuple[Outcome, Recording]:  # fmt: skip
        self.now += 10.0
        self.files.append([Path(path).stem for path in conditions.paths])
        self.questions.append(question)
        self.noises.append((run_noise, conditions.device_noise))
        self.asked.append(
            (candidate.key, role, attempt, ceiling and ceiling.samples_per_s, conditions.workload.seconds)
        )
        on_live(Live(phase="timed"))
        key = "ceiling" if role == "ceiling" else candidate.key
        make = self.by_key.get(key)
        got = make(attempt) if make else outcome(rate=1250.0 if role == "ceiling" else 500.0)
        return replace(got, candidate=candidate, role=role, attempt=attempt), Recording()


def run(bench: Bench | None = None, plan: Plan = PLAN) -> tuple[list[Outcome], list[Outcome], list[Event]]:
    saved: list[Outcome] = []
    events: list[Event] = []
    yielded = list((bench or Bench()).sweep(plan, lambda out, _: saved.append(out), events.append))
    return yielded, saved, events


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


def stopped_after(count: int, **by_key: Any) -> list[Outcome]:
    """What a sweep had saved when it was interrupted after so many outcomes."""
    return run(Bench(**by_key))[1][:count]


@pytest.mark.parametrize("count", range(1, 7))
def test_a_resumed_sweep_measures_only_what_is_missing(count: int) -> None:
    _, whole, _ = run()
    bench = Bench()
    known = stopped_after(count)
    added = list(bench.sweep(PLAN, lambda *_: None, known=known))
    assert [out.candidate for out in (*known, *added)] == [out.candidate for out in whole]
    assert len(bench.asked) == len(whole) - len(known)
    assert {asked[3] for asked in bench.asked} <= {1250.0}  # measured against the ceiling of the first part


def test_a_repeat_that_was_due_is_made_up_for() -> None:
    slowed = lambda _: outcome(rate=300.0, machine_speed_after=120.0)  # noqa: E731
    key = "opencv-w1-p2-b64"
    known = stopped_after(6, **{key: slowed})
    place = next(place for place, out in enumerate(known) if out.candidate.key == key)
    bench = Bench()
    added = list(bench.sweep(PLAN, lambda *_: None, known=known[: place + 1]))
    assert bench.asked[0][:3] == (key, "candidate", 2)
    assert [out.candidate.key for out in added].count(key) == 1


def test_what_failed_before_is_tried_again() -> None:
    full = Failure(kind="out_of_shared_memory", phase="warmup", message="full", hint="more")
    known = stopped_after(9, **{"opencv-w1-p2-b64": lambda _: outcome(failure=full)})
    assert any(out.failure for out in known)
    added = list(Bench().sweep(PLAN, lambda *_: None, known=known))
    assert next(out.candidate.key for out in added if out.measurement) == "opencv-w1-p2-b64"


BAD = Failure(kind="bad_image", phase="timed", message="cannot decode image 'b.jpg'", hint="repair it")


def with_index(tmp_path: Path, count: int = 3) -> tuple[Plan, str]:
    files = [image(str(tmp_path / f"{name}.jpg")) for name in "abcdef"[:count]]
    path = str(tmp_path / "index.json")
    write_index(path, image_set(*files, root=str(tmp_path)))
    conditions = replace(PLAN.conditions, workload=workload(index_path=path), paths=[file.path for file in files])
    return replace(PLAN, conditions=conditions), path


def test_a_bad_image_is_replaced_for_everybody_and_the_candidate_measured_again(tmp_path: Path) -> None:
    plan, path = with_index(tmp_path)
    fails = iter([True])
    found = iter([{1: "broken data"}])
    bench = Bench(
        lambda *_, **__: next(found, {}),
        **{"opencv-w1-p2-b64": lambda _: outcome(failure=BAD) if next(fails, False) else outcome()},
    )
    _, saved, _ = run(bench, plan)
    seen = bench.files
    mine = [out for out in saved if out.candidate.key == "opencv-w1-p2-b64" and out.role != "ceiling" and not out.block]
    assert [out.failure is None for out in mine] == [False, True]
    stored = read_index(path)
    assert [Path(file.path).stem for file in stored.images] == ["a", "c", "c"]
    assert stored.skipped[0] == (str(tmp_path / "b.jpg"), "broken data")
    assert seen[0] == ["a", "b", "c"]
    assert seen[-1] == ["a", "c"]  # files, each once


def test_a_backend_that_finds_no_bad_image_is_believed_once(tmp_path: Path) -> None:
    plan, _ = with_index(tmp_path)
    asked = []
    bench = Bench(
        lambda candidate, *_, **__: asked.append(candidate.backend) or {},
        **{f"opencv-w{n}-p2-b64": lambda _: outcome(failure=BAD) for n in (1, 2)},
    )
    run(bench, replace(plan, grid=True))
    assert asked == ["pillow", "opencv"]


def test_images_that_one_backend_alone_refuses_in_numbers_are_that_backends_fault(tmp_path: Path) -> None:
    plan, path = with_index(tmp_path, 6)
    refused = {"pillow": {}, "opencv": {1: "no such format", 2: "no such format"}}
    bench = Bench(
        lambda candidate, *_, **__: refused[candidate.backend],
        **{"opencv-w1-p2-b64": lambda _: outcome(failure=BAD)},
    )
    _, saved, _ = run(bench, plan)
    assert sum(out.failure is not None for out in saved) == 1
    assert read_index(path).skipped_count == image_set().skipped_count


def test_with_nothing_but_bad_images_the_sweep_ends(tmp_path: Path) -> None:
    plan, _ = with_index(tmp_path)
    bench = Bench(lambda *_, **__: {0: "x", 1: "x", 2: "x"}, ceiling=lambda _: outcome(failure=BAD))
    with pytest.raises(PipetuneError, match="none of the 3 images can be decoded"):
        run(bench, plan)


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


def of_kind(kind: str) -> Plan:
    accelerator = AcceleratorSpec(kind=kind, name=kind)
    return replace(PLAN, conditions=replace(PLAN.conditions, workload=workload(accelerator=accelerator)))


@pytest.mark.parametrize(("kind", "of_device", "alone"), [
    ("cuda", True, 1250.0), ("cpu", False, 1250.0), ("emulated", True, None),
])  # fmt: skip
def test_a_question_knows_what_the_accelerator_does_by_itself(kind: str, of_device: bool, alone: float | None) -> None:
    bench = Bench()
    run(bench, of_kind(kind))
    questions = [question for question in bench.questions if question is not None]
    assert questions
    for question in questions:
        assert (question.device_noise is not None, question.alone_samples_per_s) == (of_device, alone)


def test_the_devices_own_scatter_is_that_of_its_steady_ceilings() -> None:
    bench = Bench()
    run(bench, of_kind("cuda"))
    assert {noise for _, noise in bench.noises} == {device_noise([], "cuda")}
    # Of an interrupted sweep: three ceilings that agree, and one that was not steady.
    known = [outcome(rate=rate, role="ceiling", steady=rate > 1000) for rate in (1250.0, 900.0, 1250.0, 1250.0)]
    bench = Bench()
    list(bench.sweep(of_kind("cuda"), lambda *_: None, known=known))
    steady = [found.measurement for found in known if found.measurement and found.measurement.steady]
    assert {noise for _, noise in bench.noises} == {device_noise(steady, "cuda")}
    assert device_noise(steady, "cuda") < device_noise([], "cuda")


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


def on_a_gpu() -> Plan:
    return replace(PLAN, conditions=replace(PLAN.conditions, workload=workload(accelerator=REAL)))


def warm_device(until_s: float, bench: Bench, **changes: Any) -> Callable[[int], Outcome]:
    """A ceiling that falls from 1,250 to 1,000 samples/s when so much time has gone by."""
    return lambda _: outcome(rate=1250.0 if bench.now <= until_s else 1000.0, **changes)


def test_each_block_has_a_ceiling_of_its_own_on_a_real_device() -> None:
    bench = Bench()
    bench.by_key = {"ceiling": warm_device(30.0, bench), "opencv-w2-p2-b64": lambda _: outcome(rate=980.0)}
    _, saved, _ = run(bench, on_a_gpu())
    blocks = {out.block for out in saved if out.block}
    assert blocks
    assert [out.block for out in saved if out.role == "ceiling"] == [0, *sorted(blocks)]
    for block in blocks:
        first = next(number for number, out in enumerate(saved) if out.block == block)
        assert saved[first].role == "ceiling"
    beside = {asked[3] for asked, out in zip(bench.asked, saved, strict=True) if out.block and out.role != "ceiling"}
    assert beside == {1000.0}


def test_an_emulated_device_is_always_the_same() -> None:
    _, saved, _ = run()
    assert [out.role for out in saved].count("ceiling") == 1


def test_a_ceiling_that_fails_in_a_block_leaves_the_one_before() -> None:
    bench = Bench()
    failing = Failure(kind="killed", phase="timed", message="gone")
    bench.by_key = {"ceiling": lambda _: outcome(rate=1250.0) if bench.now <= 10 else outcome(failure=failing)}
    yielded, saved, _ = run(bench, on_a_gpu())
    assert yielded == saved
    assert {ceiling for _, role, _, ceiling, _ in bench.asked if role != "ceiling"} == {1250.0}


def test_a_resumed_sweep_does_not_repeat_the_ceiling_of_a_block() -> None:
    rates: dict[str, Any] = {
        "opencv-w2-p2-b64": lambda _: outcome(rate=1200.0),
        "ceiling": lambda _: outcome(rate=1250.0),
    }
    _, saved, _ = run(Bench(**rates), on_a_gpu())
    begun = next(number for number, out in enumerate(saved) if out.block)
    bench = Bench(**rates)
    again = list(bench.sweep(on_a_gpu(), lambda *_: None, known=saved[: begun + 1]))
    assert [out.block for out in again if out.role == "ceiling"] == [
        out.block for out in saved[begun + 1 :] if out.role == "ceiling"
    ]
