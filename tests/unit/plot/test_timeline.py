"""What a timeline says where something is missing: readings, an accelerator, the end of a warm-up, a step's work."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.text import Text

from pipetune import plot
from pipetune.diagnosis import causes
from pipetune.records.observation import LOADER_WAIT, NVML, GpuReading, Reading
from pipetune.records.sweep import StepTime
from pipetune.records.watch import Stall, Verdict
from pipetune.runs.load import load
from pipetune.runs.run import OBSERVE, Run
from pipetune.store.columns import columns_of
from pipetune.watching.rank import not_started
from tests.run_folders import BEGAN_NS, readings, steps, watch_folder
from tests.unit.plot.drawn import panels, texts
from tests.watch_fakes import stall, verdict, window

NO_ACCELERATOR = "no accelerator could be read"
NO_READINGS = "a log has no readings"


def log_of(tmp_path: Path, *verdicts: Verdict, stalls: tuple[Stall, ...] = ()) -> Run:
    """The log of a watch with a window of 10 s per verdict, the first of which opens 2 s after the start."""
    log = tmp_path / "watch.jsonl"
    windows = [
        window(number=number + 1, started_unix_s=1.7e9 + 2 + 10 * number, verdicts=(one,))
        for number, one in enumerate(verdicts)
    ]
    watch_folder(tmp_path / "run", windows, stalls, log=log)
    return load(log)


def observed(all_steps: list[StepTime], all_readings: list[Reading], *, warmup_steps: int = 0) -> Run:
    run = Run(
        path=Path("here"), kind=OBSERVE, info={"warmup_steps": warmup_steps}, result={}, candidates=("main",),
        problems=(),
    )  # fmt: skip
    run.keep("main", columns_of(all_readings, all_steps))
    return run


def notes(ax: Axes) -> str:
    return panels(ax)[-1].get_xlabel()


def test_the_timeline_of_a_log_says_that_it_has_no_readings(tmp_path: Path, ax: Axes) -> None:
    # Before training began nothing is known of the accelerator, and the verdict's source stands for nothing.
    run = log_of(tmp_path, not_started(4000, None, 10.0), verdict(source=NVML))
    plot.stall_timeline(run, ax=ax)

    assert NO_READINGS in notes(ax)
    assert NO_ACCELERATOR not in notes(ax)


def test_a_log_of_a_watch_that_saw_no_accelerator_says_that_too(tmp_path: Path, ax: Axes) -> None:
    plot.stall_timeline(log_of(tmp_path, verdict(source=LOADER_WAIT, util_frac=None)), ax=ax)

    assert NO_READINGS in notes(ax)
    assert NO_ACCELERATOR in notes(ax)


def test_the_timeline_of_a_log_is_as_long_as_its_windows(tmp_path: Path, ax: Axes) -> None:
    late = stall(t_start_ns=BEGAN_NS + 20 * 10**9, t_end_ns=BEGAN_NS + 22 * 10**9)
    for number, stalls in enumerate([(), (late,)]):
        plot.stall_timeline(log_of(tmp_path / f"{number}", *[verdict()] * 6, stalls=stalls), ax=ax)

        assert panels(ax)[0].get_xlim() == pytest.approx((2.0, 62.0))


def test_stalls_of_a_log_that_are_too_short_to_see_are_in_no_busy_share(tmp_path: Path, ax: Axes) -> None:
    short = stall(t_start_ns=BEGAN_NS + 5 * 10**9, t_end_ns=BEGAN_NS + 5 * 10**9 + 1000)
    plot.stall_timeline(log_of(tmp_path, verdict(), stalls=(short,)), ax=ax)

    assert "1 of 1 stalls are shorter than a pixel" in notes(ax)
    assert "busy share, not shaded" not in notes(ax)


@pytest.mark.parametrize("warmup_steps", [5, 10, 99])
def test_a_warmup_is_grey_also_where_the_loop_ended_in_it(warmup_steps: int, ax: Axes) -> None:
    plot.stall_timeline(observed(steps(10), readings(10), warmup_steps=warmup_steps), ax=ax)

    shaded = [patch for patch in panels(ax)[0].patches if patch.get_facecolor()[:3] == pytest.approx(RULE_RGB)]
    (box,) = [patch.get_extents().transformed(panels(ax)[0].transData.inverted()) for patch in shaded]
    assert (box.x0, box.x1) == pytest.approx((0.0, min(1.0, 0.1 * warmup_steps)))
    assert "grey: warm-up" in notes(ax)


RULE_RGB = [int(plot.style.RULE[at : at + 2], 16) / 255 for at in (1, 3, 5)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_single_value_is_a_mark(count: int, tmp_path: Path, ax: Axes) -> None:
    few = readings(count, gpu=GpuReading(util_pct=40.0))
    run = observed([], few)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of an axis without a length
        plot.stall_timeline(run, ax=ax)

    busy, cpu = panels(ax)
    assert len(cpu.lines) == 4
    assert {line.get_marker() for line in cpu.lines} == {"o"}
    assert [line.get_marker() for line in busy.lines] == (["o"] if count == 1 else ["None"])
    assert {"CPU busy", "iowait (unreliable)", "waits for a core (PSI)"} <= set(texts(ax))


def test_a_damaged_step_leaves_the_busy_share_of_the_others(ax: Axes) -> None:
    damaged = steps(20)
    damaged[5] = dataclasses.replace(damaged[5], compute_s=float("nan"))
    plot.stall_timeline(observed(damaged, readings(20)), ax=ax)

    (stairs,) = [patch for patch in panels(ax)[0].patches if hasattr(patch, "get_data")]
    values = np.asarray(stairs.get_data().values)
    assert np.isfinite(values).all()
    assert values.mean() == pytest.approx(100 * 0.06 * 19 / 2.0, abs=0.5)
    assert "1 damaged step is drawn as not busy" in notes(ax)


@pytest.mark.parametrize("count", [1, 4, 7])
def test_the_legend_leaves_room_for_the_title(count: int, tmp_path: Path, ax: Axes) -> None:
    named = [name for name in causes.CAUSES if name != causes.HEALTHY][:count]
    stalls = tuple(
        stall(t_start_ns=BEGAN_NS + 2 * n * 10**9, t_end_ns=BEGAN_NS + (2 * n + 1) * 10**9, cause=cause)
        for n, cause in enumerate(named)
    )
    run = load(watch_folder(tmp_path / "run", [window()], stalls))
    plot.stall_timeline(run, ax=ax, title="the title")
    texts(ax)

    (title,) = [text for text in ax.findobj(Text) if text.get_text() == "the title"]
    legend = panels(ax)[0].get_legend()
    assert len(legend.get_texts()) == count
    rows = [text.get_window_extent() for text in legend.get_texts()]
    assert max(row.y1 for row in rows) <= title.get_window_extent().y0
