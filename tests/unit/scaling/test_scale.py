from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.errors import UsageError
from pipetune.records.scaling import ScaleRow, Scaling
from pipetune.scaling.accuracy import Reach
from pipetune.scaling.price import Prices
from pipetune.scaling.scale import ScaleOptions, scale
from tests.published import COUNTS, RATES, write_table
from tests.unit.answering.test_base import with_workload
from tests.unit.scaling.test_points import of_hosts, ranked


def scaled(**options: Any) -> Scaling:
    return scale(ScaleOptions(**options))


def rows(found: Scaling) -> dict[int, ScaleRow]:
    return {row.accelerators: row for row in found.rows}


@pytest.mark.parametrize("model", RATES)
def test_the_published_table_is_predicted_from_32(tmp_path: Path, model: str) -> None:
    found = scaled(tables=(write_table(tmp_path / "t.csv", model, 32),))
    by_count = rows(found)
    assert found.accelerators_per_host == 16
    assert list(by_count) == list(COUNTS)
    for count, rate in zip(COUNTS, RATES[model], strict=True):
        row = by_count[count]
        assert row.measured == (count <= 32)
        assert row.hosts == max(1, count // 16)
        assert row.samples_per_s == pytest.approx(rate, rel=0.0 if row.measured else 0.05)
        if not row.measured:
            assert row.interval is not None
            assert row.interval[0] < rate < row.interval[1]
    assert by_count[16].efficiency == pytest.approx(RATES[model][4] / 16 / RATES[model][0])
    assert by_count[256].efficiency_in_host == by_count[16].efficiency


def test_runs_of_one_host(tmp_path: Path) -> None:
    runs = (ranked(tmp_path / "one", 1, 1200.0), ranked(tmp_path / "four", 4, 4000.0))
    found = scaled(runs=runs, to=(8, 64))
    by_count = rows(found)
    assert list(by_count) == [1, 4, 8, 64]
    assert by_count[4].efficiency == pytest.approx(4000 / 4 / 1200)
    assert by_count[4].others_wait_frac == 0.08
    assert by_count[8].hosts == 2
    assert by_count[64].hosts == 16
    assert by_count[64].samples_per_s < 16 * 4000, "the slowest of more accelerators is slower"
    assert any("no run across hosts" in note for note in found.notes)
    assert by_count[64].communication_frac is None
    assert found.images
    row = by_count[8]
    assert row.epoch_s == pytest.approx(found.images / row.samples_per_s)
    assert row.compute_frac is not None
    assert row.bytes_per_s_per_host


def test_the_model_of_one_host_predicts_what_was_not_measured_on_it(tmp_path: Path) -> None:
    found = scaled(runs=(with_workload(ranked(tmp_path / "two", 2, 1900.0), ranks=2),), per_host=4, to=(1, 4, 8))
    by_count = rows(found)
    assert list(by_count) == [1, 2, 4, 8]
    assert not by_count[4].measured
    assert by_count[4].source == "pipetune whatif --ranks 4, from 2"
    assert by_count[4].interval is not None
    assert by_count[8].samples_per_s == pytest.approx(2 * by_count[4].samples_per_s, rel=0.1)
    assert any("one host with 4 accelerators was not measured" in note for note in found.notes)


def test_time_and_cost(tmp_path: Path) -> None:
    prices = Prices(per_hour=14.4, spot_per_hour=1.6, currency="$", lost_per_hour=0.05)
    table = write_table(tmp_path / "t.csv", "ResNet-152", 16)
    found = scaled(tables=(table,), images=1_281_167, epochs=90, prices=prices, to=(32,))
    one, two = rows(found)[16], rows(found)[32]
    assert one.epoch_s == pytest.approx(1_281_167 / 298.03)
    assert one.training_cost == pytest.approx(90 * 1_281_167 / 298.03 / 3600 * 14.4)
    assert one.epoch_cost == pytest.approx((one.training_cost or 0) / 90)
    assert one.training_s is not None
    assert one.spot_training_s is not None
    assert one.spot_training_s > one.training_s
    assert one.spot_training_cost == pytest.approx(one.spot_training_s / 3600 * 1.6)
    assert two.training_cost == pytest.approx((two.training_s or 0) / 3600 * 2 * 14.4)


def test_what_was_not_asked_for_is_not_known(tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.csv", "ResNet-152", 16)
    found = scaled(tables=(table,))
    assert all(row.epoch_s is None and row.epoch_cost is None for row in found.rows)
    assert any("--images" in note for note in found.notes)
    spot = Prices(spot_per_hour=1.0)
    assert any("--epochs" in note for note in scaled(tables=(table,), images=10, prices=spot).notes)


def test_hosts_that_are_lost_too_fast_have_no_cost(tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.csv", "ResNet-152", 16)
    prices = Prices(spot_per_hour=1.0, lost_per_hour=0.99, checkpoint_s=1e9)
    found = scaled(tables=(table,), images=10**9, epochs=1e4, prices=prices)
    assert rows(found)[256].spot_training_cost is None
    assert any("lost faster" in note for note in found.notes)


def test_accuracy_beside_throughput(tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.csv", "ResNet-152", 32)
    metric = tmp_path / "metrics.csv"
    metric.write_text("epoch,top1\n1,0.3\n2,0.6\n")
    found = scaled(tables=(table,), images=2980, prices=Prices(per_hour=36.0), metrics=((16, metric),),
                   reach=(Reach(0.5), Reach(0.9)))  # fmt: skip
    first, never = found.times_to
    assert first.reached_s == pytest.approx(2 * 2980 / 298.03)
    assert first.cost == pytest.approx((first.reached_s or 0) / 100)
    assert first.samples_per_s == 298.03
    assert (never.reached_s, never.cost) == (None, None)
    far = scaled(tables=(table,), images=2980, metrics=((64, metric),), reach=(Reach(0.5),)).times_to[0]
    assert not far.measured


def test_runs_of_different_trainings_are_refused(tmp_path: Path) -> None:
    one = ranked(tmp_path / "one", 1, 1200.0)
    other = ranked(tmp_path / "other", 2, 2200.0)
    text = (other / "run.json").read_text().replace("resnet50", "resnet18")
    (other / "run.json").write_text(text)
    result = (other / "result.json").read_text().replace("resnet50", "resnet18")
    (other / "result.json").write_text(result)
    with pytest.raises(UsageError, match=r"the model differs: resnet50 in .*one, resnet18 in .*other"):
        scaled(runs=(one, other))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no run was named"),
        ({"to": (0,)}, "--to 0"),
        ({"to": tuple(range(1, 200))}, "--to names 199"),
        ({"to": (24,)}, "--to 24: hosts have 16"),
        ({"per_host": 0}, "--per-host 0"),
        ({"per_host": 8}, "--per-host 8: .* has 16 accelerators in 1 host"),
        ({"images": -1}, "--images -1"),
        ({"epochs": 0.0}, "--epochs 0"),
        ({"reach": (Reach(float("nan")),), "metrics": ((None, Path("m.csv")),)}, "--reach nan"),
        ({"reach": (Reach(0.5),)}, "--reach needs"),
        ({"metric_name": "x"}, "--metric-name x"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    chosen = ScaleOptions(**options)
    if options:
        chosen = replace(chosen, tables=(write_table(tmp_path / "t.csv", "AlexNet", 16),))
    with pytest.raises(UsageError, match=message):
        scale(chosen)


def test_a_table_without_hosts_needs_their_size(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("accelerators,rate\n1,10\n8,70\n")
    with pytest.raises(UsageError, match="how many hosts"):
        scaled(tables=(table,))
    assert rows(scaled(tables=(table,), per_host=4))[8].hosts == 2


def test_of_large_numbers_in_a_table_the_hosts_are_not_guessed_from_a_small_run(tmp_path: Path) -> None:
    """Sixteen accelerators are not in sixteen hosts because a run had one."""
    table = tmp_path / "t.csv"
    table.write_text("accelerators,rate\n8,7000\n16,13000\n")
    one = ranked(tmp_path / "one", 1, 1200.0)
    with pytest.raises(UsageError, match="how many hosts"):
        scaled(runs=(one,), tables=(table,))
    assert rows(scaled(runs=(one,), tables=(table,), per_host=8))[16].hosts == 2


def test_storage_that_hosts_share_is_in_the_predictions(tmp_path: Path) -> None:
    """One host gets 1,000/s, four that are measured together get 2,000/s."""
    one = ranked(tmp_path / "one", 1, 1000.0)
    four = of_hosts(tmp_path / "four", (500.0,) * 4)
    found = scaled(runs=(one, four), to=(2, 4, 8))
    by_count = rows(found)
    assert [by_count[count].samples_per_s for count in (2, 4, 8)] == [2000.0, 2000.0, 2000.0]
    assert by_count[4].measured
    assert by_count[8].interval is not None
    assert by_count[8].interval[1] < 2500
    assert "no more than 4 hosts got" in by_count[8].source
    assert any("4 hosts that were measured together (--hosts) got 50 %" in note for note in found.notes)
    slow = of_hosts(tmp_path / "slow", (1000.0, 1000.0, 1000.0, 600.0))
    found = scaled(runs=(one, slow), to=(8,))
    assert rows(found)[4].samples_per_s == 2400.0, "each step waits for the slowest host"


def test_what_cannot_be_predicted_is_said(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("accelerators,hosts,rate\n1,1,10\n16,2,140\n")
    found = scaled(tables=(table,), to=(8, 32))
    assert list(rows(found)) == [1, 16]
    assert any(note.startswith("32 accelerators: not predicted, because neither") for note in found.notes)
    assert rows(found)[16].efficiency_across_hosts is None
    assert not any("not predicted" in note for note in scaled(tables=(table,)).notes), "nobody asked for them"


def test_as_many_accelerators_in_fewer_hosts_are_a_row_of_their_own(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("accelerators,hosts,rate\n1,1,20\n16,1,298\n16,2,310\n8,1,155\n2,2,39\n")
    found = scaled(tables=(table,), to=(32,))
    assert [(row.accelerators, row.hosts) for row in found.rows] == [(1, 1), (2, 2), (8, 1), (16, 1), (16, 2), (32, 2)]
    two = found.rows[1]
    assert (two.efficiency_across_hosts, two.communication_frac) == (None, None), "its hosts are not full"
    assert any("fewer than 16 accelerators in use" in note for note in found.notes)
