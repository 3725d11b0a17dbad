from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.diagnosis import causes
from pipetune.records.set_up import SetUp
from pipetune.records.sweep import Measurement, Outcome, RankShare
from pipetune.report.columns import COLUMNS, Cell, Mark, Surface, cells_of, columns_of, format_energy, mark_of
from tests.fakes import outcome
from tests.unit.sweeping.test_result import BROKEN, CEILING, DEFAULT, TUNED, sweep_result

RESULT = sweep_result(CEILING, DEFAULT, TUNED, BROKEN)


def row(found: Outcome, surface: Surface = Surface.TERMINAL) -> dict[str, Cell]:
    columns = columns_of(surface, RESULT)
    cells = cells_of(columns, RESULT, found)
    return {column.name: cell for column, cell in zip(columns, cells, strict=True)}


def test_a_measured_candidate_has_a_text_and_a_number_in_each_column() -> None:
    assert row(TUNED) == {
        "candidate": ("opencv, 2 workers, prefetch 2", "opencv-w2-p2-b64"),
        "rate": ("1,200/s ±2.0 %", 1200.0),
        "goodput": ("96 %", 0.96),
        "util": ("96 %", 96.0),
        "data_wait": ("20 %", 0.2),
        "cores": ("1.0", 1.0),
        "cpu_idle": ("50 %", 50.0),
        "pixels": ("25 dB", 25),
        "memory": ("512 MiB", 2**29),
        "first_batch": ("400.0 ms", 0.4),
        "cause": (causes.title_of(causes.HEALTHY), causes.HEALTHY),
        "iowait": ("0 %", 0.0),
    }


def test_what_was_not_measured_is_none_and_never_zero() -> None:
    optional = ("goodput", "gpu_util_pct", "cores_used", "cpu_idle_pct", "pss_bytes", "iowait_pct")
    blind = outcome("opencv", 2, **dict.fromkeys(optional))
    found = row(blind)

    assert [name for name, cell in found.items() if cell == (None, None)] == [
        "goodput", "util", "cores", "cpu_idle", "memory", "iowait",
    ]  # fmt: skip


def test_utilisation_has_no_column_on_a_device_that_tells_none() -> None:
    unread = replace(RESULT, ranking=(outcome("opencv", 2, gpu_util_pct=None),))
    assert "util" in [column.name for column in columns_of(Surface.TERMINAL, RESULT)]
    assert "util" not in [column.name for column in columns_of(Surface.TERMINAL, unread)]


def test_a_failure_has_its_name_and_its_kind() -> None:
    found = row(BROKEN)

    assert found.pop("candidate").text == "dali, 2 threads, prefetch 2"
    assert found.pop("cause") == ("killed", "killed")
    assert set(found.values()) == {Cell(None, None)}


def test_exact_pixels_sort_above_all_others() -> None:
    exact, close = row(DEFAULT)["pixels"], row(outcome("torchvision", 1))["pixels"]

    assert exact.text == "="
    assert isinstance(exact.sort, float)
    assert isinstance(close.sort, (int, float))
    assert exact.sort > close.sort


@pytest.mark.parametrize("surface", Surface)
def test_every_surface_begins_with_candidate_and_rate_in_the_order_of_the_list(surface: Surface) -> None:
    names = [column.name for column in columns_of(surface, RESULT)]

    assert names[:2] == ["candidate", "rate"]
    assert names == [column.name for column in COLUMNS if column.name in names]


def test_each_column_has_a_name_of_its_own() -> None:
    assert len({column.name for column in COLUMNS}) == len(COLUMNS)
    assert len({column.header for column in COLUMNS}) == len(COLUMNS)


def test_only_figures_of_an_emulated_accelerator_say_so() -> None:
    real = replace(RESULT, accelerator=replace(RESULT.accelerator, kind="cuda"))

    marked = [column.name for column in COLUMNS if column.header_in(RESULT).startswith("EMULATED ")]

    assert marked == ["util"]
    assert [column.header_in(real) for column in COLUMNS] == [column.header for column in COLUMNS]


def test_rows_are_marked() -> None:
    missed = sweep_result(CEILING, DEFAULT, outcome("opencv", 2, rate=600.0))

    assert [mark_of(RESULT, found) for found in RESULT.ranking] == [Mark.RECOMMENDED, Mark.DEFAULT, None]
    assert missed.recommended is not None
    assert mark_of(missed, missed.recommended) is Mark.NEAREST


def test_a_column_reads_nothing_but_the_outcome() -> None:
    other = replace(TUNED, measurement=_doubled(TUNED.measurement))
    assert row(other)["rate"].sort == 2400.0


def _doubled(m: Measurement | None) -> Measurement:
    assert m is not None
    return replace(m, samples_per_s=2 * m.samples_per_s)


def test_waiting_for_ranks_has_a_column_where_there_are_several() -> None:
    share = RankShare(
        rank=0, samples_per_s=600.0, goodput=0.9, data_wait_frac=0.1, accelerator_idle_frac=0.1, others_wait_frac=0.07
    )
    assert "rank_wait" not in row(TUNED)
    together = outcome("opencv", 2, ranks=(share, replace(share, rank=1)), others_wait_frac=0.07)
    result = sweep_result(CEILING, DEFAULT, together)
    columns = columns_of(Surface.MARKDOWN, result)
    cells = dict(zip((column.name for column in columns), cells_of(columns, result, together), strict=True))
    assert cells["rank_wait"] == ("7.0 %", 0.07)


def test_what_only_a_gpu_tells_has_a_column_where_one_candidate_has_it() -> None:
    of_gpu = ("energy", "jpeg_engine", "pcie_in", "pcie_out", "gpu_clock", "gpu_power", "set_up")
    assert not set(of_gpu) & {column.name for surface in Surface for column in columns_of(surface, RESULT)}
    told = outcome(
        "opencv", 2, energy_j_per_1000_samples=350.0, jpeg_util_pct=12.0, pcie_rx_bytes_per_s=4.13e9,
        pcie_tx_bytes_per_s=12e6, gpu_clock_mhz=1980.0, gpu_power_w=420.4, set_up=SetUp(start_s=0.5, context_s=2.0),
    )  # fmt: skip
    result = sweep_result(CEILING, DEFAULT, told)
    columns = columns_of(Surface.PAGE, result)
    cells = dict(zip((column.name for column in columns), cells_of(columns, result, told), strict=True))
    assert {name: cells[name].text for name in of_gpu} == {
        "energy": "350 J", "jpeg_engine": "12 %", "pcie_in": "4.1 GB/s", "pcie_out": "12 MB/s",
        "gpu_clock": "1980 MHz", "gpu_power": "420 W", "set_up": "2.5 s",
    }  # fmt: skip
    assert format_energy(1234.0) == "1.2 kJ"
    on_terminal = [column.name for column in columns_of(Surface.TERMINAL, result)]
    assert on_terminal[-5:] == ["energy", "jpeg_engine", "pcie_in", "gpu_power", "iowait"]
