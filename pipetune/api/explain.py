"""``pipetune.explain``: the command's measurement, called from a notebook or a script."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pipetune.errors import PipetuneError, UsageError
from pipetune.records.explanation import Explanation
from pipetune.runs.run import Run

if TYPE_CHECKING:
    from pipetune.explaining.run import ExplainObserver


def explain(
    run_or_dataset: Run | str | Path,
    *,
    candidate: str | None = None,
    stages: str = "all",
    seconds: float = 2.0,
    blocks: int = 3,
    cache: str = "warm",
    model: str = "resnet50",
    device: str = "auto",
    image_size: int = 224,
    augment: str = "basic",
    precision: str = "auto",
    compile: bool = False,
    seed: int = 0,
    out: str | Path | None = None,
    progress: bool = True,
) -> Explanation:
    """Measure each stage of a loader by itself: where its time goes, what sets its pace, and what would lift it::

        found = pipetune.explain(run)            # of a sweep, or pipetune.explain("/data/imagenet/train")
        print(found.sentence)
        pipetune.plot.waterfall(found)

    The arguments are the options of ``pipetune explain``; ``pipetune explain --help`` says what each means.

    Args:
        run_or_dataset: a sweep, or its folder; or a data set, as for :func:`pipetune.sweep`.
        candidate: the key of a loader, ``"recommended"`` or ``"default"``.
        stages: ``"all"``, or ``"warm"`` to leave storage out.
        cache: of a data set: ``"warm"`` or ``"cold"``, in which the whole loader is judged.
        seconds: steady measurement of each part (s).
        blocks: how often each part is measured.
        out: run folder, new or empty; ``pipetune-runs/TIME-explain-DATASET`` unless given.
        progress: show what is being measured.

    Raises:
        UsageError: an argument that cannot be used, named as the command's option.
        PipetuneError: too little could be measured.
    """
    from pipetune.explaining.options import ExplainOptions
    from pipetune.explaining.run import ExplainObserver, start
    from pipetune.store.files import RUN_FILE

    if stages not in ("all", "warm"):
        raise UsageError(f"stages={stages!r} is unknown", hint="choose from 'all', 'warm'")
    run: Path | None = None
    dataset: str | None = None
    if isinstance(run_or_dataset, Run):
        run = run_or_dataset.path
    elif (Path(run_or_dataset) / RUN_FILE).is_file():
        run = Path(run_or_dataset)
    else:
        dataset = str(run_or_dataset)
    chosen = ExplainOptions(
        run=run, dataset=dataset, candidate=candidate, seconds=seconds, blocks=blocks, cold=stages == "all",
        cache=cache, model=model, device=device, image_size=image_size, augment=augment, precision=precision,
        compile=compile, seed=seed,
    )  # fmt: skip
    ended = start(chosen, None if out is None else Path(out), _display() if progress else ExplainObserver())
    if ended.not_written is not None:
        raise ended.not_written
    if ended.explanation is None:
        raise PipetuneError(ended.message or "too little was measured", hint=f"see {ended.path}")
    return ended.explanation


def _display() -> ExplainObserver:
    from rich.console import Console

    from pipetune.report.terminal.explain_live import Display

    return Display(Console(file=sys.stderr))
