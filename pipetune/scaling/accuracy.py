"""Accuracy over time, from the files that trainers write: CSV, JSON lines, or the state of a Hugging Face trainer.

Time is a column of seconds since the training began, or of clock time, of which the file's first is the beginning.
Without either, epochs are as long as the rate says.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pipetune.errors import UsageError, did_you_mean
from pipetune.records.scaling import Curve
from pipetune.store.files import os_errors_as

#: Columns that are seconds since the beginning, in lower case, and what makes seconds of them.
_SINCE = {
    "time_s": 1.0, "seconds": 1.0, "elapsed_s": 1.0, "elapsed": 1.0, "_runtime": 1.0, "runtime": 1.0, "time": 1.0,
    "minutes": 60.0, "time_min": 60.0, "hours": 3600.0, "time_h": 3600.0,
}  # fmt: skip
#: Columns that are clock time: seconds since 1970, or a date.
_CLOCK = ("_timestamp", "timestamp", "wall time", "wall_time", "walltime", "date", "datetime")
_EPOCHS = ("epoch", "epochs")
#: Columns that say where in a training a line belongs.
_STEPS = ("step", "global_step", "_step", "iteration")
_PLACES = (*_EPOCHS, *_STEPS, "batch")
#: Words in the names of metrics of which less is better, and of those of which more is.
_FALLING = re.compile(r"\w*loss|err|error|errors|perplexity|ppl|wer|cer|mae|mse|rmse|fid|nll|bpc|eer")
_RISING = re.compile(
    r"acc\d*|accuracy\d*|top\d*|prec\d*|precision|recall|m?ap\d*|f1|auc|auroc|m?iou|dice|bleu|psnr|ssim|score|r2|kappa"
)
#: Seconds from which on a time is one since 1970, and from which on those are milliseconds.
_SINCE_1970, _MILLISECONDS = 1e8, 1e11
#: What is larger is no figure of a training.
_MOST = 1e300


def read_curve(path: Path, metric: str | None, accelerators: int | None, epoch_s: Callable[[], float | None]) -> Curve:
    """One training's metric over time.

    Args:
        metric: name of its column; ``None``: the only one there is.
        epoch_s: how long an epoch is, for a file that has no times.

    Raises:
        UsageError: the file cannot be read, or has no such metric, or no time.
        PipetuneError: the disk refuses.
    """
    lines = _lines_of(path)
    if not lines:
        raise UsageError(f"{path} has no lines of figures", hint="name the CSV or JSON lines that the trainer writes")
    name = metric if metric is not None else _only_metric(path, lines)
    seconds, from_first = _times_of(path, lines, epoch_s)
    found = [(at, value) for at, line in zip(seconds, lines, strict=True)
             if at is not None and (value := _number(line.get(name))) is not None]  # fmt: skip
    if not found:
        names = sorted({name for line in lines for name, value in line.items() if _number(value) is not None})
        raise UsageError(f"{path} has no value of {name!r}", hint=did_you_mean(
            name, names, otherwise=f"name one with --metric-name: {', '.join(names) or 'there is none'}"
        ))  # fmt: skip
    if any(later < before for (before, _), (later, _) in itertools.pairwise(found)):
        raise UsageError(f"{path}: its times go back", hint="they have to be since the beginning of the training, and "
                         "not of each epoch or of each start: write a column time_s")  # fmt: skip
    return Curve(
        name=str(path), metric=name, accelerators=accelerators, times_s=tuple(at for at, _ in found),
        values=tuple(value for _, value in found), from_first=from_first,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reach:
    """A value that a training is to reach."""

    value: float
    falls: bool | None = None
    """Less is better; ``None``: the metric's name says, or how it changes."""


def parse_reach(text: str | float) -> Reach:
    """``0.75``; ``<=0.5`` or ``>=0.75`` where the metric's name does not say what is better.

    Raises:
        ValueError: it is no number.
    """
    if not isinstance(text, str):
        return Reach(float(text))
    sign = text.strip()[:2]
    if sign in ("<=", ">="):
        return Reach(float(text.strip()[2:]), sign == "<=")
    return Reach(float(text))


def falls(curve: Curve) -> bool:
    """Whether the metric is better the smaller it is, as a loss is.

    Its name says so. Where that is not known, it ends below its beginning: an accuracy does so, too, when a training
    makes a good model worse, and a loss ends above its beginning where a model is fitted to its images alone.
    """
    words = re.split(r"[^a-z0-9]+", curve.metric.lower())
    for smaller, names in ((True, _FALLING), (False, _RISING)):
        if any(names.fullmatch(word) for word in words):
            return smaller
    return curve.values[-1] < curve.values[0]


def reached_s(curve: Curve, wanted: Reach) -> float | None:
    """When an evaluation first showed a value, or a better one; ``None``: none did."""
    down = falls(curve) if wanted.falls is None else wanted.falls
    for at, seen in zip(curve.times_s, curve.values, strict=True):
        if seen <= wanted.value if down else seen >= wanted.value:
            return at
    return None


def _lines_of(path: Path) -> list[Mapping[str, Any]]:
    with os_errors_as("read", path):
        if not path.is_file():
            raise UsageError(f"--metric {path}: there is no such file", hint="name the file that the trainer writes")
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    if text.lstrip()[:1] not in ("{", "["):
        try:
            lines = csv.DictReader(io.StringIO(text), skipinitialspace=True)
            # Some trainers align their columns.
            return [{(name or "").strip(): value for name, value in line.items()} for line in lines]
        except csv.Error as error:
            raise UsageError(f"{path} is no CSV file: {error}", hint="export it as CSV or JSON lines") from error
    try:
        whole = json.loads(text)
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply", hint="one object in each line") from None
    except ValueError:
        return _json_lines(path, text)
    lines = whole.get("log_history", [whole]) if isinstance(whole, dict) else whole
    return [line for line in lines if isinstance(line, dict)] if isinstance(lines, list) else []


def _json_lines(path: Path, text: str) -> list[Mapping[str, Any]]:
    rows = [(number, row) for number, row in enumerate(text.split("\n"), start=1) if row.strip()]
    found: list[Mapping[str, Any]] = []
    for number, row in rows:
        try:
            line = json.loads(row)
        except (ValueError, RecursionError) as error:
            if number == rows[-1][0]:
                break  # the training was killed, or still writes
            raise UsageError(f"{path}, line {number} is no JSON: {error}", hint="one object in each line") from None
        if isinstance(line, dict):
            found.append(line)
    return found


def _only_metric(path: Path, lines: Sequence[Mapping[str, Any]]) -> str:
    taken = {*_SINCE, *_CLOCK, *_PLACES}
    names = list(dict.fromkeys(
        name for line in lines for name, value in line.items()
        if name and name.lower() not in taken and _number(value) is not None
    ))  # fmt: skip
    if len(names) != 1:
        raise UsageError(f"{path} has {len(names) or 'no'} metrics", hint="name one with --metric-name: "
                         f"{', '.join(names) or 'its columns are no numbers'}")  # fmt: skip
    return names[0]


def _times_of(
    path: Path, lines: Sequence[Mapping[str, Any]], epoch_s: Callable[[], float | None]
) -> tuple[list[float | None], bool]:
    """Seconds since the beginning, line for line, and whether they count from the first line."""
    columns = {name.lower(): name for line in lines for name in line if name}
    for wanted in (*_SINCE, *_CLOCK):
        if wanted in columns:
            times = [_seconds(line.get(columns[wanted])) for line in lines]
            known = [at for at in times if at is not None]
            if not known:
                continue
            if wanted in _CLOCK or known[0] > _SINCE_1970:
                unit = 1e-3 if known[0] > _MILLISECONDS else 1.0
                return [None if at is None else unit * (at - known[0]) for at in times], True
            return [None if at is None else at * _SINCE[wanted] for at in times], False
    for wanted in _EPOCHS:
        if wanted in columns:
            each_s = epoch_s()
            if each_s is None:
                break
            epochs = [_number(line.get(columns[wanted])) for line in lines]
            known = [epoch for epoch in epochs if epoch is not None]
            # Whole numbers that begin with 0 are counted before the epoch they belong to, unless the model was
            # evaluated before its first step.
            whole = bool(known) and min(known) == 0 and all(epoch == int(epoch) for epoch in known)
            untrained = any(
                epoch == 0 and any(_number(line.get(columns[step])) == 0 for step in _STEPS if step in columns)
                for epoch, line in zip(epochs, lines, strict=True)
            )
            ended = 1.0 if whole and not untrained else 0.0
            return [None if epoch is None else (epoch + ended) * each_s for epoch in epochs], False
    raise UsageError(
        f"{path} has no time", hint=f"a column time_s of seconds, or epoch, where --metric {path} names the "
        "accelerators of a row whose epoch is known: --metric 8=FILE --images N",
    )  # fmt: skip


def _seconds(value: Any) -> float | None:
    """A number, or a date as ISO 8601 writes it."""
    number = _number(value)
    if number is not None or not isinstance(value, str):
        return number
    try:
        return datetime.fromisoformat(value.strip()).timestamp()
    except ValueError:
        return None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < _MOST else None
