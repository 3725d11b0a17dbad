"""``pipetune.schedule``: a training whose crops grow, from a notebook or a script."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pipetune.api.values import Values, text_of
from pipetune.errors import UsageError
from pipetune.records.schedule import Schedule
from pipetune.runs.run import Run


def schedule(
    run: Run | str | Path,
    image_sizes: str | Mapping[int, float],
    *,
    demand: Values = None,
    device: str | None = None,
    workers: Values = None,
    sizes: Values = None,
    target: float | None = None,
    images: int | None = None,
    price: str | float | None = None,
) -> Schedule:
    """What each phase of a training whose crops grow demands, and what serves it::

        pipetune.explain(run, out="explained")
        found = pipetune.schedule("explained", {128: 18, 224: 22, 288: 28})
        found.phases[0].setup, found.common

    The arguments are the options of ``pipetune schedule``; ``pipetune schedule --help`` says what each means.

    Args:
        run: a run of ``pipetune explain``, or its folder.
        image_sizes: edge of the crops (px) -> epochs, in the order of the training.
        sizes: shorter edges of packs to consider (px); ``"none"``: none.
        price: of this host per hour, as a number or as ``"14.40 EUR/h"``.

    Raises:
        UsageError: an argument that cannot be used, named as the command's option.
        PipetuneError: the run cannot be read.
    """
    from pipetune.scaling.schedule import schedule as plan
    from pipetune.scaling.schedule import schedule_options

    if not isinstance(run, (Run, str, Path)):
        raise UsageError(
            f"schedule needs a run or its folder, not {type(run).__name__}",
            hint="pipetune.explain(…, out='explained'), then pipetune.schedule('explained', …)",
        )
    if not isinstance(image_sizes, (str, Mapping)):
        raise UsageError("image_sizes is neither a mapping nor a text", hint="write {128: 18, 224: 22}")
    phases = image_sizes if isinstance(image_sizes, str) else \
        ",".join(f"{size}:{epochs}" for size, epochs in image_sizes.items())  # fmt: skip
    return plan(schedule_options(
        run.path if isinstance(run, Run) else Path(run), image_sizes=phases, demand=text_of(demand), device=device,
        workers=text_of(workers), sizes=text_of(sizes), target=target, images=images,
        price=price if price is None or isinstance(price, str) else f"{price:f}/h",
    ))  # fmt: skip
