"""Prints the result of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipetune.cli.output import say
from pipetune.datasets.image_notes import count_noun
from pipetune.datasets.index import ImageSet
from pipetune.report.code import code_of_sweep, for_training, settings_for
from pipetune.report.columns import pixels_of
from pipetune.report.line import Kind, texts
from pipetune.report.notices_text import notice_lines
from pipetune.report.script_text import script_notes, to_do
from pipetune.report.set_up_text import mention_set_up
from pipetune.report.sweep_text import (
    PIXELS,
    conclusion_lines,
    in_ranks,
    ranking_table,
    signs_line,
    to_be_set,
)
from pipetune.report.terminal.signs import clean_lines
from pipetune.sweeping.result import SweepResult
from pipetune.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console


#: Kind of line -> its style.
_STYLES = {Kind.HEADLINE: "bold", Kind.WARNING: "yellow"}


def print_result(
    console: Console, result: SweepResult, notes: tuple[str, ...], images: ImageSet, run_folder: Path, *,
    verbose: bool = True,
) -> None:  # fmt: skip
    """Data set, ranking, warnings, conclusion, settings and code, in this order: what matters most stands last.

    Args:
        verbose: each warning of each measurement.
    """
    width, height = images.median_size
    if images.images:
        _line(console, f"{images.name}: {count_noun(len(images.images), 'image', 'images')} in "
                       f"{count_noun(len(images.classes), 'class', 'classes')}, "
                       f"{format_bytes(round(images.mean_bytes))} and {width} x {height} px on average")  # fmt: skip
    if result.accelerator.source:
        _line(console, f"{result.accelerator.name}: {result.accelerator.source}")
    console.print()
    print_summary(console, result, notes, verbose=verbose)
    if result.script is not None:  # what it has written is said also where nothing was measured
        print_script(console, result, run_folder)
        return
    recommended = result.recommended
    if recommended is None or recommended.measurement is None:
        return
    if to_be_set(result):
        print_settings(console, result, images.root)
        code = code_of_sweep(result, recommended.candidate, str(run_folder.resolve()))
        console.print()
        say(console, code.rstrip(), style="cyan")


def print_summary(console: Console, result: SweepResult, notes: tuple[str, ...] = (), *, verbose: bool = True) -> None:
    """Ranking, warnings and the conclusion."""
    if any(outcome.measurement for outcome in result.ranking):
        table = ranking_table(result, console.width)
        console.print(table)
        _line(console, signs_line(result), style="dim")
        shown = any(column.header == "pixels" for column in table.columns)
        if shown and any(pixels_of(outcome.candidate) != "=" for outcome in result.ranking):
            _line(console, PIXELS, style="dim")
        console.print()
    for text in (*texts(notice_lines(result, verbose=verbose)), *notes):
        _line(console, f"! {text}", style=_STYLES[Kind.WARNING])
    if (mentioned := mention_set_up(result)) is not None:
        _line(console, mentioned, style="dim")
    for line in conclusion_lines(result):
        _line(console, line.text, style=_STYLES.get(line.kind))


def print_settings(console: Console, result: SweepResult, root: str) -> None:
    """Of a data set or a loader: what to set, for people who have a loader already.

    Args:
        root: the data set's folder; for the user's own loader, the name of the function that makes it.
    """
    if result.recommended is None or not to_be_set(result):
        return
    settings = settings_for(for_training(result.recommended.candidate, result.accelerator), root)
    if settings:  # a run that was killed has not stored the name of its loader
        say(console, f"\nSet{in_ranks(result)}: {settings}")


def print_script(console: Console, result: SweepResult, run_folder: Path) -> None:
    """Of a script that was tuned: what to know, and how to train with what was found."""
    if result.script is None:
        return
    for line in script_notes(result.script, result.recommended, result.outcomes):
        _line(console, line)
    lines = to_do(result, str(run_folder))
    for line in ["", *lines] if lines else []:
        say(console, line)


def _line(console: Console, text: str, style: str | None = None) -> None:
    """A sentence, wrapped between words on a terminal. What may be pasted goes through ``say``, which never wraps."""
    console.print(
        clean_lines(text), style=style, markup=False, highlight=False, emoji=False, soft_wrap=not console.is_terminal
    )
