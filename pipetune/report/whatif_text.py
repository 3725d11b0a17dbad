"""What a person reads of predictions: a table of answers, how wrong they were, what would bring the target. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pipetune.answering.questions import limit_words, question_text
from pipetune.records.prediction import EXTRAPOLATED, INTERPOLATED, ONE_FACTOR, Answer, Check, Prediction, WhatIf
from pipetune.report.line import Kind, Line
from pipetune.report.terminal.signs import clean
from pipetune.units import format_rate, format_share, whole_percent

if TYPE_CHECKING:
    from rich.console import JustifyMethod
    from rich.table import Table

HEADERS = ("what if", "rate", "90 % interval", "fed", "sets the pace", "next", "how far from what was measured")
#: Columns of figures.
_NUMBERS = (1, 2, 3)
#: From this change of the machine's speed on (share), it is said.
_NOTICEABLE = 0.01
#: Widths (characters) below which what would be next, or how far it is, has no room.
_NARROW, _WIDE = 80, 112
#: What a column means.
LEGEND = "fed: share of what the accelerators could take; interval: how far earlier predictions of this kind were off"
_FAR = {
    INTERPOLATED: "between measurements", ONE_FACTOR: "one change, up to twice", EXTRAPOLATED: "far: less sure",
}  # fmt: skip
#: Fewer predictions than this have no quantile of their own.
_ENOUGH = 5


def answer_rows(found: WhatIf) -> list[tuple[str, ...]]:
    """The measured one first, then each answer that there is, as texts."""
    measured = found.measured_samples_per_s
    demand = found.now.demand_samples_per_s
    first = (
        "now, as measured", format_rate(measured), "", whole_percent(min(1.0, measured / demand)),
        limit_words(found.now.bound_by), limit_words(found.now.next_bound_by or ""), "",
    )  # fmt: skip
    return [first, *(_row(one, one.prediction) for one in found.answers if one.prediction is not None)]


def _row(one: Answer, prediction: Prediction) -> tuple[str, ...]:
    return (
        question_text(one.question), format_rate(prediction.samples_per_s), interval_text(prediction),
        whole_percent(min(1.0, prediction.samples_per_s / prediction.demand_samples_per_s)),
        limit_words(prediction.bound_by), limit_words(prediction.next_bound_by or ""), _FAR[prediction.kind],
    )  # fmt: skip


def interval_text(prediction: Prediction) -> str:
    """``'1,100 to 1,300'``."""
    low, high = prediction.interval90
    return f"{format_rate(low, '')} to {format_rate(high, '')}"


def answer_table(found: WhatIf, width: int) -> Table:
    """The rows; where ``width`` (characters) is small, the last columns are left out, and wide cells are folded."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    columns = len(HEADERS) - (2 if width < _NARROW else 1 if width < _WIDE else 0)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for number, header in enumerate(HEADERS[:columns]):
        justify: JustifyMethod = "right" if number in _NUMBERS else "left"
        table.add_column(header, justify=justify, overflow="fold", no_wrap=number == 1)
    for row in answer_rows(found):
        table.add_row(*(Text(clean(cell)) for cell in row[:columns]))
    return table


def remarks_of(found: WhatIf) -> list[str]:
    """What answers rest on, and what could not be answered or checked."""
    about: dict[str, list[str]] = {}
    for one in found.answers:
        refused = [] if one.refused is None else [f"not known: {one.refused}"]
        unchecked = [] if one.not_checked is None else [f"not checked: {one.not_checked}"]
        for note in (*refused, *one.notes, *unchecked):
            about.setdefault(note, []).append(question_text(one.question))
    # What is the same of several questions is said once.
    return [*found.notes, *(note if len(of) > 1 else f"{of[0]}: {note}" for note, of in about.items())]


def check_lines(found: WhatIf) -> list[str]:
    """How wrong each prediction was that was measured."""
    asked: dict[Check, list[str]] = {}
    for one in found.answers:
        if one.check is not None:
            asked.setdefault(one.check, []).append(question_text(one.question))
    # The same may have been measured in place of several questions.
    return [check_text("; ".join(texts), check) for check, texts in asked.items()]


def check_text(asked: str, check: Check) -> str:
    """``'1 core: predicted 512/s, measured 498/s ±4 %: 2.8 % too high'``."""
    half = (check.ci95[1] - check.ci95[0]) / 2 / check.samples_per_s
    inside = check.prediction.interval90[0] <= check.samples_per_s <= check.prediction.interval90[1]
    wrong = f"{format_share(abs(check.error_frac))} too {'high' if check.error_frac > 0 else 'low'}"
    text = (
        f"{question_text(check.question)}: predicted {format_rate(check.prediction.samples_per_s)}, measured "
        f"{format_rate(check.samples_per_s)} ±{format_share(half)}: {wrong}, {'inside' if inside else 'outside'} of "
        "its interval"
    )
    notes = list(check.notes)
    change = (check.machine_factor or 1.0) - 1
    if abs(change) >= _NOTICEABLE:
        how = f"{format_share(abs(change))} {'faster' if change > 0 else 'slower'}"
        notes.append(f"the machine is {how} than it was in the run, which the prediction allows for")
    if question_text(check.question) != asked:
        return f"{text} (in place of {asked}: {'; '.join(notes)})"
    return f"{text} ({'; '.join(notes)})" if notes else text


def machine_line(found: WhatIf) -> str | None:
    """What the predictions started from, measured anew; ``None``: nothing was."""
    again = next((one.check.base_samples_per_s for one in found.answers if one.check is not None), None)
    if again is None:
        return None
    return (
        f"The loader as the run had it, measured again now: {format_rate(again)} (the run: "
        f"{format_rate(found.measured_samples_per_s)})."
    )


def reach_lines(found: WhatIf) -> list[Line]:
    """What would bring the target."""
    target = whole_percent(found.target)
    if found.measured_samples_per_s >= found.target * found.now.demand_samples_per_s:
        return [Line(Kind.HEADLINE, f"The target of {target} of the accelerator's rate is reached as it is.")]
    if not found.reach:
        return [Line(Kind.HEADLINE, f"Nothing that is known would reach {target} of the accelerator's rate.")]
    lines = [Line(Kind.HEADLINE, f"What would reach {target} of the accelerator's rate:")]
    lines += [
        Line(Kind.DETAIL, f"  {one.change}: {format_rate(one.prediction.samples_per_s)} "
                          f"({interval_text(one.prediction)})")
        for one in found.reach
    ]  # fmt: skip
    return lines


def own_error_line(found: WhatIf) -> str | None:
    """How wrong the run's own predictions were; ``None``: it has made too few."""
    errors = sorted(map(abs, found.own_errors))
    if len(errors) < _ENOUGH:
        return None
    middle, most = errors[len(errors) // 2], errors[math.ceil(0.9 * len(errors)) - 1]
    return (
        f"This run has predicted {len(errors)} candidates that the loader limits, before measuring them: half were off "
        f"by less than {format_share(middle)}, 90 % by less than {format_share(most)}."
    )
