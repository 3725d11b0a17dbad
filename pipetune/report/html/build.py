"""The HTML page of a run: figures drawn, texts gathered, everything in one string."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pipetune.answering.stored import whatif_of
from pipetune.errors import MissingPackageError, PipetuneError, UsageError
from pipetune.explaining.stored import explanation_of
from pipetune.records.explanation import Explanation
from pipetune.records.prediction import WhatIf
from pipetune.records.scaling import Scaling
from pipetune.report.exports import observed_line
from pipetune.report.html.explain_page import explain_page
from pipetune.report.html.page import Figure, themed
from pipetune.report.html.scale_page import scale_page
from pipetune.report.html.sweep_page import name_of_chosen, sweep_page
from pipetune.report.html.watch_page import watch_page
from pipetune.report.html.whatif_page import whatif_page
from pipetune.report.run_name import name_of
from pipetune.runs.run import BATCH_SIZE, EXPLAIN, OBSERVE, SWEEP, WHATIF, DamagedRunWarning, Run
from pipetune.sweeping.result import SweepResult
from pipetune.sweeping.stored import sweep_result

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def html_page(run: Run) -> str:
    """The whole page.

    Raises:
        UsageError: the run lacks what a page needs.
        MissingPackageError: matplotlib or pandas is not installed.
    """
    if run.kind == EXPLAIN:
        problems = list(run.problems)  # its notes are those of the explanation
        found = explanation_of(run)
        title = "CPU time of each stage"
        figure = _figure(
            title, partial(_waterfall, found), problems, (9, 1.2 + 0.5 * (len(found.stages) + 1)), wide=True
        )
        return explain_page(
            found, run_name=name_of(run), about=run.info, result=run.result, problems=problems,
            figures=[] if figure is None else [figure],
        )  # fmt: skip
    if run.kind == WHATIF:
        return answers_page(
            whatif_of(run), run_name=name_of(run), about=run.info, result=run.result, problems=run.problems
        )
    if run.kind == BATCH_SIZE:
        raise UsageError(
            f"{run.path} holds batch sizes, of which there is no page", hint="pipetune report --markdown prints them"
        )
    problems = [*run.problems, *run.notes]
    result = sweep_result(run) if run.kind == SWEEP else None
    if result is not None and result.recommended is not None:
        # Computed again, as the headline is: a killed run has stored none, and another version may have stored another.
        run = replace(run, result={**run.result, "recommended": {"key": result.recommended.candidate.key}})
    with warnings.catch_warnings(record=True) as damage:
        warnings.simplefilter("always", DamagedRunWarning)
        figures = _watch_figures(run, problems) if result is None else _sweep_figures(run, result, problems)
    problems += dict.fromkeys(str(one.message) for one in damage if issubclass(one.category, DamagedRunWarning))
    if result is not None:
        return sweep_page(
            result, run_name=name_of(run), run_folder=str(run.path.resolve()), about=run.info, figures=figures,
            problems=problems,
        )  # fmt: skip
    headline = f"Observed loop: {observed_line(run)}" if run.kind == OBSERVE else None
    return watch_page(
        kind=run.kind, headline=headline, run_name=name_of(run), about=run.info, end=run.result,
        verdicts=run.verdicts, windows=run.windows, figures=figures, problems=problems,
    )  # fmt: skip


def answers_page(
    found: WhatIf, *, run_name: str, about: Mapping[str, Any], result: Mapping[str, Any], problems: Sequence[str] = ()
) -> str:  # fmt: skip
    """The page of predictions, whether they are stored or not.

    Args:
        run_name: of the run that they are about, or that checked them.
        about: what was asked, and of which machine.
        result: what ``--json`` writes.

    Raises:
        MissingPackageError: matplotlib is not installed.
    """
    known, noticed = sum(one.prediction is not None for one in found.answers), list(problems)
    figure = _figure("Rates", partial(_answers, found), noticed, (9, 1.4 + 0.45 * (known + 1)), wide=True)
    return whatif_page(
        found, run_name=run_name, about=about, result=result, problems=noticed,
        figures=[] if figure is None else [figure],
    )  # fmt: skip


def scaling_page(found: Scaling, *, result: Mapping[str, Any]) -> str:
    """The page of a scaling table.

    Args:
        result: what ``--json`` writes.

    Raises:
        MissingPackageError: matplotlib is not installed.
    """
    from pipetune.plot import accuracy, scaling

    noticed: list[str] = []
    drawn = [_figure("Rates", partial(scaling, found), noticed, (7, 4.2))]
    if found.curves:
        drawn.append(_figure("Accuracy over time", partial(accuracy, found), noticed, (7, 4.2)))
    figures = [figure for figure in drawn if figure is not None]
    return scale_page(found, result=result, figures=figures, problems=noticed)


def _answers(found: WhatIf, ax: Axes) -> Axes:
    from pipetune.plot import answers

    return answers(found, ax=ax)


def _waterfall(found: Explanation, ax: Axes) -> Axes:
    from pipetune.plot import waterfall

    return waterfall(found, ax=ax)


def _sweep_figures(run: Run, result: SweepResult, problems: list[str]) -> list[Figure]:
    from pipetune.plot import rate_by_workers, stall_timeline, step_parts, timeline_title

    chosen = [
        (result.untuned_name[:1].upper() + result.untuned_name[1:], run.default),
        (name_of_chosen(result), run.recommended),
    ]
    if run.default == run.recommended:
        chosen = chosen[1:]
    found = [
        _figure(
            f"{title}: {timeline_title(run, name)}", partial(stall_timeline, run, name, title=""), problems, (7, 4.6)
        )
        for title, name in chosen
        if name in run.candidates
    ]
    found.append(_figure("Rate by number of loader workers", partial(rate_by_workers, run), problems, (7, 3.8)))
    height = 1.0 + 0.3 * len(run.candidates)
    found.append(_figure("Where the time of a step goes", partial(step_parts, run), problems, (7, height)))
    return [figure for figure in found if figure is not None]


def _watch_figures(run: Run, problems: list[str]) -> list[Figure]:
    from pipetune.plot import losses, stall_timeline, timeline_title

    ranks = list(dict.fromkeys(verdict.rank for window in run.windows for verdict in window.verdicts))
    if any(rank is not None for rank in ranks):  # before them, their launcher was seen, which has none
        ranks = [rank for rank in ranks if rank is not None]
    found = [
        _figure(
            "Time lost, by cause" + ("" if rank is None else f", rank {rank}"), partial(losses, run, rank=rank),
            problems, (9, 3.4), wide=True,
        )
        for rank in ranks
    ] + [
        _figure(timeline_title(run, name), partial(stall_timeline, run, name, title=""), problems, (9, 4), wide=True)
        for name in run.candidates
        if run.path.is_dir()
    ]  # fmt: skip
    return [figure for figure in found if figure is not None]


def _figure(
    title: str, draw: Callable[..., Axes], problems: list[str], size: tuple[float, float], *, wide: bool = False
) -> Figure | None:
    """A figure; one that cannot be drawn becomes a problem, and the page goes without it."""
    try:
        return Figure(title=title, svg=_svg(draw, size), wide=wide)
    except MissingPackageError:
        raise
    except PipetuneError as error:
        problems.append(f"no figure “{title}”: {error.message}")
    except Exception as error:  # a run that is damaged in an unforeseen way
        problems.append(f"no figure “{title}”: {type(error).__name__}: {error}")
    return None


def _svg(draw: Callable[..., Axes], size: tuple[float, float]) -> str:
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure as Drawing
    except ImportError as error:
        raise MissingPackageError(
            "matplotlib, which draws the page's figures, is not installed", hint="pip install 'pipetune[notebook]'"
        ) from error
    from pipetune.plot.style import BLUE, INK, LIGHT, RULE

    # Not through pyplot: making a page must not change the figures or the style of the calling program.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "pipetune", "font.family": "sans-serif"}):
        drawing = Drawing(figsize=size, layout="constrained")
        FigureCanvasSVG(drawing)
        draw(ax=drawing.add_subplot())
        target = io.StringIO()
        drawing.savefig(target, format="svg", transparent=True, metadata={"Date": None})
    return themed(
        target.getvalue(),
        {
            INK: "var(--ink)",
            RULE: "var(--rule)",
            LIGHT: "var(--fill)",
            BLUE: "var(--blue)",
            "'DejaVu Sans'": "system-ui",
        },
    )
