"""``pipetune.scale``: the command's table, from a notebook or a script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pipetune.errors import UsageError
from pipetune.records.scaling import Scaling
from pipetune.runs.run import Run

if TYPE_CHECKING:
    from pipetune.scaling.accuracy import Reach


def scale(
    *runs: Run | str | Path,
    table: str | Path | Iterable[str | Path] = (),
    candidate: str | None = None,
    to: int | Iterable[int] = (),
    per_host: int | None = None,
    images: int | None = None,
    epochs: float | None = None,
    price: str | float | None = None,
    spot: str | float | None = None,
    interruptions: str | float | None = None,
    checkpoint: str | float | None = None,
    restart: str | float = "5m",
    metrics: Mapping[int, str | Path] | None = None,
    metric_name: str | None = None,
    reach: float | str | Iterable[float | str] = (),
) -> Scaling:
    """Rate, efficiency, time and cost over accelerators and hosts::

        found = pipetune.scale("one-rank", "eight-ranks", epochs=90, price="14.40/h")
        pandas.DataFrame(found.rows)
        pipetune.plot.scaling(found)

    The arguments are the options of ``pipetune scale``; ``pipetune scale --help`` says what each means.

    Args:
        runs: sweeps, or their folders, or the folder of an array.
        table: CSV files with rates of your own.
        to: numbers of accelerators to predict.
        price, spot: of a host per hour, as a number or as ``"14.40 EUR/h"``.
        interruptions: ``"5%/h"``, or 0.05.
        checkpoint, restart: as ``"30m"``, or in seconds.
        metrics: number of accelerators -> what a training with so many has written.
        reach: values of the metric, as ``0.75``, or as ``"<=0.5"``.

    Raises:
        UsageError: an argument that cannot be used, named as the command's option.
        PipetuneError: a file cannot be read.
    """
    from pipetune.scaling.price import prices_of
    from pipetune.scaling.scale import ScaleOptions
    from pipetune.scaling.scale import scale as scale_options

    for run in runs:
        if not isinstance(run, (Run, str, Path)):
            raise UsageError(f"scale needs runs or their folders, not {type(run).__name__}",
                             hint="pipetune.scale('one-rank', 'eight-ranks')")  # fmt: skip
    return scale_options(ScaleOptions(
        runs=tuple(run.path if isinstance(run, Run) else Path(run) for run in runs),
        tables=(Path(table),) if isinstance(table, (str, Path)) else tuple(map(Path, table)),
        candidate=candidate, to=(to,) if isinstance(to, int) else tuple(sorted(set(to))), per_host=per_host,
        images=images, epochs=epochs,
        prices=prices_of(_per_hour(price), _per_hour(spot), _share(interruptions), _seconds(checkpoint),
                         _seconds(restart) or "5m"),
        metrics=tuple((count, Path(path)) for count, path in (metrics or {}).items()), metric_name=metric_name,
        reach=_reach(reach),
    ))  # fmt: skip


def _reach(values: float | str | Iterable[float | str]) -> tuple[Reach, ...]:
    from pipetune.scaling.accuracy import parse_reach

    try:
        return tuple(map(parse_reach, [values] if isinstance(values, (int, float, str)) else values))
    except (TypeError, ValueError):
        raise UsageError(f"reach={values!r} is no number", hint="write reach=0.75, or reach='<=0.5'") from None


def _per_hour(value: str | float | None) -> str | None:
    return value if value is None or isinstance(value, str) else f"{value:f}/h"


def _share(value: str | float | None) -> str | None:
    return value if value is None or isinstance(value, str) else f"{100 * value:f}%/h"


def _seconds(value: str | float | None) -> str | None:
    return value if value is None or isinstance(value, str) else f"{value:f}s"
