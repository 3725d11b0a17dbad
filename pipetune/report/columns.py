"""The ranking's columns: one list for the terminal, the HTML page and Markdown. Pure.

The most important ones come first, because a narrow terminal drops columns from the right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from pipetune.candidates.describe import describe
from pipetune.diagnosis.causes import title_of
from pipetune.records.sweep import Candidate, Measurement, Outcome
from pipetune.search import meets
from pipetune.search.pooled import UNTUNED_NAME
from pipetune.sweeping.result import SweepResult, deviation_of
from pipetune.units import format_bytes, format_duration, format_percent, format_rate, format_share, significant

#: PSNR by which pixels equal to the reference's are sorted above all others (dB).
_EXACT_DB = 1000.0


class Surface(StrEnum):
    """Where a ranking is shown."""

    TERMINAL = "terminal"
    PAGE = "page"
    MARKDOWN = "markdown"


class Mark(StrEnum):
    """What one row of the ranking is, beyond a candidate."""

    RECOMMENDED = "recommended"
    NEAREST = "nearest to the target"
    DEFAULT = "PyTorch default"
    AS_IT_IS = "as you have it"


class Cell(NamedTuple):
    """One value of a row."""

    text: str | None
    """The text shown; ``None``: not measured, for which each surface has its own sign."""
    sort: float | str | None
    """The value that rows are sorted by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of the ranking."""

    name: str
    header: str
    read: Callable[[SweepResult, Outcome, Measurement], Any]
    """Outcome -> the column's value; ``None``: not measured."""
    show: Callable[[Any], str]
    """Value -> the text shown."""
    sort: Callable[[Any], float | str] = lambda value: value
    """Value -> what rows are sorted by."""
    numeric: bool = True
    """Whether it is aligned to the right and sorted as a number."""
    of_accelerator: bool = False
    """Whether it is about the accelerator: if that is emulated, the header says so."""
    surfaces: frozenset[Surface] = frozenset(Surface)
    of_ranks: bool = False
    """Whether it is about several ranks: it is left out where there is one."""
    where_read: bool = False
    """Whether it is left out where no candidate has a value, as where there is no GPU that tells."""

    def cell(self, result: SweepResult, outcome: Outcome) -> Cell:
        """The value of one row, which has a measurement."""
        value = None if outcome.measurement is None else self.read(result, outcome, outcome.measurement)
        return Cell(None, None) if value is None else Cell(self.show(value), self.sort(value))

    def header_in(self, result: SweepResult) -> str:
        """The header; ``EMULATED`` stands before a figure of an emulated accelerator."""
        emulated = self.of_accelerator and result.accelerator.kind == "emulated"
        return f"EMULATED {self.header}" if emulated else self.header


def format_interval(measurement: Measurement, unit: str = "/s") -> str:
    """``'1,234/s ±3.0 %'``: the rate and half the width of its 95 % interval."""
    half = (measurement.ci95[1] - measurement.ci95[0]) / 2 / measurement.samples_per_s
    return f"{format_rate(measurement.samples_per_s, unit)} ±{format_share(half)}"


def format_energy(joules: float) -> str:
    """``'85 J'``, ``'1.2 kJ'``."""
    return f"{joules / 1e3:.1f} kJ" if joules >= 1e3 else f"{significant(joules, 2)} J"


def format_traffic(bytes_per_s: float) -> str:
    """``'4.1 GB/s'``, ``'12 MB/s'``: powers of ten, as links are rated."""
    return f"{bytes_per_s / 1e9:.1f} GB/s" if bytes_per_s >= 1e9 else f"{bytes_per_s / 1e6:.0f} MB/s"


def pixels_of(candidate: Candidate) -> str:
    """How close its pixels are to Pillow's: ``=`` or ``38 dB`` (their PSNR at the worst crop scale)."""
    return _show_pixels(_psnr_db(candidate))


def mark_of(result: SweepResult, outcome: Outcome) -> Mark | None:
    """What is special about a row; ``None``: nothing."""
    # What stays as it is was not chosen, and need not be the nearest.
    if outcome is result.recommended and outcome.measurement is not None and not result.stays:
        return Mark.RECOMMENDED if meets(outcome.measurement, result.goal) else Mark.NEAREST
    if outcome.role != "baseline":
        return None
    return Mark.DEFAULT if result.untuned_name == UNTUNED_NAME else Mark.AS_IT_IS


def columns_of(surface: Surface, result: SweepResult) -> tuple[Column, ...]:
    """The columns that a surface shows."""
    ranks = any(outcome.measurement is not None and outcome.measurement.ranks for outcome in result.ranking)
    return tuple(
        column
        for column in COLUMNS
        if surface in column.surfaces
        and (ranks or not column.of_ranks)
        and (not column.where_read or _is_read(column, result))
    )


def _is_read(column: Column, result: SweepResult) -> bool:
    return any(column.cell(result, outcome).text is not None for outcome in result.ranking)


def cells_of(columns: tuple[Column, ...], result: SweepResult, outcome: Outcome) -> list[Cell]:
    """The cells of one row. A failed candidate has only its name and, as the cause, the kind of its failure."""
    if outcome.measurement is not None:
        return [column.cell(result, outcome) for column in columns]
    failure = outcome.failure.kind if outcome.failure else "not measured"
    known = {
        "candidate": Cell(describe(outcome.candidate), outcome.candidate.key),
        "cause": Cell(failure.replace("_", " "), failure),
    }
    return [known.get(column.name, Cell(None, None)) for column in columns]


def _psnr_db(candidate: Candidate) -> float:
    found = deviation_of(candidate)
    return _EXACT_DB if found is None else found.psnr_db


def _show_pixels(psnr_db: float) -> str:
    return "=" if psnr_db == _EXACT_DB else f"{psnr_db:.0f} dB"


def _cause(result: SweepResult, outcome: Outcome, _: Measurement) -> str | None:
    diagnosis = result.diagnose(outcome)
    return None if diagnosis is None else diagnosis.cause


_PAGE = frozenset({Surface.PAGE})
_NOT_BRIEF = frozenset({Surface.TERMINAL, Surface.PAGE})
COLUMNS: tuple[Column, ...] = (
    Column(name="candidate", header="candidate", read=lambda _, outcome, __: outcome.candidate, show=describe,
           sort=lambda candidate: candidate.key, numeric=False),
    Column(name="rate", header="rate", read=lambda _, __, m: m, show=format_interval,
           sort=lambda m: m.samples_per_s),
    Column(name="goodput", header="goodput", read=lambda _, __, m: m.goodput, show=format_share),
    Column(name="util", header="util", read=lambda _, __, m: m.gpu_util_pct, show=format_percent,
           of_accelerator=True, surfaces=_NOT_BRIEF, where_read=True),
    Column(name="data_wait", header="data wait", read=lambda _, __, m: m.data_wait_frac, show=format_share),
    Column(name="rank_wait", header="rank wait", read=lambda _, __, m: m.others_wait_frac, show=format_share,
           of_ranks=True),
    Column(name="cores", header="cores", read=lambda _, __, m: m.cores_used, show=lambda cores: f"{cores:.1f}"),
    Column(name="cpu_idle", header="CPU idle", read=lambda _, __, m: m.cpu_idle_pct, show=format_percent,
           surfaces=_NOT_BRIEF),
    Column(name="pixels", header="pixels", read=lambda _, outcome, __: _psnr_db(outcome.candidate), show=_show_pixels),
    Column(name="memory", header="memory", read=lambda _, __, m: m.pss_bytes, show=format_bytes,
           surfaces=_NOT_BRIEF),
    Column(name="first_batch", header="first batch", read=lambda _, __, m: m.time_to_first_batch_s,
           show=format_duration, surfaces=_NOT_BRIEF),
    Column(name="set_up", header="set-up", read=lambda _, __, m: None if m.set_up is None else m.set_up.total_s,
           show=format_duration, surfaces=_PAGE, where_read=True),
    Column(name="gpu_clock", header="GPU clock", read=lambda _, __, m: m.gpu_clock_mhz,
           show=lambda mhz: f"{mhz:.0f} MHz", surfaces=_PAGE, where_read=True),
    Column(name="cause", header="cause", read=_cause, show=title_of, numeric=False),
    Column(name="energy", header="energy per 1,000", read=lambda _, __, m: m.energy_j_per_1000_samples,
           show=format_energy, surfaces=_NOT_BRIEF, where_read=True),
    Column(name="jpeg_engine", header="JPEG engine", read=lambda _, __, m: m.jpeg_util_pct, show=format_percent,
           surfaces=_NOT_BRIEF, where_read=True),
    Column(name="pcie_in", header="PCIe in", read=lambda _, __, m: m.pcie_rx_bytes_per_s, show=format_traffic,
           surfaces=_NOT_BRIEF, where_read=True),
    Column(name="pcie_out", header="PCIe out", read=lambda _, __, m: m.pcie_tx_bytes_per_s, show=format_traffic,
           surfaces=_PAGE, where_read=True),
    Column(name="gpu_power", header="GPU power", read=lambda _, __, m: m.gpu_power_w,
           show=lambda watts: f"{watts:.0f} W", surfaces=_NOT_BRIEF, where_read=True),
    Column(name="iowait", header="iowait", read=lambda _, __, m: m.iowait_pct, show=format_percent,
           surfaces=frozenset({Surface.TERMINAL})),
)  # fmt: skip
