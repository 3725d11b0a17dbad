"""Each figure is drawn and asked what it shows; its appearance was checked by eye."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipetune import plot
from pipetune.candidates.describe import describe
from pipetune.diagnosis import causes
from pipetune.errors import MissingPackageError, UsageError
from pipetune.records.sweep import Failure
from pipetune.registry import BACKENDS
from pipetune.runs.load import load
from pipetune.runs.run import Run
from pipetune.store.folder import RunFolder
from tests.fakes import outcome
from tests.run_folders import CEILING, DEFAULT, TIMED, TUNED, readings, steps, sweep_folder, watch_folder
from tests.unit.plot.drawn import panels, texts
from tests.watch_fakes import stall, verdict, window

mpl.use("agg")


@pytest.fixture
def sweep(tmp_path: Path) -> Run:
    return load(sweep_folder(tmp_path / "run"))


@pytest.fixture(autouse=True)
def no_figure_left() -> Iterator[None]:
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def shaded(panel: Axes) -> list[tuple[float, float]]:
    """Spans of the stalls."""
    found = []
    for bars in panel.collections:
        for path in bars.get_paths():
            box = path.get_extents()
            if box.height == pytest.approx(100):
                found.append((box.x0, box.x1))
    return sorted(found)


def test_the_timeline_shades_each_stall_and_shares_one_clock(sweep: Run, ax: Axes) -> None:
    assert plot.stall_timeline(sweep, "default", ax=ax) is ax

    busy, rhythm, cpu = panels(ax)
    stalls = sweep.stalls("default")
    assert np.array(shaded(busy)) == pytest.approx(stalls[["start_s", "end_s"]].to_numpy())
    assert busy.get_xlim() == rhythm.get_xlim() == cpu.get_xlim() == (0.0, 4.0)
    assert busy.get_ylabel() == "busy (%)"
    assert rhythm.get_ylabel() == "time (ms)"
    assert "time (s)" in cpu.get_xlabel()
    assert "pillow, no workers: 40 % of 3.0 s lost in 30 stalls" in texts(ax)
    assert "stall: loading without workers" in texts(ax)
    assert "EMULATED accelerator busy (from the steps)" in texts(ax)
    assert "grey: warm-up" in cpu.get_xlabel()


def test_without_ax_a_figure_is_made(sweep: Run) -> None:
    made = plot.stall_timeline(sweep, title="mine")

    assert made.get_title(loc="left") == "mine"
    assert made.figure.get_size_inches()[0] == 8.0


@pytest.fixture
def long_run(tmp_path: Path) -> Run:
    """20,000 steps of 10 ms with a stall of 2 ms each, one of them 4 s long."""
    path = sweep_folder(tmp_path / "run", [CEILING])
    all_steps = steps(20_000, period_s=0.01, work_s=0.008)
    late = all_steps[12_345]
    held = outcome("pillow", 0, rate=640.0, role="baseline", **TIMED | {"steps": 19_000, "warmup_batches": 1000})
    import dataclasses

    all_steps[12_345] = dataclasses.replace(late, idle_s=4.0, data_wait_s=4.0, t_start_ns=late.t_start_ns - 4 * 10**9)
    with RunFolder(path) as folder:
        folder.append_outcome(held)
        folder.append_timeline(held.candidate.key, "step", all_steps)
        folder.append_timeline(held.candidate.key, "reading", readings(2000))
    return load(path)


def test_of_many_stalls_those_as_long_as_a_pixel_are_drawn_and_the_others_counted(long_run: Run, ax: Axes) -> None:
    plot.stall_timeline(long_run, "default", ax=ax)

    busy, rhythm, cpu = panels(ax)
    assert [end - start for start, end in shaded(busy)] == pytest.approx([4.0])
    assert "18,999 of 19,000 stalls are shorter than a pixel" in cpu.get_xlabel()
    assert "20,000 steps: per pixel the lowest to the highest value" in cpu.get_xlabel()
    highest = max(path.get_extents().y1 for bars in rhythm.collections for path in bars.get_paths())
    assert highest == pytest.approx(4000.0)
    assert sum(len(path.vertices) for bars in rhythm.collections for path in bars.get_paths()) < 20_000


def test_the_busy_share_of_thinned_steps_is_their_mean(long_run: Run, ax: Axes) -> None:
    plot.stall_timeline(long_run, "default", ax=ax)

    (stairs,) = [patch for patch in panels(ax)[0].patches if hasattr(patch, "get_data")]
    values = np.asarray(stairs.get_data().values)
    # Steps of 10 ms in columns of about 0.3 s: some end in the column and some reach over its border.
    assert np.median(values) == pytest.approx(80.0, abs=3)


def test_a_watch_shows_the_gpus_busy_share_and_its_own_stalls(tmp_path: Path, ax: Axes) -> None:
    path = watch_folder(tmp_path / "run", [window()], [stall(t_start_ns=7 * 10**9, t_end_ns=9 * 10**9)])
    plot.stall_timeline(load(path), ax=ax)

    busy, cpu = panels(ax)
    assert np.array(shaded(busy)) == pytest.approx(np.array([(1.5, 3.5)]))
    assert "stall: decoding on the CPU" in texts(ax)
    assert "no accelerator could be read" in cpu.get_xlabel()


def test_stalls_of_a_watch_are_not_called_all_that_was_lost(tmp_path: Path) -> None:
    busy_half = load(watch_folder(tmp_path / "half", [window()]))
    assert plot.timeline_title(busy_half) == "main: no stall"
    stalled = load(watch_folder(tmp_path / "run", [window()], [stall(lost_s=75.0), stall(lost_s=5.0)]))
    assert plot.timeline_title(stalled) == "main: 2 stalls, 1 min 20 s together"


def test_rates_have_intervals_a_ceiling_and_the_target(sweep: Run, ax: Axes) -> None:
    assert plot.rate_by_workers(sweep, ax=ax) is ax

    heights = sorted(line.get_ydata()[0] for line in ax.lines if line.get_linestyle() in ("-", ":"))
    assert {1250.0, 1125.0} <= set(heights)
    assert ax.get_xlabel() == "loader workers"
    assert ax.get_ylabel() == "rate (samples/s)"
    labels = texts(ax)
    assert {"pillow", "opencv", "recommended", "max ingestion rate of the EMULATED accelerator", "target 90%"} <= set(
        labels
    )
    bars = [segment for collection in ax.collections for segment in getattr(collection, "get_segments", list)()]
    assert sorted(round(s[1][1] - s[0][1], 3) for s in bars) == pytest.approx([25.6, 49.6])


def test_every_backend_looks_different() -> None:
    styles = [plot.style.backend_style(name) for name in [*BACKENDS, "my_loader"]]

    assert len(set(styles)) == len(styles)
    assert len({marker for _, marker in styles[: len(BACKENDS)]}) == len(BACKENDS)


def test_a_backend_looks_the_same_in_every_run(tmp_path: Path) -> None:
    drawn = []
    for number, backends in enumerate((["opencv", "dali"], ["dali"])):
        path = sweep_folder(
            tmp_path / f"{number}", [CEILING, *(outcome(name, 1, rate=500.0, **TIMED) for name in backends)]
        )
        figure = Figure()
        plot.rate_by_workers(load(path), ax=figure.subplots())
        handles, labels = figure.axes[0].get_legend_handles_labels()
        drawn.append(handles[labels.index("dali")].lines[0])

    assert drawn[0].get_color() == drawn[1].get_color()
    assert drawn[0].get_marker() == drawn[1].get_marker()


def test_threads_and_bytes_are_distinguished(tmp_path: Path, ax: Axes) -> None:
    plain = outcome("opencv", 1, rate=500.0, **TIMED)
    others = [
        replace(plain, candidate=replace(plain.candidate, **changes))
        for changes in ({"loader": "threads"}, {"loader": "threads", "transfer": "uint8"})
    ]
    path = sweep_folder(tmp_path / "run", [CEILING, plain, *others])
    plot.rate_by_workers(load(path), ax=ax)

    assert texts(ax).count("opencv") == 1
    assert {"dashed: threads", "hollow: uint8 batches"} <= set(texts(ax))
    hollow = [line for line in ax.lines if line.get_markerfacecolor() == "none" and len(line.get_xdata())]
    assert len(hollow) == 1


def test_the_parts_of_a_step_add_up_to_it(sweep: Run, ax: Axes) -> None:
    plot.step_parts(sweep, ax=ax)

    widths: dict[float, float] = {}
    for bar in ax.patches:
        widths[round(bar.get_y(), 3)] = widths.get(round(bar.get_y(), 3), 0.0) + bar.get_width()
    assert sorted(widths.values()) == pytest.approx([100.0, 100.0])  # ms, both folders have the same steps
    assert {"EMULATED accelerator busy", "idle: waiting for the batch"} <= set(texts(ax))
    assert "pillow, no workers (default)" in texts(ax)


def test_a_repeat_and_a_nearest_candidate_are_named_as_such(tmp_path: Path, ax: Axes) -> None:
    best = outcome("opencv", 2, rate=800.0, **TIMED)
    again = [replace(best, attempt=2), replace(best, block=1)]
    run = load(sweep_folder(tmp_path / "run", [CEILING, DEFAULT, best, *again]))
    assert run.result["status"] == "target_missed"

    assert plot.timeline_title(run, f"{best.candidate.key}-again2").startswith(
        f"{describe(best.candidate)} (repeat 2): "
    )
    plot.step_parts(run, ax=ax)
    assert "opencv, 2 workers, prefetch 2 (nearest to the target)" in texts(ax)
    assert "recommended" not in " ".join(texts(ax))


@pytest.mark.parametrize("stored", [{"status": "interrupted"}, {}], ids=["stopped", "killed"])
def test_what_misses_the_target_is_not_called_recommended_however_the_sweep_ended(
    tmp_path: Path, ax: Axes, stored: dict[str, str]
) -> None:
    best = outcome("opencv", 2, rate=800.0, **TIMED)
    run = load(sweep_folder(tmp_path / "run", [CEILING, DEFAULT, best]))
    run = replace(run, result={**stored, "recommended": {"key": best.candidate.key}})
    plot.rate_by_workers(run, ax=ax)
    legend = " ".join(text.get_text() for text in ax.get_legend().get_texts())
    assert "nearest to the target" in legend
    assert "recommended" not in legend
    assert "target 90%" in legend, "from run.json, where there is no result"


def test_of_a_candidate_whose_timeline_was_lost_the_idle_time_counts_as_the_inputs(sweep: Run, ax: Axes) -> None:
    (sweep.path / "timelines" / f"{DEFAULT.candidate.key}.jsonl").unlink()
    plot.step_parts(load(sweep.path), ax=ax)

    assert "pillow, no workers (default)" in texts(ax)
    assert sum(bar.get_width() for bar in ax.patches) == pytest.approx(200.0)


def test_two_runs_are_compared_in_what_they_have_in_common(sweep: Run, tmp_path: Path, ax: Axes) -> None:
    other = load(sweep_folder(tmp_path / "b", [CEILING, outcome("opencv", 2, rate=900.0, **TIMED)]))

    plot.compared(sweep, other, ax=ax, names=("before", "after"))

    assert [label.get_text() for label in ax.get_yticklabels()] == [describe(TUNED.candidate)]
    assert {"before", "after", "rate (samples/s)"} <= set(texts(ax))


def test_what_a_watch_lost_is_stacked_by_cause(tmp_path: Path, ax: Axes) -> None:
    windows = [window(number=n, started_unix_s=1.7e9 + 10 * n) for n in range(3)]
    plot.losses(load(watch_folder(tmp_path / "run", windows)), ax=ax)

    heights = sorted(round(bar.get_height(), 6) for bar in ax.patches)
    assert heights == pytest.approx([6.0] * 3 + [54.0] * 3)
    assert {"decoding on the CPU", "Python in the main process", "time lost (%)"} <= set(texts(ax))


def test_a_window_without_loss_says_so(tmp_path: Path, ax: Axes) -> None:
    healthy = verdict(cause=causes.HEALTHY, lost_frac=0.0, shares=())
    plot.losses(load(watch_folder(tmp_path / "run", [window(verdicts=(healthy,))])), ax=ax)

    assert "nothing was lost" in texts(ax)


def test_a_rank_is_chosen(tmp_path: Path, ax: Axes) -> None:
    run = load(watch_folder(tmp_path / "run", [window(verdicts=(verdict(rank=1), verdict(rank=0, lost_frac=0.2)))]))

    plot.losses(run, ax=ax)
    assert sum(bar.get_height() for bar in ax.patches) == pytest.approx(20.0)
    assert ax.get_ylabel() == "rank 0: time lost (%)"
    with pytest.raises(UsageError, match="no rank 7; there are 0, 1"):
        plot.losses(run, rank=7, ax=ax)


def test_figures_of_the_wrong_kind_of_run_say_which_would_do(sweep: Run, tmp_path: Path) -> None:
    watch = load(watch_folder(tmp_path / "watch", [window()]))
    empty = load(
        sweep_folder(tmp_path / "empty", [outcome("dali", 1, failure=Failure(kind="x", phase="y", message="z"))])
    )

    with pytest.raises(UsageError, match="is a run of pipetune watch, not of pipetune sweep"):
        plot.rate_by_workers(watch)
    with pytest.raises(UsageError, match="is a run of pipetune sweep, not of pipetune watch"):
        plot.losses(sweep)
    with pytest.raises(UsageError, match="nothing was measured"):
        plot.step_parts(empty)
    with pytest.raises(UsageError, match="no measured candidate in common"):
        plot.compared(sweep, load(sweep_folder(tmp_path / "b", [outcome("dali", 1)])))


def test_without_matplotlib_the_command_that_installs_it_is_reported(
    sweep: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingPackageError, match=r"pip install 'pipetune\[notebook\]'"):
        plot.rate_by_workers(sweep)
