"""The sweep of a user's own training script: start it, measure in it, confirm in fresh starts, conclude."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipetune.errors import PipetuneError, UsageError
from pipetune.measure import harness
from pipetune.measure.script.bench import ScriptBench
from pipetune.processes.signals import note_signals
from pipetune.protection.contract import Request
from pipetune.protection.guard import named_folders
from pipetune.records.redact import redact_words
from pipetune.records.script import ScriptSummary
from pipetune.records.sweep import Outcome, to_dict
from pipetune.records.written import WrittenFiles
from pipetune.runs.recover import recover_all, recover_files
from pipetune.sourcetext.settings import option_for, origins_for
from pipetune.store.files import RUN_FILE
from pipetune.store.folder import RunFolder, create_run, load_run, open_run
from pipetune.sweeping.imported_loader import find_loader, options_for
from pipetune.sweeping.loop import Measure
from pipetune.sweeping.observer import SweepObserver
from pipetune.sweeping.options import SweepOptions, check, check_values
from pipetune.sweeping.result_json import to_json
from pipetune.sweeping.resume import Resumed, differences_of_script, goal_of_resumed, read_resumed, refuse_another_sweep
from pipetune.sweeping.run import (
    SweepRun,
    conclude_sweep,
    exit_code,
    measure_all,
    resume,
    resumed_record,
    run_record,
    start,
)
from pipetune.sweeping.script_files import ScriptFiles
from pipetune.sweeping.script_setup import plan_script, prepare_script
from pipetune.usercode.make_loader import require_own

#: The script's output, in the run folder.
LOG = "script.log"


def start_script(chosen: SweepOptions, out: Path | None, observer: SweepObserver) -> SweepRun:
    """Tune the script of ``chosen.command``; raises as :func:`pipetune.sweeping.run.start`."""
    check_values(chosen)
    recover_all(out, named_folders(Request(command=chosen.command, cwd=Path.cwd())))
    with contextlib.ExitStack() as held, observer:
        folder = held.enter_context(create_run(out, dataset_name=chosen.dataset, now=datetime.now()))
        try:
            return _sweep(held, chosen, folder, observer)
        except (PipetuneError, KeyboardInterrupt):
            folder.remove_unless_used()
            raise


def resume_script(path: Path, given: Mapping[str, Any], observer: SweepObserver) -> SweepRun:
    """Resume the interrupted sweep of a script; raises as :func:`pipetune.sweeping.run.resume`."""
    with contextlib.ExitStack() as held:
        folder = held.enter_context(open_run(path))
        require_own(path / RUN_FILE, (path / RUN_FILE).stat())  # the command in it is started
        earlier = read_resumed(path, given)
        if Path(earlier.run.get("cwd", ".")) != Path.cwd():
            raise UsageError(
                f"{path} was measured in {earlier.run.get('cwd')}, where the script's relative paths hold",
                hint=f"cd {earlier.run.get('cwd')}, then resume",
            )
        with observer:
            return _sweep(held, earlier.chosen, folder, observer, earlier, given)


def _sweep(
    held: contextlib.ExitStack, chosen: SweepOptions, folder: RunFolder, observer: SweepObserver,
    earlier: Resumed | None = None, given: Mapping[str, Any] = MappingProxyType({}),
) -> SweepRun:  # fmt: skip
    """Measure in the script until the search is done.

    Args:
        held: left when the sweep has ended; until then a signal that arrives once all is measured ends nothing.
        earlier: the sweep that is resumed.
        given: the options that were given anew. A time budget among them is for the rest, and not for the whole.
    """
    began = time.monotonic()
    known, spent_s = ((), 0.0) if earlier is None else (earlier.outcomes, earlier.spent_s)
    with (
        ScriptFiles(folder, chosen.command, allow_writes=chosen.allow_writes) as files,
        ScriptBench(
            chosen.command, folder.path / LOG, protection=files.protection, on_stage=observer.on_stage
        ) as bench,
    ):
        observer.on_stage(f"starting {chosen.dataset.partition(':')[2]}", 0, None)
        loader = bench.begin()
        prepared = prepare_script(chosen, loader)
        if earlier is not None:
            prepared = replace(prepared, goal=goal_of_resumed(earlier, prepared.goal))
        plan = replace(plan_script(chosen, prepared, ranks=loader.ranks), new_start_s=bench.setup_seconds[-1])
        untuned = prepared.space.untuned
        assert untuned is not None
        if earlier is not None:
            refuse_another_sweep(earlier, prepared, differences_of_script(earlier, loader, untuned))
        if plan.budget_s is not None and "budget_s" not in given:
            plan = replace(plan, budget_s=plan.budget_s - spent_s)
        bench.settle_on(untuned)
        chosen = replace(chosen, batch_size=untuned.batch_size)
        record = run_record(chosen, prepared, plan) | {"script": to_dict(_summary(chosen, bench))}
        folder.write_json("run.json", record if earlier is None else resumed_record(earlier, given, record))
        folder.remove_result()
        ended = measure_all(plan, prepared, folder, observer, known, bench.measure)
        late = held.enter_context(note_signals())
    written = files.settle()
    seconds = time.monotonic() - began + spent_s
    result = conclude_sweep(ended, chosen, prepared, plan, seconds, len(known), "")
    summary = _summary(chosen, bench, confirmed=_is_confirmed(result.recommended, ended.outcomes), written=written)
    result = replace(result, script=summary)
    not_written: PipetuneError | None = None
    try:
        folder.write_json("result.json", to_json(result))
    except PipetuneError as error:
        not_written = error
    return SweepRun(
        result=result, prepared=prepared, path=folder.path, exit_code=exit_code(ended, result, late),
        stopped=ended.stopped, message=ended.message, resumable=ended.resumable, not_written=not_written,
    )  # fmt: skip


def _is_confirmed(recommended: Outcome | None, outcomes: Sequence[Outcome]) -> bool:
    """Whether the recommendation was measured in a start of its own, after the search."""
    return recommended is not None and any(
        outcome.candidate == recommended.candidate and outcome.block and outcome.measurement and not outcome.forked
        for outcome in outcomes
        if outcome.role != "ceiling"
    )


def _summary(
    chosen: SweepOptions, bench: ScriptBench, *, confirmed: bool = False, written: WrittenFiles | None = None
) -> ScriptSummary:
    loader = bench.loader
    return ScriptSummary(
        command=redact_words(chosen.command), cwd=os.getcwd(), loader=loader, starts=bench.starts,
        setup_s=min(bench.setup_seconds) if bench.setup_seconds else None,
        confirmed=confirmed,
        option=None if loader is None else option_for(loader, "num_workers", chosen.command),
        origins={} if loader is None else origins_for(loader, chosen.command),
        written=written, notes=tuple(bench.notes), epoch_starts_counted=True,
    )  # fmt: skip


def start_any(
    chosen: SweepOptions, out: Path | None, observer: SweepObserver, loader: str | None = None,
    measure: Measure = harness.measure,
) -> SweepRun:  # fmt: skip
    """A sweep from its beginning: of a script where the options have its command, else of loaders over a data set.

    Args:
        loader: name of a loader of the user's, which takes the place of a data set.
        measure: measures one candidate over a data set, on all hosts where there are several.
    """
    if chosen.command:
        return start_script(chosen, out, observer)
    if loader is None:
        return start(chosen, out, observer, measure=measure)
    check(chosen)
    found = find_loader(loader)
    return start(options_for(chosen, found), out, observer, found.packed)


def resume_any(
    path: Path, given: Mapping[str, Any], observer: SweepObserver, measure: Measure = harness.measure
) -> SweepRun:  # fmt: skip
    """Resume the interrupted sweep in a run folder, whichever kind it is."""
    recover_files(path)
    options = load_run(path).run.get("options")
    is_script = isinstance(options, dict) and bool(options.get("command"))
    return resume_script(path, given, observer) if is_script else resume(path, given, observer, measure)
