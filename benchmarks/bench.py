"""What the benchmarks share: options, fresh processes, tables, ratios with their spread, result files and exit codes.

A benchmark is a program that states its promise in its docstring (``Promise: …``) and ends with :func:`run`. Its exit
code is 0 where the promise holds, 1 where it does not or the benchmark failed, 2 where this machine cannot judge it.

This module imports pipetune inside functions only, so that ``--help`` answers at once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from pipetune.measure.conditions import Conditions

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
#: A few small photographs.
PHOTOS = ROOT / "tests" / "photos"
HOLDS, MISSED, SKIPPED = 0, 1, 2
_RESAMPLES = 2000


class Skipped(Exception):
    """This machine cannot judge the promise; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a benchmark found."""

    holds: bool
    numbers: Mapping[str, Any]
    """For the result file; must be JSON."""


def run(benchmark: Callable[[argparse.Namespace], Result], file: str, text: str | None, **options: str) -> NoReturn:
    """Read the options, run the benchmark, print whether the promise holds, write the result and exit.

    Args:
        benchmark: prints its table and returns the result, or raises :class:`Skipped`.
        file: the benchmark's own, which names it.
        text: its docstring, shown by ``--help``.
        options: see :func:`arguments`.
    """
    asked = arguments(text, **options)
    try:
        result = benchmark(asked)
    except Skipped as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        sys.exit(SKIPPED)
    print(f"promise: {'holds' if result.holds else 'DOES NOT HOLD'}")
    write(asked.json, Path(file).stem, result.holds, result.numbers)
    sys.exit(HOLDS if result.holds else MISSED)


def arguments(text: str | None, **options: str) -> argparse.Namespace:
    """``--quick``, ``--json FILE`` and further options (name -> help) that take a value."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats; ends within 10 minutes on 2 cores")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers, machine and date to this file")
    for name, explanation in options.items():
        parser.add_argument(f"--{name}", help=explanation)
    return parser.parse_args()


def promise_of(text: str) -> str:
    """The first sentence of a docstring's promise, on one line; empty where it makes none."""
    found = re.search(r"^Promise: (.+?)(?:\.(?=\s)|\.?\Z)", text.strip(), re.MULTILINE | re.DOTALL)
    return " ".join(found[1].split()) if found else ""


def machine() -> dict[str, Any]:
    """What a result may be compared with: processor, memory, kernel and versions, but no names of hosts or people."""
    from pipetune.machine.host import describe_host
    from pipetune.version import __version__

    host = describe_host()
    return {
        "cpu_model": host.cpu_model,
        "cores_usable": host.cores_usable,
        "memory_total_bytes": host.memory_total_bytes,
        "kernel": host.kernel,
        "python": host.python,
        "versions": {**host.versions, "pipetune": __version__},
    }


def write(file: Path | None, name: str, holds: bool, numbers: Mapping[str, Any]) -> None:
    """Write a result with machine and date; nothing where no file was asked for.

    A number that could not be measured (NaN, infinity) is stored as ``null``.
    """
    if file is None:
        return
    content = {
        "benchmark": name,
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": machine(),
        "promise_holds": holds,
        **numbers,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    # json writes NaN as a constant that no other program reads; its own reader can replace it.
    storable = json.loads(json.dumps(content), parse_constant=lambda _: None)
    file.write_text(json.dumps(storable, indent=1, allow_nan=False) + "\n")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> str:
    """Plain columns; those whose numbers are in ``left`` are aligned to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    lines = []
    for row in [headings, ["-" * width for width in widths], *rows]:
        cells = [
            cell.ljust(width) if number in left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def yes(holds: bool) -> str:
    """For a column of a table: what does not hold stands out."""
    return "yes" if holds else "NO"


def bootstrap_ci95(values: Sequence[float]) -> tuple[float, float]:
    """95 % percentile interval of the median; the seed is fixed, so the same values give the same interval."""
    draw = random.Random(0)
    medians = sorted(median(draw.choices(values, k=len(values))) for _ in range(_RESAMPLES))
    return medians[int(0.025 * _RESAMPLES)], medians[int(0.975 * _RESAMPLES)]


def ratio_text(ratios: Sequence[float], digits: int = 2) -> str:
    """The median of ratios and its 95 % interval: ``0.98 (0.97 to 1.01)``."""
    low, high = bootstrap_ci95(ratios)
    return f"{median(ratios):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def environment() -> dict[str, str]:
    """The variables of a process that shall import this checkout."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def last_line_of(command: Sequence[str], timeout_s: float | None = None) -> Any:
    """The JSON that a program prints as its last line, from a process of its own that imports this checkout.

    Raises:
        RuntimeError: it failed, printed nothing, or did not end in time.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment(), timeout=timeout_s, check=False
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no result in {timeout_s:.0f} s") from None
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"ended with exit code {done.returncode}"])[-1])
    return json.loads(lines[-1])


def peak_memory_bytes(pid: int | str = "self") -> int:
    """The most physical memory that a process ever had (``VmHWM``)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} has no memory of its own")


def cpu_s(pid: int, *, children: bool = False) -> float:
    """CPU time of a process (s); with ``children`` that of its ended children, too."""
    import psutil

    used = psutil.Process(pid).cpu_times()
    return float(sum(used[:4] if children else used[:2]))


def loader_setting(
    folder: Path, dataset: str, *, seconds: float, rate: float = 1e6, image_size: int = 224
) -> Conditions:  # fmt: skip
    """A setting of the harness with an emulated accelerator, by default one that is never the limit.

    Args:
        folder: for the index.
        dataset: a folder of photographs or ``synthetic:…``.
        seconds: length of the timed phase; the warm-up may take twice as long.
        rate: of the accelerator (samples/s).
        image_size: edge of the crops (px).
    """
    from pipetune.accelerator.named import emulated_spec
    from pipetune.datasets.index import write_index
    from pipetune.datasets.open_dataset import open_dataset
    from pipetune.measure.conditions import Conditions
    from pipetune.records.sweep import Workload

    found = open_dataset(dataset, seed=0, limit_images=10**6, limit_bytes=2**40, workers=2, progress=None)
    index = folder / "index.json"
    write_index(str(index), found)
    workload = Workload(
        dataset=found.name, index_path=str(index), accelerator=emulated_spec(f"{rate:g}"), model="resnet50",
        image_size=image_size, precision="emulated", seconds=seconds, warmup_limit_s=2 * seconds, cache="warm", seed=0,
    )  # fmt: skip
    cores = frozenset(os.sched_getaffinity(0))
    return Conditions(workload=workload, paths=found.files, cores=cores)
