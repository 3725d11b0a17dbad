"""Runs the benchmarks one after the other and prints which promises hold.

    python -m benchmarks --quick                          all of them, shortened: about an hour on two cores
    python -m benchmarks --quick --only startup search/   some, by name or folder
    python -m benchmarks --list                           names and promises

Each runs in a process of its own with a time limit. Close other programs first: most promises are about time. The exit
code is 0 where every promise holds or cannot be judged here, 1 where one does not hold or a benchmark failed, 2 where a
name is unknown.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path

from benchmarks import bench
from benchmarks.catalogue import BENCHMARKS, FOLDER, Benchmark

HOLDS, MISSED, SKIPPED, FAILED = "holds", "missed", "skipped", "failed"
#: Time to clean up between a request to end and the end by force (s).
_GRACE_S = 15.0
_TAIL_LINES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one benchmark."""

    name: str
    outcome: str
    """``holds``, ``missed``, ``skipped``, or ``failed``: it crashed or ran past its limit, so nothing was judged."""
    exit_code: int | None
    """``None``: ended by force."""
    seconds: float
    promise: str
    reason: str = ""
    """Why it was skipped or failed; why the promise was missed is in its output."""
    output: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the shortened run of each")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="benchmarks, or folders with a slash")
    parser.add_argument("--list", action="store_true", help="print names and promises, run nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes to this file")
    options = parser.parse_args(arguments)
    chosen, unknown = choose(options.only)
    if unknown:
        print(unknown, file=sys.stderr)
        return 2
    if options.list:
        rows = [[benchmark.name, benchmark.path, benchmark.promise] for benchmark in chosen]
        print(bench.table(["benchmark", "file in benchmarks/", "promise"], rows, left=(0, 1, 2)))
        return 0
    outcomes: list[Outcome] = []
    for number, benchmark in enumerate(chosen, 1):
        print(f"{number}/{len(chosen)} {benchmark.name} …", flush=True)
        outcomes.append(run(benchmark, quick=options.quick))
        show(outcomes[-1])
        if options.json:  # each time: they take long
            bench.write(options.json, "all", passed(outcomes), {"outcomes": [asdict(outcome) for outcome in outcomes]})
    print("\n" + table(outcomes))
    counts = Counter(outcome.outcome for outcome in outcomes)
    print("\n" + ", ".join(f"{counts[kind]} {kind}" for kind in (HOLDS, MISSED, FAILED, SKIPPED) if counts[kind]))
    return 0 if passed(outcomes) else 1


def choose(names: Sequence[str] | None) -> tuple[list[Benchmark], str]:
    """The benchmarks of these names and folders (``None``: all), and what is wrong with a name, if anything."""
    if names is None:
        return list(BENCHMARKS), ""
    known = sorted({b.name for b in BENCHMARKS} | {b.folder for b in BENCHMARKS})
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, 1)
            return [], f"no benchmark or folder {name!r}; " + (f"did you mean {close[0]}?" if close else "see --list")
    return [b for b in BENCHMARKS if b.name in names or b.folder in names], ""


def run(benchmark: Benchmark, *, quick: bool) -> Outcome:
    """Run one in a process of its own; ``quick``: its shortened run."""
    limit_s = benchmark.quick_limit_s if quick else benchmark.limit_s
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pipetune-benchmark-") as name:
        result, log = Path(name, "result.json"), Path(name, "log.txt")
        command = [sys.executable, str(FOLDER / benchmark.path), "--json", str(result), *(["--quick"] if quick else [])]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=bench.environment(),
                start_new_session=True,
            )  # fmt: skip
            try:
                code: int | None = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                end(process)
        text = log.read_text(errors="replace").rstrip()
        judged = json.loads(result.read_text())["promise_holds"] if result.exists() else None
    outcome, reason = classify(code, judged, text, limit_s)
    return Outcome(
        name=benchmark.name, outcome=outcome, exit_code=code, seconds=round(time.monotonic() - began, 1),
        promise=benchmark.promise, reason=reason, output=text,
    )  # fmt: skip


def classify(code: int | None, judged: bool | None, text: str, limit_s: float) -> tuple[str, str]:
    """The outcome and its reason, from the exit code, the result's ``promise_holds`` and the output."""
    last = text.rpartition("\n")[2].strip()
    if code is None:
        return FAILED, f"not done after {limit_s:.0f} s"
    if code == bench.HOLDS and judged:
        return HOLDS, ""
    if code == bench.MISSED and judged is False:
        return MISSED, ""
    if code == bench.SKIPPED and last.startswith("skipped: "):
        return SKIPPED, last.removeprefix("skipped: ")
    ending = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
    return FAILED, f"{ending}: {last}" if last else ending


def end(process: subprocess.Popen[bytes]) -> None:
    """End a benchmark and what it started: by request, and by force after the grace period."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def show(outcome: Outcome) -> None:
    """Print an outcome; of one that is not as promised, the end of its output, too."""
    print(
        f"    {outcome.outcome} ({outcome.seconds:.0f} s){': ' if outcome.reason else ''}{outcome.reason}", flush=True
    )
    if outcome.outcome in (MISSED, FAILED):
        for line in outcome.output.splitlines()[-_TAIL_LINES:]:
            print(f"    | {line}", flush=True)


def table(outcomes: Sequence[Outcome]) -> str:
    """A line per benchmark."""
    rows = [
        [o.name, o.outcome, "" if o.exit_code is None else str(o.exit_code), f"{o.seconds:.0f}", o.promise]
        for o in outcomes
    ]
    return bench.table(["benchmark", "outcome", "rc", "seconds", "promise"], rows, left=(0, 1, 4))


def passed(outcomes: Sequence[Outcome]) -> bool:
    """Whether none was missed and none failed."""
    return not any(outcome.outcome in (MISSED, FAILED) for outcome in outcomes)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
