"""Do the stages of a loader add up, and is what was made to be slow found?

Promise: 9 of 10 loaders' stages add up to within 10 %, and in 95 % of the cases the limit is named right.

What adds up are CPU times that were measured apart, to that of the whole loader beside an accelerator. The cases are
made to be bound by one thing each.

Loaders: all decoders that are installed, in processes, threads and DALI, with reused and new memory, and a DataLoader
of a user's own. Each stage is measured on some of the images without an accelerator; the whole loader, which the sum is
compared with, on all of them and beside one.

Cases: an accelerator that is slow; one core for two workers; one worker beside a free core; a transform that takes CPU
time, one that waits; collating in Python; a disk that delivers 8 MB/s and files that are not in the page cache (needs
the right to make control groups; left out otherwise). Beside it stands the usual rule, which calls a job bound by its
loader where the accelerator is less than 90 % busy, and names nothing.

``--quick`` takes about 6 minutes, the full run about 25.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from benchmarks.watch.surroundings import Unfit, disk_of, group
from pipetune.explaining.options import ExplainOptions
from pipetune.explaining.run import ExplainObserver, ExplainRun, start
from pipetune.registry import BACKENDS, installed_version

CLOSES, LEAST_CLOSED, LEAST_RIGHT = 0.10, 0.9, 0.95
SYNTHETIC = "synthetic:caltech256?n=3000"
OWN = "benchmarks.measuring.explain_cases"
#: Far more than any loader here delivers, and less than all of them do (samples/s).
FAST, SLOW, SLOWEST = "emulated:20000", "emulated:150", "emulated:30"
DISK_BYTES_PER_S = 8_000_000
LOADERS = (
    "pillow-w2-p2-b64", "pillow-w1-p2-b32-reuse", "pillow-simd-w2-p2-b64", "opencv-w2-p2-b64",
    "opencv-w2-p2-b64-reuse-u8", "opencv-w2-p2-b64-thread", "torchvision-w2-p2-b64", "torchcodec-w2-p2-b64",
    "simplejpeg-w2-p2-b64-thread-u8", "jpeg-roi-w2-p2-b64-reuse", "jpeg-roi-w2-p2-b64-thread-u8", "spdl-w2-p2-b64",
    "dali-w2-p2-b64",
)  # fmt: skip
QUICK_LOADERS = ("pillow-w2-p2-b64", "opencv-w2-p2-b64-reuse-u8", "simplejpeg-w2-p2-b64-thread-u8", "dali-w2-p2-b64")


@dataclass(frozen=True, slots=True)
class Case:
    """A loader that is bound by one thing."""

    name: str
    bound_by: tuple[str, ...]
    """What may be named."""
    stage: str | None
    """The stage that is to be named; ``None``: any, or none: nothing was done to make one slow."""
    candidate: str | None = None
    loader: str | None = None
    device: str = FAST
    cores: int | None = None
    disk: bool = False


def cases(*, quick: bool) -> list[Case]:
    """All of them."""
    found = [
        Case("accelerator", ("accelerator",), None, "opencv-w2-p2-b16", device=SLOW),
        Case("one core", ("cores",), None, "pillow-w2-p2-b16", cores=1),
        Case("one worker", ("workers",), None, "pillow-w1-p2-b16"),
        Case("busy transform", ("workers",), "transform", loader=f"{OWN}:transform_busy"),
        Case("waiting transform", ("waits",), "transform", loader=f"{OWN}:transform_waits"),
        Case("collate in Python", ("workers",), "collate", loader=f"{OWN}:collate_busy"),
        Case("slow disk", ("storage",), "fetch", "opencv-w2-p2-b16", disk=True),
    ]
    if quick:
        return found
    return [
        *found,
        Case("accelerator, threads", ("accelerator",), None, "opencv-w2-p2-b16-thread", device=SLOW),
        Case("accelerator, DALI", ("accelerator",), None, "dali-w2-p2-b16", device=SLOW),
        Case("accelerator, own loader", ("accelerator",), None, loader=f"{OWN}:plain", device=SLOWEST),
        Case("two cores", ("cores",), None, "pillow-w2-p2-b16"),
        Case("one core, OpenCV", ("cores",), None, "opencv-w2-p2-b16-reuse-u8", cores=1),
        Case("one core, threads", ("cores",), None, "simplejpeg-w2-p2-b16-thread-u8", cores=1),
        Case("one core, DALI", ("cores",), None, "dali-w2-p2-b16", cores=1),
        Case("no worker", ("workers",), None, "pillow-w0-p0-b16"),
        Case("one worker, OpenCV", ("workers",), None, "opencv-w1-p2-b16-reuse-u8"),
        Case("one worker, own loader", ("workers",), None, loader=f"{OWN}:plain"),
        Case("one core, busy transform", ("cores",), "transform", loader=f"{OWN}:transform_busy", cores=1),
        Case("one core, collate in Python", ("cores",), "collate", loader=f"{OWN}:collate_busy", cores=1),
        Case("slow disk, Pillow", ("storage",), "fetch", "pillow-w2-p2-b16", disk=True),
        Case("slow disk, threads", ("storage",), "fetch", "opencv-w2-p2-b16-thread", disk=True),
    ]


def main(options: Namespace) -> bench.Result:
    blocks, seconds = (1, 1.0) if options.quick else (2, 1.0)
    with tempfile.TemporaryDirectory(prefix="pipetune-explain-") as name:
        folder = Path(name)
        closed = closures(folder, QUICK_LOADERS if options.quick else LOADERS, blocks, seconds)
        named = verdicts(folder, cases(quick=options.quick), seconds)
    within = sum(abs(one["closes_frac"]) <= CLOSES for one in closed.values())
    right = sum(one["right"] for one in named.values())
    print(
        f"\n{within} of {len(closed)} loaders close within {CLOSES:.0%}; {right} of {len(named)} cases are named right"
    )
    holds = within >= LEAST_CLOSED * len(closed) and right >= LEAST_RIGHT * len(named)
    return bench.Result(holds, {"closed": within, "right": right, "loaders": closed, "cases": named})


def closures(folder: Path, keys: tuple[str, ...], blocks: int, seconds: float) -> dict[str, dict[str, Any]]:
    """By how much the stages of each loader differ from the whole of it."""
    found: dict[str, dict[str, Any]] = {}
    rows = []
    for key in keys:
        if installed_version(BACKENDS[key.partition("-w")[0]]) is None:
            continue
        ended = start(
            ExplainOptions(dataset=SYNTHETIC, candidate=key, device=FAST, blocks=blocks, seconds=seconds, cold=False),
            folder / f"closure-{key}", ExplainObserver(),
        )  # fmt: skip
        explained = ended.explanation
        if explained is None or explained.closes_frac is None:
            raise RuntimeError(f"{key}: {ended.message}")
        found[key] = {
            "closes_frac": explained.closes_frac,
            "stages": {"+".join(cost.stages): [cost.cpu_s_per_1000_samples, *cost.ci95] for cost in explained.stages},
            "parts": {part.name: part.cpu_s_per_1000_samples for part in explained.parts},
        }
        costs = ", ".join(f"{'+'.join(cost.stages)} {cost.cpu_s_per_1000_samples:.2f}" for cost in explained.stages)
        rows.append([key, f"{100 * explained.closes_frac:+.1f} %", costs])
        print(f"{key}: {rows[-1][1]}", file=sys.stderr, flush=True)
    print(bench.table(["loader", "sum / whole - 1", "CPU s per 1000 images"], rows, left=(0, 2)))
    return found


def verdicts(folder: Path, wanted: list[Case], seconds: float) -> dict[str, dict[str, Any]]:
    """What is named in each case."""
    found: dict[str, dict[str, Any]] = {}
    rows = []
    for number, case in enumerate(wanted):
        if case.candidate and installed_version(BACKENDS[case.candidate.partition("-w")[0]]) is None:
            continue
        try:
            explained = _explained(case, folder / f"case-{number}", seconds).explanation
        except Unfit as reason:
            print(f"{case.name} is left out: {reason}", file=sys.stderr, flush=True)
            continue
        assert explained is not None
        right = explained.bound_by in case.bound_by and case.stage in (None, explained.bound_stage)
        busy = {part.name: part.samples_per_s for part in explained.parts}
        usual = "loader" if busy["with_accelerator"] < 0.9 * busy["accelerator"] else "accelerator"
        said = explained.bound_by + (f", {explained.bound_stage}" if explained.bound_stage else "")
        rows.append([case.name, said, bench.yes(right), usual])
        found[case.name] = {"said": said, "right": right, "sentence": explained.sentence, "rates": busy}
        print(f"{case.name}: {said} {bench.yes(right)}", file=sys.stderr, flush=True)
    print()
    print(bench.table(["made to be bound by", "named", "right", "usual rule"], rows, left=(0, 1, 3)))
    return found


def _explained(case: Case, out: Path, seconds: float) -> ExplainRun:
    os.environ.update({"EXPLAIN_PHOTOS": _photos(), "EXPLAIN_WORKERS": str(2 if case.cores else 1)})
    options = ExplainOptions(
        dataset=SYNTHETIC if case.loader is None else None, loader=case.loader, candidate=case.candidate,
        device=case.device, blocks=1, seconds=seconds, cold=case.disk, cache="cold" if case.disk else "warm",
    )  # fmt: skip
    with _cores(case.cores), _disk(out.parent, limited=case.disk):
        return start(options, out, ExplainObserver())


@contextlib.contextmanager
def _cores(count: int | None) -> Iterator[None]:
    """Run on so many cores only."""
    before = os.sched_getaffinity(0)
    if count is not None:
        os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def _disk(folder: Path, *, limited: bool) -> Iterator[None]:
    """Read from the disk of the images at a limited rate.

    Raises:
        Unfit: no such limit can be set here.
    """
    if not limited:
        yield
        return
    disk = disk_of(Path(_photos()))
    v1 = {"blkio.throttle.read_bps_device": f"{disk} {DISK_BYTES_PER_S}"}
    with group("blkio", v1, {"io.max": f"{disk} rbps={DISK_BYTES_PER_S}"}) as made:
        (made / "cgroup.procs").write_text(str(os.getpid()))
        try:
            yield
        finally:
            (made.parent / "cgroup.procs").write_text(str(os.getpid()))


@functools.cache
def _photos() -> str:
    """The folder of the synthetic photographs, in a folder for each class."""
    from pipetune.datasets.open_dataset import open_dataset

    return open_dataset(SYNTHETIC, seed=0, limit_images=10**6, limit_bytes=2**40, workers=2, progress=None).root


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
