"""``pipetune.load``: a run folder, or the log of a watch, read in whatever state it was left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pipetune.errors import UsageError
from pipetune.records.stored import StoredInfo, StoredResult
from pipetune.records.watch import Stall, Verdict, Window
from pipetune.runs.earlier import stall_today, verdict_today, window_today
from pipetune.runs.recover import recover_files
from pipetune.runs.run import BATCH_SIZE, EXPLAIN, SWEEP, WATCH, WHATIF, Run
from pipetune.store.files import RESULT_FILE, WINDOWS_FILE
from pipetune.store.fitting import fitting
from pipetune.store.json_lines import Line, load_lines, records_of
from pipetune.store.read import load_info, load_result, load_run, require_run, timeline_names
from pipetune.store.watch_log import STALLS_FILE, timeline_key


def load(path: str | Path) -> Run:
    """Read a run folder in whatever state it was left, or the file that ``pipetune watch --log`` wrote.

    Nothing damaged is guessed at: what could not be read is reported in :attr:`Run.problems`, and the rest is there.

    Raises:
        UsageError: there is no such folder or log.
        PipetuneError: a file of it cannot be read, or what a killed sweep has left cannot be put back.

    Warns:
        RecoveredFilesWarning: files that a killed sweep has left were put back.
    """
    path = Path(path)
    if path.is_file():
        return _load_log(path)
    recover_files(path)  # also where the sweep was killed before it had written what it is
    require_run(path)
    info, found = load_info(path)
    result, result_problems = load_result(path)
    missing = not (path / RESULT_FILE).exists()
    problems = (*found, *(["it did not come to its end: it has no result.json"] if missing else result_problems))
    common: dict[str, Any] = {"path": path, "info": info, "result": result, "candidates": timeline_names(path)}
    kind = str(info.get("kind") or result.get("kind") or (WATCH if (path / WINDOWS_FILE).exists() else SWEEP))
    if kind in (SWEEP, EXPLAIN, WHATIF):
        stored = load_run(path)
        problems = tuple(dict.fromkeys(problems + stored.problems))
        return Run(kind=kind, outcomes=stored.outcomes, problems=problems, **common)
    if kind == BATCH_SIZE:
        return Run(kind=kind, problems=problems, **common)
    windows, window_problems = load_lines(path / WINDOWS_FILE)
    stalls, stall_problems = load_lines(path / STALLS_FILE)
    problems += window_problems + stall_problems
    return _watch(
        kind=kind, windows=windows, stalls=stalls, names=(WINDOWS_FILE, STALLS_FILE, RESULT_FILE),
        problems=problems, common=common,
    )  # fmt: skip


def _load_log(path: Path) -> Run:
    lines, problems = load_lines(path)
    kinds = [line.content.get("kind") for line in lines]
    if not {"start", "window"} & set(map(str, kinds)):
        raise UsageError(
            f"{path} is not the log of a watch", hint="name a run folder, or a file of pipetune watch --log"
        )
    # Every watch adds to the file: the newest one is meant.
    began = max((number for number, kind in enumerate(kinds) if kind == "start"), default=0)
    earlier = kinds[:began].count("start")
    if earlier:
        problems += (f"{path.name} holds {earlier} earlier watches, which are left out",)
        if "end" not in kinds[max(n for n in range(began) if kinds[n] == "start") : began]:
            problems += (
                f"{path.name}: the watch before the newest one has not ended there: it was killed, or both wrote at "
                "the same time, and then what is shown is of both",
            )
    newest = lines[began:]
    last: dict[str, Any] = next((line.content for line in reversed(newest) if line.content.get("kind") == "end"), {})
    first = newest[0].content if newest[0].content.get("kind") == "start" else {}
    start, start_problems = fitting(StoredInfo, first, f"{path.name}, the start")
    end, end_problems = fitting(StoredResult, last, f"{path.name}, the end")
    problems += (*start_problems, *end_problems)
    run = _watch(
        kind=WATCH, windows=[line for line in newest if line.content.get("kind") == "window"],
        stalls=[line for line in newest if line.content.get("kind") == "stall"], names=(path.name,) * 3,
        problems=problems, common={"path": path, "info": start, "result": end, "candidates": ()},
    )  # fmt: skip
    ranks = sorted({verdict.rank for window in run.windows for verdict in window.verdicts}, key=str)
    return replace(run, candidates=tuple(timeline_key(rank) for rank in ranks))


def _watch(
    *, kind: str, windows: list[Line], stalls: list[Line], names: tuple[str, str, str], problems: tuple[str, ...],
    common: dict[str, Any],
) -> Run:  # fmt: skip
    """A watch from its lines and its result; what of them is damaged becomes a problem.

    Args:
        names: of the files that windows, stalls and result are from, for the problems.
    """
    closed, bad_windows = records_of(windows, Window, names[0])
    ended, bad_stalls = records_of(stalls, Stall, names[1])
    whole = [Line(None, verdict) for verdict in common["result"].get("verdicts", ())]
    verdicts, bad_verdicts = records_of(whole, Verdict, f"{names[2]}: a verdict")
    last = closed[-1].verdicts if closed else ()
    return Run(
        kind=kind, windows=tuple(map(window_today, closed)), ended_stalls=tuple(map(stall_today, ended)),
        verdicts=tuple(map(verdict_today, verdicts or last)),
        problems=(*problems, *bad_windows, *bad_stalls, *bad_verdicts), **common,
    )  # fmt: skip
