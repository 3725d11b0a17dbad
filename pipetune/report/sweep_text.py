"""What a person reads at the end of a sweep: the conclusion, warnings, the ranking. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pipetune.augmentation.recipes import BASIC, DEVICE, RECIPES
from pipetune.candidates.describe import describe
from pipetune.diagnosis.candidate import cores_for
from pipetune.diagnosis.causes import HEALTHY
from pipetune.records.sweep import Measurement, Outcome
from pipetune.registry import USER
from pipetune.report.ceilings_text import ceilings_lines
from pipetune.report.columns import Mark, Surface, cells_of, columns_of, format_interval, mark_of
from pipetune.report.edit_text import may_help_line, proven_saving, stays_headline
from pipetune.report.line import Kind, Line
from pipetune.report.ranks_text import hosts_text, ranks_text
from pipetune.report.terminal.signs import clean
from pipetune.search import meets
from pipetune.sweeping.result import SweepResult
from pipetune.units import format_bytes, format_rate, format_share, format_share_of_target

if TYPE_CHECKING:
    from rich.table import Table


#: Characters between two columns of the table, and the columns that are always shown.
_BETWEEN_COLUMNS = 3
_MIN_COLUMNS = 2
#: Steps that are slower than without a loader by more than this share are mentioned.
_SLOWER = 0.05
#: From this many cores on, what the training step takes is stated beside what loading takes.
_STEP_CORES = 0.05
#: Maximum number of ties that are named.
_MAX_TIES = 3
_SIGNS = {Mark.RECOMMENDED: ">", Mark.NEAREST: "?", Mark.DEFAULT: "*", Mark.AS_IT_IS: "*", None: " "}
#: The legend of the column of pixels.
PIXELS = "pixels: = the same as Pillow's; otherwise their PSNR against Pillow's (48 dB is one grey level)"


def conclusion_lines(result: SweepResult) -> list[Line]:
    """The result in sentences: what the accelerator can take, what the default delivers, the answer, how sure it is."""
    lines = []
    ceiling = result.ceiling.measurement if result.ceiling else None
    if ceiling is not None:
        real = result.accelerator.kind != "emulated" and result.script is None
        compiled = ", compiled by torch.compile," if result.workload.get("compiled") else ""
        model = f" of {result.workload['model']}{compiled}" if real else ""
        rate = format_rate(ceiling.samples_per_s, " samples/s")
        who = result.accelerator.name if result.script is None else f"Your training loop on {result.accelerator.name}"
        if ceiling.ranks:
            who = f"{len(ceiling.ranks)} ranks, each with {who}, together"
        text = f"{who} can take {rate}{model} when batches are always ready (max ingestion rate)."
        lines.append(Line(Kind.CONTEXT, text + _copying(ceiling)))
        lines += ceilings_lines(result.ceilings, result.workload.get("batch_size"))
    recipe = RECIPES.get(result.workload.get("augment", BASIC))
    if recipe is not None and recipe.name != BASIC:
        lines.append(Line(Kind.CONTEXT, f"Each image is augmented after it is cropped and flipped ({recipe.about})."))
    if result.baseline is not None and result.baseline.measurement is not None:
        lines.append(Line(Kind.CONTEXT, _default(result, result.baseline, result.baseline.measurement)))
    if result.status == "failed":
        lines.append(Line(Kind.HEADLINE, f"FAILED: {result.message}."))
    elif result.recommended is None or result.recommended.measurement is None:
        lines.append(Line(Kind.HEADLINE, "Nothing has been measured yet."))
    elif result.stays:
        lines += _stays(result, result.recommended, result.recommended.measurement)
    elif meets(result.recommended.measurement, result.goal):
        lines += _met(result, result.recommended, result.recommended.measurement)
    else:
        lines += _missed(result, result.recommended, result.recommended.measurement)
    if result.status == "interrupted":
        lines.append(Line(Kind.WARNING, "INTERRUPTED: the search had not finished."))
    return lines


def _copying(ceiling: Measurement) -> str:
    """What a copy costs beside a step, in which the batch lies on the device already."""
    if ceiling.copy_bytes_per_s is None or ceiling.batch_shape is None:
        return ""
    copy_s = 4 * math.prod(ceiling.batch_shape) / ceiling.copy_bytes_per_s
    step_s = ceiling.batch_shape[0] * max(1, len(ceiling.ranks)) / ceiling.samples_per_s
    return (
        f" Copying a batch of float32 images to it takes {format_share(copy_s / step_s)} of a step's time more "
        f"({ceiling.copy_bytes_per_s / 1e9:.1f} GB/s); bytes (uint8) take a quarter of that."
    )


def _default(result: SweepResult, outcome: Outcome, m: Measurement) -> str:
    diagnosis = result.diagnose(outcome)
    because = f"; {diagnosis.sentence}" if diagnosis else ""
    return f"{capital(result.untuned_name)} ({describe(outcome.candidate)}) delivers {_delivered(m, result)}{because}."


def capital(text: str) -> str:
    """The text with a capital letter first."""
    return text[:1].upper() + text[1:]


def _delivered(m: Measurement, result: SweepResult) -> str:
    """``'940 samples/s ±1.0 % (98 % of what the accelerator can take)'``."""
    if m.goodput is None:
        return format_interval(m, " samples/s")
    goodput = format_share_of_target(m.goodput, result.goal.target)
    share = f"{goodput} of what the accelerator can take"
    if m.goodput >= 1:
        share = "as fast as with batches that are always ready, within the measurement error"
    elif m.ranks:
        share = f"the slowest rank {goodput} of what its accelerator can take"
    return f"{format_interval(m, ' samples/s')} ({share})"


def _met(result: SweepResult, outcome: Outcome, m: Measurement) -> list[Line]:
    numbers = f"It delivers {_delivered(m, result)}{_gain(result)}, and uses {_cost(m)}."
    what = describe(outcome.candidate)
    if outcome is result.baseline:
        as_it_is = result.untuned_name.removesuffix(" as it is")
        what = f"{as_it_is} as it is ({what})"
    return [Line(Kind.HEADLINE, f"Recommended: {what}. {numbers}"), *_how_sure(result)]


def _stays(result: SweepResult, outcome: Outcome, m: Measurement) -> list[Line]:
    """No edit is proven to be worth it."""
    lines = [stays_headline(result), may_help_line(result)]
    if not meets(m, result.goal):
        lines += [Line(Kind.DETAIL, _who_reaches(result)), *_why_short(result, outcome, m)]
    return lines + _how_sure(result)


def _who_reaches(result: SweepResult) -> str:
    """That the baseline misses the target, and which candidate was measured to reach it without being proven."""
    others = [outcome for outcome in result.ranking if outcome.measurement and meets(outcome.measurement, result.goal)]
    if not others:
        return _none_reaches(result)
    names = ", ".join(describe(outcome.candidate) for outcome in others[:_MAX_TIES])
    more = f" and {len(others) - _MAX_TIES} more" if len(others) > _MAX_TIES else ""
    reach = "reaches" if len(others) == 1 else "reach"
    misses = f"{capital(result.untuned_name)} misses the target of {_target(result)}"
    return f"{misses}; {names}{more} {reach} it as measured."


def _target(result: SweepResult) -> str:
    nvml = result.goal.metric == "nvml"
    return f"{format_share(result.goal.target)} {'GPU utilisation' if nvml else 'of what the accelerator can take'}"


def _none_reaches(result: SweepResult) -> str:
    if result.complete:
        return f"No candidate reaches the target of {_target(result)}."
    return f"None of the candidates measured so far reaches the target of {_target(result)}."


def _missed(result: SweepResult, outcome: Outcome, m: Measurement) -> list[Line]:
    nvml = result.goal.metric == "nvml"
    lines = [Line(Kind.HEADLINE, _none_reaches(result))]
    util = f", at {m.gpu_util_pct:.0f} % GPU utilisation" if nvml and m.gpu_util_pct is not None else ""
    text = f"Nearest: {describe(outcome.candidate)}. It delivers {_delivered(m, result)}{util}{_gain(result)}."
    lines.append(Line(Kind.DETAIL, text))
    return lines + _why_short(result, outcome, m) + _how_sure(result)


def _why_short(result: SweepResult, outcome: Outcome, m: Measurement) -> list[Line]:
    """Why a candidate misses the target, and what it would take to reach it."""
    lines = []
    diagnosis = result.diagnose(outcome)
    if diagnosis and diagnosis.cause != HEALTHY:  # a target above what counts as healthy
        text = f"Why it falls short: {diagnosis.sentence} ({'; '.join(diagnosis.evidence)})."
        lines.append(Line(Kind.DETAIL, text))
    full = m.full_samples_per_s
    needed = None if full is None else cores_for(m, result.goal.target * full)
    if result.complete and needed is not None and needed > result.usable_cores:
        movable = result.movable_recipe(outcome.candidate)
        moved = "" if movable is None else f"{movable} on the device (transforms_on=device), "
        if outcome.candidate.loader == USER:  # whose samples need not be images
            who, helps = "loading", "more cores, or samples that take less CPU time to load."
        else:
            who, less = "this decoder", "a decoder that takes less CPU time, smaller images (pipetune pack)"
            helps = f"more cores, {less}, {moved}or decoding on the GPU."
        text = (
            f"To reach the target, {who} would need about {needed:.1f} cores; {result.usable_cores:g} are usable. What "
            f"would help: {helps}"
        )
        lines.append(Line(Kind.DETAIL, text))
    return lines


def _how_sure(result: SweepResult) -> list[Line]:
    lines = []
    chosen = result.recommended
    m = chosen.measurement if chosen else None
    if m is not None and m.hosts:
        lines.append(Line(Kind.DETAIL, hosts_text(m)))
    if m is not None and m.ranks:
        lines.append(Line(Kind.DETAIL, ranks_text(m)))
    if chosen and m is not None and (m.step_slower_frac or 0) > _SLOWER:
        share = format_share(m.step_slower_frac or 0)
        # Without workers, decoding drives the step's data out of the caches.
        when = "While its workers run" if chosen.candidate.num_workers else "After each batch that it loads itself"
        if chosen.candidate.transforms_on == DEVICE:
            when = "As it augments the images first"
        text = f"{when}, a training step takes {share} longer; the rate includes that."
        lines.append(Line(Kind.DETAIL, text))
    if result.doubts:
        lines.append(Line(Kind.UNCERTAINTY, f"Uncertain: {'; '.join(result.doubts)}."))
    if result.ties:
        known = {outcome.candidate.key: describe(outcome.candidate) for outcome in result.outcomes}
        shown = "; ".join(known.get(key, key) for key in result.ties[:_MAX_TIES])
        more = f"; and {len(result.ties) - _MAX_TIES} more" if len(result.ties) > _MAX_TIES else ""
        best = "the cheapest" if m is not None and meets(m, result.goal) else "the nearest to the target"
        text = f"A tie: the measurement cannot separate it (at 95 %) from {shown}{more}. Any of them may be {best}."
        lines.append(Line(Kind.UNCERTAINTY, text))
    if result.ended_because is not None:
        text = f"The search ended here: {result.ended_because}; --effort thorough goes on."
        lines.append(Line(Kind.DETAIL, text))
    return lines


def in_ranks(result: SweepResult) -> str:
    """``' in each of 8 ranks'``: where settings are to be set; empty: there is one."""
    ranks = result.workload.get("ranks", 1)
    return f" in each of {ranks} ranks" if ranks > 1 else ""


def _gain(result: SweepResult) -> str:
    if result.speedup is None or result.speedup_ci95 is None or result.recommended is result.baseline:
        return ""
    low, high = result.speedup_ci95
    than = "the default" if result.untuned_name == "PyTorch's default" else result.untuned_name
    return f", {result.speedup:.2f} times {than} ({low:.2f} to {high:.2f}){proven_saving(result)}"


def _cost(m: Measurement) -> str:
    parts = [] if m.cores_used is None else [f"{m.cores_used:.1f} cores"]
    if parts and (m.step_cores or 0) >= _STEP_CORES:
        parts = [f"{parts[0]} for loading ({m.step_cores:.1f} more for the training step itself)"]
    parts += [] if m.pss_bytes is None else [f"{format_bytes(m.pss_bytes)} of memory"]
    return " and ".join(parts) or "an unknown amount of CPU and memory"


def ranking_table(result: SweepResult, width: int) -> Table:
    """One row per candidate, fastest first. Columns that do not fit into ``width`` characters are left out whole."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    measured = [outcome for outcome in result.ranking if outcome.measurement]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    columns = columns_of(Surface.TERMINAL, result)
    rows = [[clean(cell.text or "-") for cell in cells_of(columns, result, outcome)] for outcome in measured]
    for row, outcome in zip(rows, measured, strict=True):
        row[0] = f"{_SIGNS[mark_of(result, outcome)]} {row[0]}"
    used = shown = 0
    for number, column in enumerate(columns):
        header = column.header_in(result)
        used += max(map(len, (header, *(row[number] for row in rows)))) + _BETWEEN_COLUMNS
        if used > width + _BETWEEN_COLUMNS and number >= _MIN_COLUMNS:
            break
        shown += 1
        table.add_column(header, justify="right" if column.numeric else "left", no_wrap=True, overflow="ellipsis")
    for row, outcome in zip(rows, measured, strict=True):
        # As text: rich would take brackets in somebody else's words for markup.
        table.add_row(*map(Text, row[:shown]), style="bold" if outcome is result.recommended else None)
    return table


def signs_line(result: SweepResult) -> str:
    """The legend of the table: the signs that are in it."""
    marks = {mark_of(result, outcome) for outcome in result.ranking if outcome.measurement}
    signs = [f"{_SIGNS[mark]} {mark}" for mark in Mark if mark in marks]
    return "   ".join([*signs, "± 95 % interval"])


def path_lines(result: SweepResult) -> list[str]:
    """How the search went: each measurement in its order, its result, and why it was made."""
    lines = []
    for outcome in result.outcomes:
        m = outcome.measurement
        share = "" if m is None or m.goodput is None else f", {format_share(m.goodput)}"
        failure = outcome.failure.kind if outcome.failure else ""
        found = f"{format_interval(m)}{share}" if m else f"failed ({failure})"
        again = " again" if outcome.attempt > 1 else f" in block {outcome.block}" if outcome.block else ""
        why = f" ({outcome.why})" if outcome.why else ""
        lines.append(f"{describe(outcome.candidate)}{again}: {found}{why}")
    return lines


def to_be_set(result: SweepResult) -> bool:
    """Whether there is something to set: nothing is found where the default comes nearest and misses the target."""
    recommended = result.recommended
    if recommended is None or recommended.measurement is None or result.script is not None or result.stays:
        return False
    return meets(recommended.measurement, result.goal) or recommended.role != "baseline"
