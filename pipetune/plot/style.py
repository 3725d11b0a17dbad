"""What all figures have in common: colours, names of candidates, a figure to draw on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipetune.candidates.describe import describe_outcome
from pipetune.diagnosis.causes import CAUSES, canonical_cause
from pipetune.errors import MissingPackageError, PipetuneError
from pipetune.registry import BACKENDS
from pipetune.search.pooled import meets
from pipetune.store.read import timeline_name
from pipetune.sweeping.stored import sweep_result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pipetune.runs.run import Run

#: Okabe and Ito, "Color Universal Design" (2008).
BLUE, ORANGE, GREEN, SKY, VERMILION, PURPLE, YELLOW = (
    "#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00", "#CC79A7", "#F0E442",
)  # fmt: skip
GREY, LIGHT = "#7F7F7F", "#C8C8C8"
#: Text, lines of the axes, and the grid: colours of their own, which a page can replace by its theme's.
INK, RULE = "#1A1A19", "#D9D9D7"

#: Colour keys of :data:`pipetune.diagnosis.causes.CAUSES`.
COLOURS = {
    "orange": ORANGE, "yellow": YELLOW, "blue": BLUE, "sky": SKY, "vermilion": VERMILION, "purple": PURPLE,
    "green": GREEN, "grey": GREY, "sand": "#B2912F", "brown": "#8C510A", "dark": "#4D4D4D", "teal": "#004D40",
    "red": "#7B0000",
}  # fmt: skip
_BACKENDS = (BLUE, ORANGE, GREEN, PURPLE, VERMILION, SKY, "#4D4D4D", "#882255")
#: All different, and those of backends with the same colour unlike each other.
_MARKERS = "osD^vPX*><pdhH81234"


def colour_of(cause: str) -> str:
    """Colour of a cause; grey for a name that this version does not know."""
    known = CAUSES.get(canonical_cause(cause))
    return GREY if known is None else COLOURS[known.colour]


def name_of_timeline(run: Run, name: str) -> str:
    """A candidate in words, e.g. ``'opencv, 2 workers, prefetch 2 (repeat 2)'``; other timelines as they are named."""
    outcome = next((found for found in reversed(run.outcomes) if timeline_name(found) == name), None)
    if outcome is None:
        return name
    notes = [f"block {outcome.block}"] if outcome.block else []
    notes += [f"repeat {outcome.attempt}"] if outcome.attempt > 1 else []
    words = describe_outcome(outcome)
    return f"{words} ({', '.join(notes)})" if notes else words


def name_of_chosen(run: Run) -> str:
    """What a figure calls the chosen candidate: one that misses the target is only the nearest to it."""
    try:  # not the status, which is "interrupted" of a run that was stopped
        result = sweep_result(run)
    except PipetuneError:
        missed = run.result.get("status") == "target_missed"
    else:
        chosen = result.recommended
        if result.stays:
            return "left as it is"
        missed = chosen is None or chosen.measurement is None or not meets(chosen.measurement, result.goal)
    return "nearest to the target" if missed else "recommended"


def target_of(run: Run) -> float | None:
    """The target (0..1) of a sweep for the share of the max ingestion rate; ``None``: it is another, or not known."""
    goal = run.info.get("goal")
    stored: Mapping[str, Any] = goal if isinstance(goal, dict) else {}
    target = run.result.get("target", stored.get("target"))
    metric = run.result.get("target_metric", stored.get("metric", "goodput"))
    return float(target) if isinstance(target, (int, float)) and metric == "goodput" else None


def in_table_order(backends: Iterable[str]) -> list[str]:
    """Backends in the order of the registry, which is the same in every run; the user's own come last."""
    table = list(BACKENDS)
    return sorted(set(backends), key=lambda name: (table.index(name) if name in table else len(table), name))


def backend_style(backend: str) -> tuple[str, str]:
    """Colour and marker of a backend, the same in every figure; shapes differ, too."""
    table = list(BACKENDS)
    number = table.index(backend) if backend in table else len(table)
    return _BACKENDS[number % len(_BACKENDS)], _MARKERS[number % len(_MARKERS)]


def axes(ax: Axes | None, *, width: float = 8.0, height: float = 4.0) -> Axes:
    """The axes to draw on: the caller's, or those of a new figure (inches).

    Raises:
        MissingPackageError: matplotlib is not installed.
    """
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingPackageError(
            "matplotlib, which draws the figures, is not installed", hint="pip install 'pipetune[notebook]'"
        ) from error
    _, made = plt.subplots(figsize=(width, height), layout="constrained")
    return made


def plain(ax: Axes, *, grid: str | None = "y") -> None:
    """Axes without a box, light rules behind the data."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(INK)
    ax.spines[["left", "bottom"]].set_linewidth(0.6)
    ax.tick_params(colors=INK, width=0.6, labelsize="small")
    for label in (ax.xaxis.label, ax.yaxis.label, ax.title):
        label.set_color(INK)
    if grid is not None:
        ax.grid(axis=grid, color=RULE, linewidth=0.6)  # type: ignore[arg-type]
        ax.set_axisbelow(True)


def label_of(name: str) -> str:
    """A name that someone gave as a label for :func:`legend`: matplotlib leaves out those that begin with ``_``."""
    return f" {name}" if name.startswith("_") else name


def names_apart(first: Path, second: Path) -> tuple[str, str]:
    """Names of two folders, with as many of the folders that they lie in as it takes to tell them apart."""
    paths = [path.resolve() for path in (first, second)]  # "." has no name
    most = max(len(path.parts) for path in paths) if paths[0] != paths[1] else 1
    for count in range(1, most + 1):
        left, right = (str(Path(*path.parts[-count:])) for path in paths)
        if left != right:
            break
    return left, right


def legend(ax: Axes, **options: Any) -> None:
    """A legend without a box, if there is anything to explain. Its texts are shown as they are."""
    if ax.get_legend_handles_labels()[0]:
        made = ax.legend(frameon=False, fontsize="small", labelcolor=INK, **options)
        for text in made.get_texts():
            text.set_parse_math(False)  # two "$" in the name of a folder are no formula
