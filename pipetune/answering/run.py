"""``pipetune whatif`` as a program: read a run, answer, check where asked to, keep what was measured."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pipetune.accelerator.cuda_devices import count_cuda_devices
from pipetune.answering.answer import answer
from pipetune.answering.base import Base, base_of
from pipetune.answering.check import Bench, check_answers, here_of
from pipetune.answering.questions import Asked, questions_of
from pipetune.answering.reach import reach_of
from pipetune.answering.targets import Maker
from pipetune.datasets.index import write_index
from pipetune.errors import PipetuneError, UsageError, exit_code_of
from pipetune.explaining.run import ExplainObserver
from pipetune.machine.host import describe_host
from pipetune.predicting.candidates import predicted
from pipetune.processes.signals import note_signals
from pipetune.records.prediction import INTERPOLATED, Answer, Prediction, WhatIf
from pipetune.records.redact import own_command
from pipetune.records.sweep import SCHEMA, to_dict
from pipetune.runs.run import WHATIF
from pipetune.store.folder import create_run
from pipetune.version import __version__

#: The model has to give what was measured within this share; otherwise a note says so.
_FITS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfOptions:
    """The defaults are those of the command and of ``pipetune.whatif``."""

    run: Path
    """A stored sweep or explanation."""
    candidate: str | None = None
    """Of a sweep: its key, ``recommended`` or ``default``."""
    asked: Asked = field(default_factory=Asked)
    target: float | None = None
    """Share of the accelerator's rate that is wanted (0..1]; ``None``: the sweep's."""
    check: bool = False
    """Measure what can be measured on this machine."""
    seconds: float = 3.0
    """Length of the timed phase of each measurement (s)."""
    blocks: int = 2
    """How often each is measured, in turn with the others."""
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfRun:
    """What was answered."""

    found: WhatIf
    result: dict[str, Any]
    """What ``--json`` writes."""
    about: dict[str, Any]
    """What was asked, and of which machine, as ``run.json`` has it."""
    exit_code: int = 0
    path: Path | None = None
    """The folder of what was measured; ``None``: nothing was."""
    stopped: str | None = None
    """Why it was stopped; ``None``: it came to its end."""
    not_written: PipetuneError | None = None
    """The disk refused ``result.json``: to be raised once the result has been shown."""


def check_values(chosen: WhatIfOptions) -> None:
    """Refuse values that are out of range.

    Raises:
        UsageError: names the option and the value.
    """
    if chosen.target is not None and not 0 < chosen.target <= 1:
        raise UsageError(f"--target {chosen.target:g} is no share above 0 and up to 1", hint="write --target 0.9")
    if not 0.5 <= chosen.seconds <= 600:
        raise UsageError(f"--seconds {chosen.seconds:g} is out of range", hint="write --seconds 3")
    if not 1 <= chosen.blocks <= 20:
        raise UsageError(f"--blocks {chosen.blocks} is out of range", hint="write --blocks 2")


def start(chosen: WhatIfOptions, out: Path | None, observer: ExplainObserver) -> WhatIfRun:
    """Answer, and check where that was asked for.

    Args:
        out: the folder for what is measured, new or empty; ``None``: ``pipetune-runs/TIME-whatif-DATASET``.

    Raises:
        UsageError: an option that cannot be used, or a run that tells too little.
        PipetuneError: the disk refuses.
    """
    began = time.monotonic()
    check_values(chosen)
    questions = questions_of(chosen.asked)
    if chosen.check and not questions:
        raise UsageError("--check has nothing to measure: no question is asked", hint="add e.g. --cores 1")
    if out is not None and not chosen.check:
        raise UsageError(f"--out {out} has no effect: nothing is measured without --check", hint="add --check")
    base = base_of(chosen.run, chosen.candidate)
    if chosen.target is not None:
        base = replace(base, target=chosen.target)
    answers = tuple(answer(question, base) for question in questions)
    if not chosen.check:
        found = _found(base, answers)
        return WhatIfRun(
            found=found, result=_result(found, "ok", None, began), about=_record(chosen, base.host, base),
            exit_code=_exit_code(answers),
        )  # fmt: skip
    return _checked(chosen, base, answers, out, observer, began)


def _checked(
    chosen: WhatIfOptions, base: Base, answers: Sequence[Answer], out: Path | None, observer: ExplainObserver,
    began: float,
) -> WhatIfRun:  # fmt: skip
    stops: list[KeyboardInterrupt | PipetuneError] = []
    name = base.images.name if base.images is not None else "loader"
    about = _record(chosen, to_dict(describe_host()), base)
    with contextlib.ExitStack() as held, create_run(out, dataset_name=f"whatif-{name}", now=datetime.now()) as folder:
        if base.images is not None:
            write_index(str(folder.path / "index.json"), base.images)
        folder.write_json("run.json", about)
        found = _found(base, answers)
        with Maker(base, folder.path, chosen.seconds) as maker:
            checked = check_answers(
                answers, base, maker, Bench(folder, observer), here_of(describe_host(), _devices(base)),
                blocks=chosen.blocks, seed=chosen.seed, on_stop=stops.append,
            )  # fmt: skip
            late = held.enter_context(note_signals())  # from here on they would only lose what was measured
        found = replace(found, answers=checked)
        stopped = _why(stops[0]) if stops else None
        message = str(stops[0]) or stopped if stops else None
        result = _result(found, stopped or "ok", message, began)
        not_written: PipetuneError | None = None
        try:
            folder.write_json("result.json", result)
        except PipetuneError as error:
            not_written = error
    nothing = any(one.prediction for one in checked) and not any(one.check for one in checked)
    return WhatIfRun(
        found=found, result=result, about=about, path=folder.path, stopped=stopped, not_written=not_written,
        exit_code=_code_of(stops[0]) if stops else late.exit_code or _exit_code(checked) or int(nothing),
    )  # fmt: skip


def _why(stop: KeyboardInterrupt | PipetuneError) -> str:
    return "failed" if isinstance(stop, PipetuneError) else "interrupted"


def _code_of(stop: KeyboardInterrupt | PipetuneError) -> int:
    return stop.exit_code if isinstance(stop, PipetuneError) else exit_code_of(stop)


def _devices(base: Base) -> int:
    """CUDA devices, where the run was of one."""
    return count_cuda_devices(base.workload.accelerator.kind == "cuda")[0]


def _found(base: Base, answers: Sequence[Answer]) -> WhatIf:
    now = predicted(base.costs, base.setting, INTERPOLATED, base.own_errors(INTERPOLATED))
    return WhatIf(
        candidate=base.candidate.key, now=now, measured_samples_per_s=base.measured_samples_per_s,
        answers=tuple(answers), target=base.target, reach=reach_of(base, now),
        own_errors=tuple(math.expm1(error) for error in base.own_errors()),
        notes=misfit(base, now),
    )  # fmt: skip


def misfit(base: Base, now: Prediction) -> tuple[str, ...]:
    """A note where the model does not give what was measured; else none."""
    if abs(now.samples_per_s / base.measured_samples_per_s - 1) <= _FITS:
        return ()
    return (
        f"the model gives {now.samples_per_s:,.0f}/s for what was measured as {base.measured_samples_per_s:,.0f}/s: "
        "expect its answers to be off by as much",
    )


def _exit_code(answers: Sequence[Answer]) -> int:
    """2 where nothing that was asked can be known."""
    return 2 if answers and all(one.prediction is None for one in answers) else 0


def _result(found: WhatIf, status: str, message: str | None, began: float) -> dict[str, Any]:
    return {
        "schema": SCHEMA, "kind": WHATIF, "status": status, "message": message, "seconds": time.monotonic() - began,
        "whatif": to_dict(found),
    }  # fmt: skip


def _record(chosen: WhatIfOptions, host: Mapping[str, Any], base: Base) -> dict[str, Any]:
    """run.json: everything that is needed to understand or repeat it.

    Args:
        host: the machine that was measured.
    """
    return {
        "schema": SCHEMA, "kind": WHATIF, "pipetune": __version__, "started": datetime.now().astimezone().isoformat(),
        "command": own_command(sys.argv), "cwd": os.getcwd(),
        "options": {**to_dict(chosen), "run": str(chosen.run)}, "of": str(chosen.run.resolve()),
        "candidate": to_dict(base.candidate), "workload": to_dict(base.workload), "host": dict(host),
        "notes": [],
    }  # fmt: skip
