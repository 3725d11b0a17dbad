from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.answering import answer as answering
from pipetune.answering.base import Base
from pipetune.answering.reach import reach_of
from pipetune.answering.shrunken import Size
from pipetune.predicting.candidates import predicted
from pipetune.predicting.model import Costs
from pipetune.records.prediction import INTERPOLATED, Reach
from tests.unit.answering.bases import base


@pytest.fixture(autouse=True)
def no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def smaller(_: object, edge: int) -> Size:
        factor = (edge / 375) ** 2
        return Size(pixels=187_500 * factor, size_bytes=98_000 * factor, changed_frac=1.0)

    monkeypatch.setattr(answering, "size_with", smaller)


def reach(on: Base) -> tuple[Reach, ...]:
    return reach_of(on, predicted(on.costs, on.setting, INTERPOLATED))


def test_nothing_is_to_be_changed_where_the_target_is_reached() -> None:
    assert reach(base(measured_samples_per_s=4600.0)) == ()


def test_more_workers_reach_it_where_cores_are_free() -> None:
    found = reach(base(costs=Costs(load_s=0.002, worker_s=0.002, demand_per_s=1600.0)))
    assert found[0].change == "3 workers in place of 2"
    assert found[0].prediction.samples_per_s >= 0.9 * 1600


def test_the_smallest_number_of_cores_is_named() -> None:
    found = {one.change.split()[1].rstrip(","): one for one in reach(base())}
    cores = found["cores"]
    count = int(cores.change.split()[0])
    assert 8 < count < 14
    assert cores.prediction.samples_per_s >= 0.9 * 5000


def test_smaller_images_are_named_with_the_largest_edge_that_does() -> None:
    found = reach(base(costs=Costs(load_s=0.002, worker_s=0.002, demand_per_s=1500.0)))
    edges = [one.change for one in found if "shorter edge" in one.change]
    assert len(edges) == 1
    assert "in place of 375" in edges[0]


def test_fewer_ranks_reach_it_where_they_share_cores() -> None:
    many = base(costs=Costs(load_s=0.002, worker_s=0.002, demand_per_s=900.0), measured_samples_per_s=2000.0)
    many = replace(many, workload=replace(many.workload, ranks=4))
    assert any("2 ranks on this host in place of 4" in one.change for one in reach(many))


def test_a_faster_disk_is_named_where_storage_is_short() -> None:
    cold = base(
        cold=True, storage_per_s=200.0, measured_samples_per_s=200.0,
        costs=Costs(load_s=0.001, worker_s=0.001, demand_per_s=900.0),
    )  # fmt: skip
    found = reach(cold)
    assert [one.change.split(" that ")[0] for one in found][-1] == "storage"
    assert "3.00 GiB of memory" in found[0].change
    assert found[-1].prediction.samples_per_s >= 0.9 * 900
