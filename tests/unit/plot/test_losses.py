"""What is said of a watch's windows of which little was lost, or of which it is not known."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.axes import Axes

from pipetune import plot
from pipetune.diagnosis import causes
from pipetune.errors import UsageError
from pipetune.records.watch import Verdict
from pipetune.runs.load import load
from pipetune.runs.run import OBSERVE, Run
from pipetune.store.columns import columns_of
from pipetune.watching.rank import not_started
from tests.run_folders import steps, watch_folder
from tests.unit.plot.drawn import texts
from tests.watch_fakes import verdict, window

UNKNOWN = not_started(4000, None, 10.0)
LITTLE = verdict(cause=causes.HEALTHY, lost_frac=0.04, shares=())
NOTHING = verdict(cause=causes.HEALTHY, lost_frac=0.0, shares=())


def watch(tmp_path: Path, *verdicts: Verdict) -> Run:
    """One window of 10 s for each."""
    windows = [
        window(number=number + 1, started_unix_s=1.7e9 + 10 * number, verdicts=(one,))
        for number, one in enumerate(verdicts)
    ]
    return load(watch_folder(tmp_path / "run", windows))


def bars(ax: Axes) -> dict[str, list[tuple[float, float]]]:
    """Of each label where its bars begin, and how high they are."""
    return {
        str(held.get_label()): [(bar.get_x(), round(bar.get_height(), 6)) for bar in held.patches]
        for held in ax.containers
    }


def test_of_a_job_that_set_up_all_the_time_nothing_is_known(tmp_path: Path, ax: Axes) -> None:
    plot.losses(watch(tmp_path, UNKNOWN, UNKNOWN), ax=ax)

    assert bars(ax) == {"not known": [(0.0, 100), (10.0, 100)]}
    assert "not known" in texts(ax)
    assert "nothing was lost" not in " ".join(texts(ax))


def test_a_window_of_which_nothing_is_known_is_marked(tmp_path: Path, ax: Axes) -> None:
    plot.losses(watch(tmp_path, UNKNOWN, verdict()), ax=ax)

    drawn = bars(ax)
    assert drawn["not known"] == [(0.0, 100)]
    assert drawn["decoding on the CPU"] == [(10.0, 54.0)]
    assert ax.get_xlim() == (0.0, 20.0)
    assert any(bar.get_hatch() for bar in ax.patches)


def test_nothing_lost_beside_unknown_windows_is_said_of_the_others_only(tmp_path: Path, ax: Axes) -> None:
    plot.losses(watch(tmp_path, UNKNOWN, NOTHING), ax=ax)

    assert "nothing was lost where it is known" in texts(ax)


def test_what_is_too_little_to_have_causes_is_drawn(tmp_path: Path, ax: Axes) -> None:
    plot.losses(watch(tmp_path, LITTLE, verdict()), ax=ax)

    assert bars(ax)["not divided among causes"] == [(0.0, 4.0), (10.0, 0.0)]
    assert "nothing was lost" not in texts(ax)


def test_of_processes_without_a_rank_the_worst_is_drawn(tmp_path: Path, ax: Axes) -> None:
    several = (verdict(pid=1, lost_frac=0.5), verdict(pid=2, lost_frac=0.2))
    run = load(watch_folder(tmp_path / "run", [window(verdicts=several)]))
    plot.losses(run, ax=ax)

    (heights,) = {len(found) for found in bars(ax).values()}
    assert heights == 1
    assert sum(height for ((_, height),) in bars(ax).values()) == pytest.approx(50.0)
    assert ax.get_ylabel() == "worst of 2 processes: time lost (%)"


def test_the_rank_is_named_beside_the_axis_where_no_legend_covers_it(tmp_path: Path, ax: Axes) -> None:
    run = load(watch_folder(tmp_path / "run", [window(verdicts=(verdict(rank=1), verdict(rank=0)))]))
    plot.losses(run, rank=1, ax=ax)

    assert ax.get_ylabel() == "rank 1: time lost (%)"
    assert ax.get_title(loc="left") == ""


def test_of_an_observed_loop_the_figure_that_draws_it_is_named(ax: Axes) -> None:
    run = Run(path=Path("here"), kind=OBSERVE, info={}, result={}, candidates=("main",), problems=())
    run.keep("main", columns_of([], steps(3)))

    with pytest.raises(UsageError, match=r"plot\.stall_timeline draws it"):
        plot.losses(run, ax=ax)
