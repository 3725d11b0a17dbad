"""Every figure that people read comes from a stored result, from a constant of the program, or is a definition."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist

import pytest

from benchmarks.gpu.leasing import archive, stages
from docs import parts
from docs.parts import promises, results
from pipetune.accelerator import named
from pipetune.child import bad_images
from pipetune.datasets.photo_like import PROFILES
from pipetune.diagnosis import causes
from pipetune.explaining import conclude, subset
from pipetune.hook import epochs, keep_files, keeping
from pipetune.machine.nvml import figure_spans, signals, utilisation
from pipetune.measure import phases
from pipetune.measure.script import remarks
from pipetune.predicting import model, observed, page_cache, past_errors
from pipetune.protection import guard, room
from pipetune.report import script_text
from pipetune.scaling import batch_size, cluster, predict
from pipetune.search import costs, effort
from pipetune.stats import drift, noise
from pipetune.stats.intervals import Z95, ratio_interval
from pipetune.store import read, regular
from pipetune.watching import session
from tests import ROOT, published
from tests.docs import pages
from tests.fakes import measurement

README = ROOT / "README.md"
FIGURE = re.compile(
    r"(?<![\w.])\d[\d.,]*\s?(?:%|dB|times|MB|GB|GiB|MiB|kB|ms|s|px|seconds|minutes|cores?|hours?)(?!\w)"
)
#: The ratio of two equal rates that are known to 17 % each.
RATIO = ratio_interval(100.0, (83.0, 117.0), measurement(samples_per_s=100.0, ci95=(83.0, 117.0)))
#: Figures that are written by hand, and why they are true.
DEFINED: dict[str, Callable[[], bool]] = {
    "95 %": lambda: round(NormalDist().inv_cdf(0.975), 2) == Z95,
    "100 %": lambda: True,  # shares sum up to it
    "800 s": lambda: sum(stage.cap_s for stage in stages.STAGES) <= stages.MAX_TOTAL_S == 800,
    "400 s": lambda: stages.MAX_CALL_S <= 400,
    "15 minutes": lambda: stages.MAX_TOTAL_S + 60 < 15 * 60,  # a GPU takes a minute or two to start
    "15 MiB": lambda: archive.MAX_ARCHIVE_BYTES == 15 << 20,
    "48 dB": lambda: round(20 * math.log10(255)) == 48,  # one grey level everywhere
    "2 %": lambda: remarks._OTHER_LOADERS_FRAC == script_text._LEAST_RESTART_FRAC == 0.02,
    "20 s": lambda: bad_images.LONGEST_S == 20,
    "3 %": lambda: batch_size._USABLE == (0.94, 0.97),
    "3 dB": lambda: costs.SAME_PIXELS_DB == 3,
    "1.5 s": lambda: 1.5 in vars(phases).values(),
    "5 %": lambda: drift.STEADY_LIMIT == noise.LOADER_BOUND == 0.05,
    "15 %": lambda: phases.STEADY_BY_CHANCE == 0.15,
    "0.4 s": lambda: phases.WARMUP_WINDOW_S == 0.4,
    "25 %": lambda: effort.MAY_BE_FASTER == 0.25,
    "6 %": lambda: round(noise.PRIOR * math.sqrt(3 / 2.366), 2) == 0.06,  # median of the prior; chi-square: 2.366
    "17 %": lambda: [round(end, 2) for end in RATIO] == [0.79, 1.27],
    "17.5 %": lambda: round(Z95 * noise.run_noise([]), 3) == 0.175,
    "500 px": lambda: PROFILES["imagenet"].long_edge == 500,
    # Docker's documentation: --shm-size; and what is read of a run folder.
    "64 MiB": lambda: read.MOST_OUTCOMES_BYTES == regular.MOST_OBJECT_BYTES == 64 << 20,
    "256 MiB": lambda: regular.MOST_LINES_BYTES == keep_files.MAX_NAMED_BYTES == 256 << 20,
    "1 GiB": lambda: room.MAX_RESERVE_BYTES == 1 << 30,
    "2 GiB": lambda: guard.MAX_COPIED_BYTES == 2 << 30,
    "5 s": lambda: keeping.MAX_WAIT_FOR_END_S == 5,
    "64 times": lambda: epochs._STEPS_ON_KEPT == 64,
    "10 %": lambda: conclude.CLOSES == 0.10,
    "512 MiB": lambda: subset.MOST_BYTES == 512 << 20,
    "4 MiB": lambda: regular.MOST_LINE_BYTES == 4 << 20,
    "30 s": lambda: "--window 30s" in (ROOT / "docs/guides/ci.md").read_text(),
    "11 ms": lambda: named._LAUNCH_S == 0.011,
    "6 dB": lambda: "SLACK_DB = 6.0\n" in (ROOT / "tests/contract/test_deviation.py").read_text(),
    "45 %": lambda: causes.MAX_UNDETERMINED == 0.45,
    "10 s": lambda: session._SETUP_S == 10,
    "90 %": lambda: past_errors.COVERED == 0.9,
    "4 %": lambda: observed.CONTENTION == 0.04,
    "7 %": lambda: model.OVERSUBSCRIBED == 0.07,
    "9 %": lambda: (
        round(max(1 - rates[-1] / (16 * rates[4]) for rates in published.RATES.values()), 2)
        == predict.UNKNOWN_COMMUNICATION
    ),
    "97 %": lambda: batch_size.NEAR == 0.97,
    "120 s": lambda: cluster.Cluster().signal_s == 120,
    "50 %": lambda: page_cache.hits(0.5)[2] == 0.5,
    "1 s": lambda: figure_spans.MAX_PERIOD_NS == 1e9,
    "3 s": lambda: utilisation.MAX_AGE_NS == 3e9,
    "0.2 %": lambda: signals.USUAL_PACE.wall_share == 0.002,
    "0.03 %": lambda: signals.USUAL_PACE.cpu_share == 0.0003,
    "1.5 %": lambda: signals.UTILISATION_PACE.wall_share == 0.015,
    "0.3 %": lambda: signals.UTILISATION_PACE.cpu_share == 0.003,
    "1 ms": lambda: 0.001 / signals.UTILISATION_PACE.wall_share < 0.1,  # ten values a second
    "80 %": lambda: "--fail-under 0.8" in (ROOT / "docs/guides/ci.md").read_text(),
}
ALL = [promise for group in promises.PROMISES.values() for promise in group]


@pytest.mark.parametrize("path", pages.PAGES, ids=pages.IDS)
def test_figures_by_hand(path: Path) -> None:
    """One that is not defined here has to come from a stored result: see ``docs/parts/promises.py``."""
    for figure in FIGURE.findall(pages.prose(path)):
        assert figure in DEFINED, figure


@pytest.mark.parametrize("figure", DEFINED)
def test_definitions(figure: str) -> None:
    assert DEFINED[figure]()
    assert any(figure in FIGURE.findall(pages.prose(path)) for path in pages.PAGES), "not used any more"


@pytest.mark.parametrize("path", pages.PAGES, ids=pages.IDS)
def test_what_is_generated_is_up_to_date(path: Path) -> None:
    text = pages.source(path)
    assert parts.fill(text, keep_marks=True) == text, "run: python -m docs.parts"


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 150


@pytest.mark.parametrize("promise", ALL, ids=lambda promise: promise.benchmark)
def test_a_statement_has_its_program_and_result(promise: promises.Promise) -> None:
    assert (ROOT / "benchmarks" / promise.script).exists()
    stored = results.stored(promise.benchmark)
    assert (results.RESULTS / stored["file"]).exists()
    assert promise.statement()


def test_every_result_is_stated() -> None:
    """No result lies there unread; the measured grids are what ``search_regret`` plays on."""
    stored = {json.loads(path.read_text())["benchmark"] for path in results.RESULTS.glob("*.json")}
    assert stored == {promise.benchmark for promise in ALL} | {"search_grids", "pillow_simd"}


def test_a_missing_result_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    results.stored.cache_clear()
    try:
        assert {promise.statement() for promise in ALL} == {"not measured yet"}
    finally:
        results.stored.cache_clear()


def test_a_full_run_is_preferred(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, date in (("quick-2026-11-23", "2026-11-23"), ("2026-11-20", "2026-11-20"), ("2026-11-21", "2026-11-21")):
        (tmp_path / f"x-{name}.json").write_text(json.dumps({"benchmark": "x", "date": date}))
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    results.stored.cache_clear()
    assert results.stored("x")["date"] == "2026-11-21"
    results.stored.cache_clear()
