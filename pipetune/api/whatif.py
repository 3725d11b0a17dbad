"""``pipetune.whatif``: the command's answers, from a notebook or a script."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pipetune.api.values import Values, text_of
from pipetune.errors import UsageError
from pipetune.records.prediction import WhatIf
from pipetune.runs.run import Run

if TYPE_CHECKING:
    from pipetune.explaining.run import ExplainObserver


def whatif(
    run: Run | str | Path,
    *,
    cores: Values = None,
    workers: Values = None,
    disk: Values = None,
    memory: Values = None,
    device: Values = None,
    ranks: Values = None,
    image_size: Values = None,
    shorter_edge: Values = None,
    transforms: Values = None,
    candidate: str | None = None,
    target: float | None = None,
    check: bool = False,
    seconds: float = 3.0,
    blocks: int = 2,
    seed: int = 0,
    out: str | Path | None = None,
    progress: bool = True,
) -> WhatIf:
    """Predict the rate with other cores, workers, storage, memory, accelerators, ranks or images::

        pipetune.explain(run, out="explained")
        found = pipetune.whatif("explained", cores=[4, 8, 16])    # or whatif(run, …), which knows less
        found.answers[0].prediction.samples_per_s
        pipetune.plot.answers(found)

    The arguments are the options of ``pipetune whatif``; ``pipetune whatif --help`` says what each means. Each of the
    first nine takes a value or several, and every combination is answered; numbers for ``memory`` are bytes.

    Args:
        run: a sweep or an explanation, or its folder; explanations know more.
        candidate: of a sweep: the key of a loader, ``"recommended"`` or ``"default"``.
        target: share of the accelerator's rate to reach (0..1].
        check: measure what this machine can be put to.
        seconds, blocks, seed: of these measurements.
        out: folder for them, new or empty; ``pipetune-runs/TIME-whatif-DATASET`` unless given.
        progress: show what is being measured.

    Raises:
        UsageError: an argument that cannot be used, named as the command's option.
        PipetuneError: the disk refuses.
    """
    from pipetune.answering.questions import Asked
    from pipetune.answering.run import WhatIfOptions, start
    from pipetune.explaining.run import ExplainObserver

    if not isinstance(run, (Run, str, Path)):
        raise UsageError(
            f"whatif needs a run or its folder, not {type(run).__name__}",
            hint="pipetune.explain(…, out='explained'), then pipetune.whatif('explained')",
        )
    asked = Asked(
        cores=text_of(cores), workers=text_of(workers), disk=text_of(disk, between=";"), memory=text_of(memory),
        device=text_of(device), ranks=text_of(ranks), image_size=text_of(image_size),
        shorter_edge=text_of(shorter_edge), transforms=text_of(transforms),
    )  # fmt: skip
    chosen = WhatIfOptions(
        run=run.path if isinstance(run, Run) else Path(run), candidate=candidate, asked=asked, target=target,
        check=check, seconds=seconds, blocks=blocks, seed=seed,
    )  # fmt: skip
    with _display() if check and progress else ExplainObserver() as observer:
        ended = start(chosen, None if out is None else Path(out), observer)
    if ended.not_written is not None:
        raise ended.not_written
    return ended.found


def _display() -> ExplainObserver:
    from rich.console import Console

    from pipetune.report.terminal.explain_live import Display

    return Display(Console(file=sys.stderr))
