from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.records.scaling import Scaling
from pipetune.report.html.build import scaling_page
from pipetune.report.scale_text import headline_of, lost_line, money, price_line, tables_of, text_table, time_to_lines
from pipetune.scaling.accuracy import Reach
from pipetune.scaling.price import Prices
from pipetune.scaling.scale import ScaleOptions, scale
from pipetune.scaling.scale_json import scale_json
from tests.published import write_table
from tests.unit.scaling.test_points import ranked


@pytest.fixture
def found(tmp_path: Path) -> Scaling:
    metric = tmp_path / "<b>.csv"
    metric.write_text("time_s,top1\n3600,0.3\n7200,0.6\n")
    return scale(ScaleOptions(
        tables=(write_table(tmp_path / "t.csv", "AlexNet", 32),), images=1_281_167, epochs=90,
        prices=Prices(per_hour=14.4, currency="$"), metrics=((16, metric), (None, metric)),
        reach=(Reach(0.5), Reach(0.9)),
    ))  # fmt: skip


def test_tables_have_what_is_known(found: Scaling) -> None:
    titles = [title for title, _ in tables_of(found)]
    assert titles == ["Rates", "Time and cost"]
    names = [[column.name for column in columns] for _, columns in tables_of(found)]
    assert names[0] == ["accelerators", "hosts", "", "rate", "interval", "efficiency", "in host", "across"]
    assert names[1] == ["accelerators", "epoch", "its cost", "training", "its cost"]


def test_of_runs_the_time_is_known_too(tmp_path: Path) -> None:
    runs = (ranked(tmp_path / "one", 1, 1200.0), ranked(tmp_path / "four", 4, 4000.0))
    _, times, costs = tables_of(scale(ScaleOptions(runs=runs)))
    assert [column.name for column in times[1]][:4] == ["accelerators", "computes", "has no batch", "waits for others"]
    assert [column.name for column in costs[1]] == ["accelerators", "epoch"]


def test_a_narrow_terminal_has_the_columns_that_matter(found: Scaling) -> None:
    columns = tables_of(found)[0][1]
    assert len(text_table(found.rows, columns, 79).columns) == 5
    assert len(text_table(found.rows, columns, 160).columns) == 8


def test_sentences(found: Scaling) -> None:
    assert headline_of(found) == (
        "32 accelerators: 7,946 samples/s measured, 54 % of as many single ones; 256: 60,196 samples/s predicted, "
        "51 % of as many single ones"
    )
    assert lost_line(found) == (
        "Most of what is lost with 256 accelerators is lost inside each host: 42 % inside, 11 % between."
    )
    assert price_line(found) == "A host with 16 accelerators costs $14.40 per hour."
    first, never, unnamed, _ = time_to_lines(found)
    assert first.startswith("16 accelerators (")
    assert first.endswith("top1 of 0.5 or more after 2 h 00 min, at 4,244 samples/s, $28.80")
    assert never.endswith("top1 did not reach 0.9 or more; 0.6 at best")
    assert not unnamed.startswith("16 accelerators")
    assert "top1 of 0.5 or more after 2 h 00 min" in unnamed
    assert not unnamed.endswith("$28.80")


def test_what_was_not_measured_across_hosts_is_not_blamed_on_them(tmp_path: Path) -> None:
    found = scale(ScaleOptions(tables=(write_table(tmp_path / "t.csv", "AlexNet", 16),)))
    assert lost_line(found) is None


def test_what_is_predicted_says_so(tmp_path: Path) -> None:
    metric = tmp_path / "m.csv"
    metric.write_text("date,top1\n2026-01-01T10:00:00,0.3\n2026-01-01T11:00:00,0.6\n")
    found = scale(ScaleOptions(
        tables=(write_table(tmp_path / "t.csv", "AlexNet", 32),), metrics=((64, metric),), reach=(Reach(0.5),)
    ))  # fmt: skip
    (text,) = time_to_lines(found)
    assert text.endswith("after 1 h 00 min, at 15,399 samples/s as predicted, counted from the first line of its file")


def test_money() -> None:
    assert [money(value, "$") for value in (720.0, 14.4, 0.0123, None)] == ["$720", "$14.40", "$0.0123", "-"]
    assert money(3.4, "EUR") == "3.40 EUR"
    assert money(12.5, "") == "12.50"


def test_the_page_escapes_names(found: Scaling) -> None:
    pytest.importorskip("matplotlib", reason="figures are drawn with matplotlib")
    page = scaling_page(found, result=scale_json(found))
    assert "<b>.csv" not in page
    assert "&lt;b&gt;.csv" in page
    assert page.count("<svg") == 2
    assert "60,196" in page
