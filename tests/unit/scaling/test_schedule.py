from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.answering import answer as answering
from pipetune.answering.base import Base
from pipetune.answering.shrunken import Size
from pipetune.datasets.index import ImageSet
from pipetune.errors import PipetuneError, UsageError
from pipetune.predicting.model import Costs
from pipetune.records.schedule import Schedule
from pipetune.scaling import schedule as scheduling
from pipetune.scaling.price import Prices
from pipetune.scaling.schedule import ScheduleOptions, parse_phases, schedule
from tests.unit.answering.bases import base

#: The published training in 18 minutes: crops of 128, 224 and 288 px, and what one of its hosts took per second.
PHASES, DEMAND = ((128, 18.0), (224, 22.0), (288, 28.0)), (18_000.0, 5_800.0, 3_300.0)


def halved(_: ImageSet, edge: int) -> Size:
    """Stored images have as many pixels as their edges say, and bytes with them."""
    share = min(1.0, (edge / 375) ** 2)
    return Size(pixels=500 * 375 * share, size_bytes=98_000 * share, changed_frac=1.0)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Schedule]:
    """The plan of a loader on 64 cores, which takes 6 ms for an image."""
    monkeypatch.setattr(answering, "size_with", halved)

    def plan(on: Base | None = None, **options: Any) -> Schedule:
        loader = on or base(cores=64.0, costs=Costs(load_s=0.006, worker_s=0.006, demand_per_s=5000.0))
        monkeypatch.setattr(scheduling, "base_of", lambda path, key: loader)
        return schedule(ScheduleOptions(**{"run": Path("/run"), "phases": PHASES, **options}))

    return plan


def test_the_published_schedule(planned: Callable[..., Schedule]) -> None:
    found = planned(demand=DEMAND, images=1_281_167, prices=Prices(per_hour=14.4))
    assert [phase.demand_samples_per_s for phase in found.phases] == list(DEMAND)
    assert [phase.demand_bytes_per_s for phase in found.phases] == [98_000 * rate for rate in DEMAND]
    small, middle, large = [phase.setup for phase in found.phases]
    assert small is not None
    assert middle is not None
    assert large is not None
    assert small.shorter_edge == 256, "the largest with which 64 cores decode 18,000 images per second"
    assert (middle.shorter_edge, large.shorter_edge) == (None, None)
    assert large.workers < middle.workers < small.workers
    assert found.edges == (256,)
    assert found.common is None, "what serves 128 px has crops of 288 px enlarged"
    for phase in found.phases:
        assert phase.best.samples_per_s >= 0.9 * phase.demand_samples_per_s
        assert phase.seconds == pytest.approx(phase.epochs * 1_281_167 / phase.best.samples_per_s)
    assert found.seconds == pytest.approx(sum(phase.seconds or 0 for phase in found.phases))
    assert found.cost == pytest.approx((found.seconds or 0) / 3600 * 14.4)


def test_fewer_pixels_are_more_crops(planned: Callable[..., Schedule]) -> None:
    """An accelerator works as long on each pixel: the published rates differ by about as much."""
    small, middle, large = planned().phases
    assert middle.demand_samples_per_s == 5000
    assert small.demand_samples_per_s == pytest.approx(5000 * (224 / 128) ** 2)
    assert large.demand_samples_per_s == pytest.approx(5000 * (224 / 288) ** 2)
    assert small.demand_samples_per_s / large.demand_samples_per_s == pytest.approx(18 / 3.3, rel=0.1)


def test_one_setup_for_all_where_there_is_one(planned: Callable[..., Schedule]) -> None:
    rates = (3000.0, 2500.0, 2000.0)
    found = planned(demand=rates)
    assert found.common is not None
    assert found.common.shorter_edge is None
    assert found.edges == ()
    alone = [planned(phases=(phase,), demand=(rate,)).phases[0].setup
             for phase, rate in zip(PHASES, rates, strict=True)]  # fmt: skip
    assert found.common.workers == max(setup.workers for setup in alone if setup is not None)
    for phase in found.phases:
        assert phase.setup == found.common
        assert phase.best.samples_per_s >= 0.9 * phase.demand_samples_per_s


def test_a_pack_that_all_crops_fit_into(planned: Callable[..., Schedule]) -> None:
    found = planned(phases=((128, 1.0), (160, 1.0)), demand=(18_000.0, 18_000.0))
    assert found.common is not None
    assert found.common.shorter_edge == 192
    assert found.edges == (192,), "one pack for both, though 160 would do for the smaller crops"
    assert [scheduling._edge_for(size) for size in (96, 128, 224, 448, 512)] == [160, 160, 256, 512, 608]


def test_what_nothing_serves_has_what_comes_closest(planned: Callable[..., Schedule]) -> None:
    found = planned(on=base(cores=2.0), demand=DEMAND)
    assert [phase.setup for phase in found.phases] == [None, None, None]
    assert found.common is None
    # The smallest pack that each crop fits into, and all cores.
    assert [phase.closest.shorter_edge for phase in found.phases] == [160, 256, 352]
    assert {phase.closest.workers for phase in found.phases} == {2}
    assert all(phase.best.samples_per_s > 1.2 * phase.now.samples_per_s for phase in found.phases[:1])
    assert found.edges == (160, 256, 352)


def test_only_what_is_asked_for_is_considered(planned: Callable[..., Schedule]) -> None:
    found = planned(demand=DEMAND, edges=(), workers=(1, 2))
    assert all(phase.closest.shorter_edge is None and phase.closest.workers <= 2 for phase in found.phases)
    assert planned(demand=DEMAND, edges=(144,)).phases[0].closest.shorter_edge == 144


def test_a_target_and_another_device(planned: Callable[..., Schedule]) -> None:
    easy, hard = (planned(phases=PHASES[1:2], target=target, edges=()).phases[0].setup for target in (0.5, 0.95))
    assert easy is not None
    assert hard is not None
    assert easy.workers < hard.workers
    rates = [phase.demand_samples_per_s for phase in planned(device="a100").phases]
    assert rates[0] / rates[1] == pytest.approx((224 / 128) ** 2)
    with pytest.raises(UsageError, match="--device emulated:700 takes as many crops of any size"):
        planned(device="emulated:700")


def test_the_loader_as_it_is_has_the_rate_that_was_measured(planned: Callable[..., Schedule]) -> None:
    uneven = base(cores=64.0, measured_samples_per_s=700.0)  # the model says 1,000
    found = planned(on=uneven)
    assert found.phases[1].now.samples_per_s == 700.0
    assert any("the model gives" in note for note in found.notes)
    assert any("as long on each pixel" in note for note in found.notes)


def test_of_several_ranks_the_demand_is_that_of_all(planned: Callable[..., Schedule]) -> None:
    workload = replace(base().workload, ranks=8)
    found = planned(on=base(cores=64.0, workload=workload), demand=DEMAND)
    assert found.ranks == 8
    assert [phase.demand_samples_per_s for phase in found.phases] == list(DEMAND)
    assert all(phase.closest.workers <= 8 for phase in found.phases)


def test_a_training_step_on_the_cpu_does_not_hold_back_other_accelerators(planned: Callable[..., Schedule]) -> None:
    accelerator = replace(base().workload.accelerator, kind="cpu", rate_samples_per_s=None)
    costs = Costs(load_s=0.006, worker_s=0.006, demand_per_s=40.0, step_s=0.025)
    on_cpu = base(cores=64.0, workload=replace(base().workload, accelerator=accelerator), costs=costs)
    assert planned(on=on_cpu, demand=(5000.0, 3000.0, 2000.0)).common is not None


def test_images_that_are_gone_are_needed_for_packs_alone(
    planned: Callable[..., Schedule], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned()

    def gone(_: ImageSet, edge: int) -> Size:
        raise PipetuneError("cannot read /photos/0.jpg: No such file or directory")

    monkeypatch.setattr(answering, "size_with", gone)
    found = planned(demand=DEMAND)
    assert found.phases[0].setup is None
    assert found.phases[2].setup is not None
    assert any(note.startswith("no packs are considered: cannot read /photos/0.jpg") for note in found.notes)


def test_each_size_of_images_is_made_once(planned: Callable[..., Schedule], monkeypatch: pytest.MonkeyPatch) -> None:
    planned()
    made: list[int] = []

    def counted(images: ImageSet, edge: int) -> Size:
        made.append(edge)
        return halved(images, edge)

    monkeypatch.setattr(answering, "size_with", counted)
    planned(phases=PHASES * 3, demand=DEMAND * 3)
    assert sorted(made) == sorted(set(made))


def test_packs_that_no_crop_fits_into_are_named(planned: Callable[..., Schedule]) -> None:
    found = planned(demand=DEMAND, edges=(96, 256))
    assert any("packs of 96 px are smaller than all crops" in note for note in found.notes)
    assert found.edges == (256,)


def test_what_is_not_known_of_the_run_is_refused(planned: Callable[..., Schedule]) -> None:
    with pytest.raises(UsageError, match=r"what decoding and cropping take is not known.*pipetune explain"):
        planned(on=replace(base(), stages=()))


def test_loaders_that_demand_nothing_more(planned: Callable[..., Schedule]) -> None:
    slow = base(cores=64.0, costs=Costs(load_s=0.002, worker_s=0.002, demand_per_s=100.0))
    found = planned(on=slow)
    assert found.common is not None
    assert found.common.workers == 1


@pytest.mark.parametrize("text", ["", "128", "128:", "128:0", "4:1", "128:-1", "128:1,,", "128:1:2", "9999:1", "x:1"])
def test_what_is_no_schedule(text: str) -> None:
    with pytest.raises(UsageError, match="--image-sizes"):
        parse_phases(text)
    assert parse_phases("128:18, 224 : 2.5") == ((128, 18.0), (224, 2.5))
    with pytest.raises(UsageError, match="33 phases"):
        parse_phases(",".join(["128:1"] * 33))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"demand": (1.0,)}, "--demand has 1 rates for 3 phases"),
        ({"demand": (1.0, 0.0, 1.0)}, "not above 0"),
        ({"demand": DEMAND, "device": "a100"}, "both say"),
        ({"target": 1.5}, "--target 1.5"),
        ({"images": 0}, "--images 0"),
        ({"edges": (2,)}, "--sizes 2"),
        ({"workers": (-1,)}, "--workers -1"),
        ({"workers": (0,), "on": base(candidate=replace(base().candidate, loader="threads"))}, "at least one worker"),
    ],
)
def test_what_cannot_be_used_is_named(planned: Callable[..., Schedule], options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        planned(**options)
