from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Goal, Outcome
from pipetune.search.next_step import next_step
from pipetune.search.state import State
from tests.fakes import outcome
from tests.unit.search import surface
from tests.unit.search.chosen import recommend

GOAL = Goal(target=0.9, metric="goodput")
CEILING = 2000.0
SPACE = Space(
    backends=("opencv",), workers=(1, 2, 4), prefetch=(2, 4), batch_size=64, pin_memory=False,
    settings=(("transfer", ("float32", "uint8")),),
)  # fmt: skip


def next_candidate(outcomes: list[Outcome], space: Space = SPACE) -> Candidate | None:
    step = next_step(State.after(space, GOAL, outcomes), 0)
    return None if step is None else step[0]


def seen(workers: int, rate: float, cores: float, *, prefetch: int = 2, **settings: object) -> Outcome:
    found = outcome(
        "opencv", workers, prefetch, rate=rate, ceiling=CEILING, cores_used=cores,
        cpu_s_per_1000_samples=1000 * cores / rate, pss_bytes=2**28 * workers,
    )  # fmt: skip
    return replace(found, candidate=replace(found.candidate, **settings))  # type: ignore[arg-type]


BASELINE = outcome("pillow", 0, rate=250, ceiling=CEILING, role="baseline", cpu_s_per_1000_samples=4.0)


@pytest.mark.parametrize(("probe", "tried"), [((690.0, 1.0), True), ((420.0, 1.0), False)])
def test_a_setting_with_an_uncertain_loss_is_added(probe: tuple[float, float], tried: bool) -> None:
    outcomes = [BASELINE, seen(1, 700, 1.0), seen(1, *probe, transfer="uint8"), seen(4, 1990, 2.8), seen(2, 1300, 1.9)]
    rich = SPACE.candidate("opencv", 4, 2, transfer="uint8")
    assert (next_candidate(outcomes) == rich) == tried
    if not tried:
        return
    # Where it gains it is recommended, and with fewer workers where these do, too.
    outcomes.append(seen(4, 1990, 2.2, transfer="uint8"))
    assert next_candidate(outcomes) == replace(rich, num_workers=2)
    outcomes.append(seen(2, 1900, 1.9, transfer="uint8"))
    best = recommend(outcomes, GOAL, SPACE)
    assert best is not None
    assert best.candidate == replace(rich, num_workers=2)
    assert next_candidate(outcomes) is None  # one alone was the probe


def test_settings_are_dropped_at_the_default_prefetch_only() -> None:
    outcomes = [
        BASELINE, seen(1, 700, 1.0), seen(1, 750, 1.0, transfer="uint8"), seen(2, 1790, 1.9, transfer="uint8"),
        seen(4, 1990, 2.8, transfer="uint8"), seen(4, 1990, 2.8), seen(2, 1850, 1.9, prefetch=4, transfer="uint8"),
    ]  # fmt: skip
    best = recommend(outcomes, GOAL, SPACE)
    assert best is not None
    assert best.candidate == SPACE.candidate("opencv", 2, 4, transfer="uint8")
    assert next_candidate(outcomes) != SPACE.candidate("opencv", 2, 4)


def test_fewer_workers_than_cores_in_use_are_not_tried() -> None:
    space = replace(SPACE, workers=(1, 2, 16))
    outcomes = [
        BASELINE, seen(1, 100, 1.0), seen(1, 95, 1.0, transfer="uint8"), seen(2, 195, 2.0),
        seen(16, 1990, 14.0), seen(16, 1990, 11.0, transfer="uint8"),
    ]  # fmt: skip
    following = next_candidate(outcomes, space)
    assert following is None or following.num_workers != 2


@pytest.mark.parametrize("ranks", [1, 8])
def test_cores_in_use_are_those_of_all_ranks_and_workers_those_of_each(ranks: int) -> None:
    """With so many ranks the host does as much more, and the next candidate is the same."""
    space = replace(SPACE, workers=(1, 2, 4, 8), ranks=ranks, usable_cores=10.0 * ranks)

    def of_all(found: Outcome) -> Outcome:
        m = found.measurement
        assert m is not None
        assert m.cores_used is not None
        return replace(found, measurement=replace(m, cores_used=ranks * m.cores_used, pss_bytes=2**30))

    settings = {"transfer": "uint8"}
    outcomes = [BASELINE, *map(of_all, (
        seen(1, 690, 1.0), seen(4, 1990, 3.2), seen(1, 690, 0.5, **settings), seen(4, 1995, 1.6, **settings),
    ))]  # fmt: skip
    following = next_candidate(outcomes, space)
    assert following is not None
    assert (following.num_workers, following.transfer) == (2, "uint8")


@pytest.mark.parametrize(("fewer", "tried"), [(1780.0, True), (1500.0, False)])
def test_a_deeper_prefetch_for_fewer_workers(fewer: float, tried: bool) -> None:
    space = replace(SPACE, settings=())
    outcomes = [BASELINE, seen(1, 800, 1.0), seen(2, fewer, 1.7), seen(4, 1990, 2.8)]
    assert (next_candidate(outcomes, space) == space.candidate("opencv", 2, 4)) == tried


@pytest.mark.parametrize(("rate", "tried"), [(1820.0, True), (1990.0, False)])
def test_a_deeper_prefetch_where_the_target_is_uncertain(rate: float, tried: bool) -> None:
    space = Space(backends=("opencv",), workers=(1, 2), prefetch=(2, 4), batch_size=64, pin_memory=False)
    known = [
        outcome("pillow", 0, rate=250, ceiling=CEILING, role="baseline", cpu_s_per_1000_samples=4.0),
        outcome("opencv", 1, rate=700, ceiling=CEILING, cpu_s_per_1000_samples=1.4),
        outcome("opencv", 2, rate=rate, ceiling=CEILING, cpu_s_per_1000_samples=1.4),
    ]
    assert (next_candidate(known, space) == space.candidate("opencv", 2, 4)) == tried


def test_more_exact_pixels_at_the_same_cost() -> None:
    space = replace(SPACE, backends=("opencv", "jpeg-roi", "pillow"), workers=(0, 1, 2, 4, 8), settings=())
    outcomes = [
        outcome("pillow", 0, rate=200, ceiling=CEILING, role="baseline", cpu_s_per_1000_samples=5.0),
        outcome("pillow", 1, rate=250, ceiling=CEILING, cpu_s_per_1000_samples=4.0),
        outcome("opencv", 1, rate=1990, ceiling=CEILING, cpu_s_per_1000_samples=0.50, cores_used=1.0, pss_bytes=700),
        outcome("jpeg-roi", 1, rate=1700, ceiling=CEILING, cpu_s_per_1000_samples=0.52, cores_used=1.0, pss_bytes=700),
    ]
    tried = []
    while (candidate := next_candidate(outcomes, space)) is not None:
        tried.append(candidate.key)
        fed = candidate.num_workers > 0
        outcomes.append(outcome(
            candidate.backend, candidate.num_workers, candidate.prefetch_depth, rate=1990 if fed else 900,
            ceiling=CEILING, cpu_s_per_1000_samples=0.5, cores_used=1.0, pss_bytes=700,
        ))  # fmt: skip
    assert any(key.startswith("jpeg-roi") for key in tried)
    assert not any(key.startswith("pillow-w2") for key in tried)
    assert recommend(outcomes, GOAL, space).candidate.backend == "jpeg-roi"  # type: ignore[union-attr]


def test_more_exact_pixels_keep_fixed_settings() -> None:
    """DALI has threads of its own: its candidates are as usual in what a fixed setting says of the others' workers."""
    space = Space(
        backends=("dali", "pillow"), workers=(1, 2), prefetch=(2,), batch_size=64, pin_memory=False,
        settings=(("start_method", ("spawn",)),),
    )  # fmt: skip
    about = {"ceiling": CEILING, "cpu_s_per_1000_samples": 0.5, "cores_used": 1.0, "pss_bytes": 700}
    outcomes = [
        outcome("pillow", 0, rate=900, role="baseline", **about),  # type: ignore[arg-type]
        outcome("dali", 1, rate=1990, **about),  # type: ignore[arg-type]
    ]
    probe = outcome("pillow", 1, rate=1700, **about)  # type: ignore[arg-type]
    outcomes.append(replace(probe, candidate=space.candidate("pillow", 1, 2)))
    tried = []
    while (candidate := next_candidate(outcomes, space)) is not None:
        tried.append(candidate)
        found = outcome(candidate.backend, candidate.num_workers, rate=1500, **about)  # type: ignore[arg-type]
        outcomes.append(replace(found, candidate=candidate))
    assert set(tried) <= set(space.grid())


def test_a_setting_with_an_uncertain_gain_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(surface.GAINS, "transfer", {"uint8": 1.06})
    outcomes = surface.run_knobbed()
    keys = [outcome.candidate.key for outcome in outcomes]
    assert keys[-3:] == [
        "opencv-w2-p2-b64-thread-u8", "opencv-w2-p2-b64-thread-u8-glibc", "opencv-w2-p2-b64-thread",
    ]  # fmt: skip
    best = recommend(outcomes, GOAL, surface.KNOBBED)
    assert best is not None
    # 6 % of 1.8 cores are less than a measurement can distinguish: the usual setting wins.
    assert best.candidate.key == "opencv-w2-p2-b64-thread"
