"""How ``observe`` and ``watch`` describe themselves: one line in a console, a small table in a notebook."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from pipetune.diagnosis.causes import HEALTHY_LOST, title_of
from pipetune.records.sweep import StepTime
from pipetune.records.watch import Verdict
from pipetune.report.terminal.signs import clean
from pipetune.report.terminal.watch_text import name_of_rank
from pipetune.units import format_duration, format_rate, format_share

#: What is described, by label. A value may be anything, such as the name of a process or a folder.
Facts = Mapping[str, str]


def as_line(name: str, facts: Facts) -> str:
    """``<pipetune.watch: job train.py; state watching>`` of the name and its facts, without control characters."""
    return clean(f"<pipetune.{name}: {'; '.join(f'{label} {value}' for label, value in facts.items())}>")


def as_html(name: str, facts: Facts) -> str:
    """A table with a row per fact; every text is escaped."""
    style = 'style="text-align: left"'
    rows = "".join(
        f"<tr><th {style}>{_escaped(label)}</th><td {style}>{_escaped(value)}</td></tr>"
        for label, value in facts.items()
    )
    return f"<table><caption>pipetune.{_escaped(name)}</caption><tbody>{rows}</tbody></table>"


def verdict_facts(verdicts: Sequence[Verdict]) -> dict[str, str]:
    """What the worst rank lost, and why; of several ranks it is named.

    Args:
        verdicts: one per rank, the worst first; empty: no window has closed.
    """
    if not verdicts:
        return {"lost": "unknown before the first window closes"}
    worst = verdicts[0]
    lost = "unknown" if worst.lost_frac is None else f"{format_share(worst.lost_frac)} of the accelerator's time"
    if len(verdicts) > 1:
        lost += f" in {name_of_rank(worst.rank, worst.pid)}, the worst of {len(verdicts)} ranks"
    return {"lost": lost, "cause": f"{title_of(worst.cause)} ({worst.confidence} confidence)"}


def loop_facts(steps: Sequence[StepTime], warmup_steps: int) -> dict[str, str]:
    """Steps, rate and idle time of a loop, as :func:`pipetune.runs.frames.loop_frame` computes them.

    Args:
        steps: in the order of time.
        warmup_steps: the first ones, which count in no figure.
    """
    timed = steps[warmup_steps:]
    if not timed:
        return {"steps": f"{len(steps)}, all of them warm-up"}
    facts = {"steps": f"{len(timed)} after {warmup_steps} of warm-up"}
    before = steps[warmup_steps - 1] if warmup_steps else None
    began_ns = timed[0].t_start_ns if before is None else before.t_end_ns
    # Between two epochs the loop asks for no batch.
    pairs = zip(steps[max(0, warmup_steps - 1) :], timed if warmup_steps else timed[1:], strict=False)
    outside_ns = sum(max(0, later.t_start_ns - earlier.t_end_ns) for earlier, later in pairs)
    seconds = (timed[-1].t_end_ns - began_ns - outside_ns) / 1e9
    if seconds <= 0:
        return facts
    idle = sum(step.idle_s for step in timed) / seconds
    waits = sum(step.data_wait_s for step in timed) / seconds
    facts["rate"] = format_rate(sum(step.samples for step in timed) / seconds, " samples/s")
    facts["accelerator idle"] = f"{format_share(idle)} of {format_duration(seconds)}"
    if idle >= HEALTHY_LOST:
        facts["loop waits for data"] = f"{format_share(waits)} of the time"
    return facts


def _escaped(text: str) -> str:
    return html.escape(clean(text))
