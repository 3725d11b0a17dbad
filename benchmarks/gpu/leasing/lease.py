"""Everything that only a GPU shows, in stages with a cap each, the one of most worth first: benchmarks/gpu/lease.sh.

Each stage has a process of its own, so that one that crashes or hangs loses itself only, and writes what it has as it
goes. Results are DEVICE/STAGE.json in benchmarks/results/gpu, with a log and packed run folders. After each stage all
results of this call are also packed into lease-DEVICE-DATE-TIME.tar.xz in --out (default: $OUT); unpack it with
tar xJf FILE -C benchmarks/results/gpu.

Exit code: 0 all that was asked is proven, 1 a problem was found, 2 there is no CUDA device or an option is wrong, 3 no
problem was found in what was tried, and something could not be tried.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import bench
from benchmarks.gpu.leasing import archive, needs, outcome
from benchmarks.gpu.leasing.device import Device, NoDevice, find_device, why_lost
from benchmarks.gpu.leasing.plan import format_plan
from benchmarks.gpu.leasing.run_stage import finish, run_stage
from benchmarks.gpu.leasing.stages import MAX_TOTAL_S, Stage, find_stages, pick_next
from benchmarks.gpu.leasing.summary import describe_end, describe_stage
from benchmarks.gpu.workloads import SMALL
from pipetune.errors import Interrupted
from pipetune.processes.parent_death import end_with_parent
from pipetune.processes.signals import stop_on_sigterm
from pipetune.processes.temporary_folder import temporary_folder
from pipetune.version import __version__

#: Kept of --total for the last archive (s).
_LAST_S = 4.0
#: A folder that takes less than this is full.
_LEAST_BYTES = 1 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    began = time.monotonic()
    options = parse_options(arguments)
    try:
        stages = find_stages(options.only)
        if options.plan:
            print(format_plan(stages, options.results, options.total))
            return 0
        device = find_device(options.device)
    except (ValueError, NoDevice) as error:
        print(f"lease.sh: {error}", file=sys.stderr)
        return outcome.CANNOT_RUN
    folder = options.results / device.slug
    for option, place in (("--results", folder), ("--out", options.out)):
        if place is not None and (problem := make_folder(place)) is not None:
            print(f"lease.sh: {option} {place} cannot be written into: {problem}; name another folder", file=sys.stderr)
            return outcome.CANNOT_RUN
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print(f"lease.sh: another lease measures {device.name}; wait until it has ended", file=sys.stderr)
        return outcome.CANNOT_RUN
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup says that it shall go on without its parent
        end_with_parent(os.getppid())
    stop_on_sigterm(hangup=True)
    lease = Lease(options, device, folder, began + options.total - _LAST_S)
    with temporary_folder("lease") as place:
        try:
            lease.run(stages, place)
        except KeyboardInterrupt as stop:
            print("\nended before its time; what was measured is kept", flush=True)
            return stop.exit_code if isinstance(stop, Interrupted) else 128 + signal.SIGINT
        except OSError as error:
            print(f"lease.sh: the lease ends, because results cannot be written: {error}", file=sys.stderr)
            return outcome.PROBLEM_FOUND
        finally:
            lease.save()
    return lease.conclude(stages)


def make_folder(folder: Path) -> str | None:
    """Make a folder of results and write into it; why that fails. What cannot be kept must not be measured."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_LEAST_BYTES))
    except OSError as error:
        return error.strerror
    return None


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="lease.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--plan", action="store_true", help="print stages, caps, sums, calls and results; run nothing")
    parser.add_argument(
        "--total",
        type=seconds,
        default=None,
        metavar="S",
        help=f"end within this many seconds (default: {MAX_TOTAL_S:.0f}); with --plan the length of a call",
    )
    parser.add_argument("--resume", action="store_true", help="leave out the stages that have a result of this device")
    parser.add_argument("--only", metavar="A,B", help="these stages only")
    parser.add_argument("--device", default="cuda:0", help="cuda:N (default: cuda:0); emulated rehearses the stages")
    parser.add_argument(
        "--results",
        type=Path,
        default=bench.RESULTS / "gpu",
        metavar="DIR",
        help="folder of the results (default: benchmarks/results/gpu)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(os.environ["OUT"]) if os.environ.get("OUT") else None,
        metavar="DIR",
        help="folder of the archives (default: $OUT, else none)",
    )
    parser.add_argument(
        "--shorten",
        type=share,
        default=1.0,
        metavar="F",
        help="multiply all caps by this, above 0 and up to 1: for rehearsals",
    )
    parser.add_argument(
        "--small", action="store_true", help="small models, few images: for a rehearsal on the stand-in CUDA runtime"
    )
    options = parser.parse_args(arguments)
    if options.total is None and not options.plan:
        options.total = MAX_TOTAL_S
    return options


def seconds(text: str) -> float:
    if not (value := float(text)) > 0:
        raise argparse.ArgumentTypeError(f"must be above 0 (got {text})")
    return value


def share(text: str) -> float:
    if not 0 < (value := float(text)) <= 1:
        raise argparse.ArgumentTypeError(f"must be above 0 and up to 1 (got {text})")
    return value


class Lease:
    """One call: the stages that it runs, and the files that it has written."""

    def __init__(self, options: argparse.Namespace, device: Device, folder: Path, deadline: float) -> None:
        self._options, self._device, self._folder, self._deadline = options, device, folder, deadline
        self._name = f"lease-{device.slug}-{datetime.now():%Y-%m-%d-%H%M%S}"
        #: Why stages were not started.
        self._untried = "there was no time for it"
        self._running: Path | None = None
        if options.out is not None:
            self._running = options.out / f"{self._name}-running.json"
        # What a lease left that was killed comes back with this one.
        self._files: set[Path] = set()
        for name in archive.list_abandoned(folder):
            self._publish(name)

    def run(self, stages: Sequence[Stage], place: Path) -> None:
        """Run the stages that are to be run, until none is left or the time is over."""
        results = outcome.read_results(self._folder)
        waiting = [stage for stage in stages if not self._options.resume or self._is_worth_it(stage, results)]
        if len(waiting) < len(stages):
            print(f"left out, because there are results: {', '.join(s.name for s in stages if s not in waiting)}")
        # What was never tried comes before what is tried once more; both in the order of their worth.
        best = {stage.name: outcome.best_try(results.get(stage.name, ())) for stage in waiting}
        waiting.sort(key=lambda stage: outcome.is_tried(best[stage.name], needs.is_missing))
        facts = self._describe()
        environment = _environment(place, is_small=self._options.small)
        while (stage := pick_next(waiting, self._deadline - time.monotonic(), self._options.shorten)) is not None:
            waiting.remove(stage)
            content = self._run_one(stage, facts, environment)
            if (content["cut"] or content.get("problems")) and (lost := why_lost()) is not None:
                self._untried = f"the GPU is lost: {lost}"  # each further stage would wait until its cap
                break
        for stage in waiting:
            print(f"\n== {stage.name}: not started: {self._untried}", flush=True)

    def _is_worth_it(self, stage: Stage, results: Mapping[str, list[outcome.StageResult]]) -> bool:
        best = outcome.best_try(results.get(stage.name, ()))
        return outcome.is_worth_another_try(best, self._options.shorten * stage.cap_s, needs.is_missing)

    def _run_one(self, stage: Stage, facts: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
        cap_s = min(self._options.shorten * stage.cap_s, self._deadline - time.monotonic())
        name = outcome.next_name(self._folder, stage.name)
        file = self._folder / f"{name}.json"
        print(f"\n== {stage.name} (at most {cap_s:.0f} s): {stage.proves}", flush=True)
        self._files.add(file)
        try:
            content = run_stage(
                stage.name,
                name,
                self._folder,
                device=self._options.device,
                uuid=self._device.uuid,
                cap_s=cap_s,
                facts={**facts, "date": datetime.now().astimezone().isoformat(timespec="seconds")},
                environment=environment,
                copy_to=self._running,
            )
            content = finish(file, content, needs.find_missing(stage.needs), rehearsal=self._explain_rehearsal())
            print("\n".join(describe_stage(content)), flush=True)
        finally:
            self._publish(name)
        self.save()
        return content

    def _explain_rehearsal(self) -> str | None:
        """Why this lease proves nothing of a GPU; ``None``: it is none of a rehearsal's."""
        if self._options.device == "emulated":
            return "the device is emulated"
        return "the models and batches are small (--small)" if self._options.small else None

    def _publish(self, name: str) -> None:
        """Pack a stage's log and run folders. Where that fails they stay, and the next lease packs them."""
        try:
            self._files.update(archive.publish(self._folder, name))
        except (OSError, tarfile.TarError) as error:
            print(f"   NOT PACKED: log and run folders of {name}: {error}", flush=True)

    def save(self) -> None:
        """Pack all results of this call. Where that fails, e.g. because --out is full, measuring goes on."""
        if self._options.out is None:
            return
        try:
            for line in archive.write_archives(self._options.out, self._name, self._folder, self._files):
                print(f"   {line}", flush=True)
            assert self._running is not None
            self._running.unlink(missing_ok=True)
        except (OSError, tarfile.TarError) as error:
            print(
                f"   NOT PACKED: {error}; the archive before it stays in {self._options.out}, and all results are in "
                f"{self._folder}",
                flush=True,
            )

    def conclude(self, stages: Sequence[Stage]) -> int:
        """Print what came of the stages that were asked for; the exit code."""
        results = outcome.read_results(self._folder)
        newest = {stage.name: outcome.judged_try(results.get(stage.name, ())) for stage in stages}
        print("\n" + "\n".join(describe_end(newest, self._untried)))
        if self._options.out is not None and (archives := sorted(self._options.out.glob(f"{self._name}*.tar.xz"))):
            names = ", ".join(path.name for path in archives)
            print(
                f"comes back: {names}. --resume knows what lies in benchmarks/results/gpu: where the next call gets a "
                "new copy of the checkout, first unpack it there (tar xJf FILE -C benchmarks/results/gpu)"
            )
        return outcome.exit_code(newest.values())

    def _describe(self) -> dict[str, Any]:
        return {
            "benchmark": "gpu_lease",
            "device": self._device.name,
            "driver": self._device.driver,
            "pipetune": __version__,
            "commit": _read_commit(),
            "machine": bench.machine(),
        }


def _environment(place: Path, *, is_small: bool) -> dict[str, str]:
    """The stages' environment: caches that they share and that end with the lease."""
    size = {SMALL: "1"} if is_small else {}
    caches = {name: str(place / "cache") for name in ("XDG_CACHE_HOME", "CUDA_CACHE_PATH", "TORCH_HOME")}
    return {**os.environ, **size, **caches, "TMPDIR": str(place), "PIPETUNE_CACHE_DIR": "", "PYTHONNODEBUGRANGES": "1"}


def _read_commit() -> str | None:
    """The checkout's commit; ``None``: unknown, because git or its folder did not come along."""
    try:
        done = subprocess.run(
            ["git", "-C", str(bench.ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
