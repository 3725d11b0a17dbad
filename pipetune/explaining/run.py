"""``pipetune explain`` as a program: measure each part of a loader in blocks, keep all of it, conclude."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

from pipetune.datasets.index import ImageSet, replace_images, write_index
from pipetune.errors import PipetuneError, exit_code_of
from pipetune.explaining.conclude import conclude
from pipetune.explaining.options import ExplainOptions, find_subject
from pipetune.explaining.parts import Measured, parts_to_measure
from pipetune.explaining.subject import Subject
from pipetune.explaining.subset import MOST_BYTES, draw_subset
from pipetune.machine.host import describe_host
from pipetune.machine.nvml.held import HeldGpus
from pipetune.measure import harness
from pipetune.measure.conditions import Conditions, Live
from pipetune.measure.failures import may_be_a_bad_image
from pipetune.measure.fork_servers import ForkServers
from pipetune.processes.signals import note_signals
from pipetune.records.explanation import Explanation
from pipetune.records.redact import own_command
from pipetune.records.sweep import SCHEMA, Candidate, Measurement, Outcome, to_dict
from pipetune.registry import default_backend
from pipetune.runs.run import EXPLAIN
from pipetune.stats.noise import run_noise
from pipetune.store.files import OWN_FILE, replace_file
from pipetune.store.folder import RunFolder, create_run
from pipetune.usercode.make_loader import NAMED_FILE
from pipetune.version import __version__

#: What is held may take this share of the available memory at most.
_MEMORY_SHARE = 8
#: Name of the index of the images that the stages are measured on.
_SUBSET = "subset.json"


class ExplainObserver:
    """Receives what goes on while parts are measured; this one does nothing with it. A context manager."""

    def __enter__(self) -> ExplainObserver:
        return self

    def __exit__(self, *_: object) -> None:
        """It has ended, whichever way."""

    def on_stage(self, stage: str, done: int, total: int | None) -> None:
        """Images are listed before anything is measured."""

    def on_live(self, part: str, number: int, of: int, live: Live) -> None:
        """News of the part that is being measured, the ``number``-th of ``of``."""

    def on_outcome(self, outcome: Outcome, number: int, of: int) -> None:
        """A part was measured, and is saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainRun:
    """An explanation that has ended, whichever way, with its result in its run folder."""

    explanation: Explanation | None
    """``None``: too little was measured."""
    result: dict[str, Any]
    """What ``--json`` writes."""
    path: Path
    exit_code: int
    stopped: str | None
    """``interrupted`` or ``failed``; ``None``: it came to its end."""
    message: str | None
    """Why it was stopped."""
    not_written: PipetuneError | None = None
    """The disk refused ``result.json``: to be raised once the result has been shown."""


def start(chosen: ExplainOptions, out: Path | None, observer: ExplainObserver) -> ExplainRun:
    """Measure and conclude.

    Args:
        out: the run folder, new or empty; ``None``: ``pipetune-runs/TIME-explain-DATASET``.
        observer: is entered and left here.

    Raises:
        UsageError: an option that cannot be used.
        PipetuneError: nothing could be measured, or the disk refuses.
        KeyboardInterrupt, Interrupted: asked to stop before anything was measured.
    """
    began = time.monotonic()
    with contextlib.ExitStack() as held, observer, ForkServers() as servers, HeldGpus() as gpus:
        subject = find_subject(chosen, observer.on_stage)
        servers.begin(subject.workload.accelerator)
        with create_run(out, dataset_name=f"explain-{subject.images.name}", now=datetime.now()) as folder:
            subject = _with_index(subject, folder)
            subset = _drawn(subject, chosen.seed)
            folder.write_json("run.json", _record(chosen, subject, subset))
            if subset is not None:
                subset = _usable(subset, subject, folder, servers, observer)
            cold = chosen.cold and subset is not None
            wanted = parts_to_measure(
                subject.candidate, subject.workload, cold=cold,
                subset_index=subject.workload.index_path if subset is None else str(folder.path.resolve() / _SUBSET),
            )  # fmt: skip
            bench = _Bench(subject, subset, wanted, servers, gpus, folder, observer)
            stopped, message, code = bench.measure_all(chosen.blocks, chosen.seed)
            late = held.enter_context(note_signals())  # from here on they would only lose what was measured
            explanation = conclude(bench.outcomes, subject=subject, subset=subset, stopped=message)
            result = {
                "schema": SCHEMA, "kind": EXPLAIN, "status": stopped or ("ok" if explanation else "failed"),
                "message": message, "seconds": time.monotonic() - began,
                "explanation": None if explanation is None else to_dict(explanation),
            }  # fmt: skip
            not_written: PipetuneError | None = None
            try:
                folder.write_json("result.json", result)
            except PipetuneError as error:
                not_written = error
    return ExplainRun(
        explanation=explanation, result=result, path=folder.path, stopped=stopped, message=message,
        not_written=not_written, exit_code=code or late.exit_code or int(explanation is None),
    )  # fmt: skip


class _Bench:
    """Measures parts one after the other, and has what it measured."""

    def __init__(
        self, subject: Subject, subset: ImageSet | None, wanted: Sequence[Measured], servers: ForkServers,
        gpus: HeldGpus, folder: RunFolder, observer: ExplainObserver,
    ) -> None:  # fmt: skip
        self.outcomes: list[Outcome] = []
        self._wanted = wanted
        self._folder = folder
        self._observer = observer
        self._subject = subject
        self._files = {False: subject.images.files, True: (subset or subject.images).files}
        self._servers, self._gpus = servers, gpus
        self._all_tried = False
        self._failed: set[str] = set()
        self._number = 0

    def measure_all(self, blocks: int, seed: int) -> tuple[str | None, str | None, int]:
        """Each part in each block, in random order; ``(stopped, message, exit code)``."""
        once = sum(part.once for part in self._wanted)
        total = blocks * (len(self._wanted) - once) + once
        try:
            for block in range(1, blocks + 1):
                for part in _in_order(self._wanted, Random(seed * 1000 + block)):
                    if part.once and block > 1:
                        continue
                    if part.name in self._failed:
                        total -= 1
                        continue
                    self._number += 1
                    self._measure(part, block, total)
        except KeyboardInterrupt as stop:
            return "interrupted", "interrupted", exit_code_of(stop)
        except PipetuneError as error:
            return "failed", str(error), error.exit_code
        return None, None, 0

    def _measure(self, part: Measured, block: int, total: int) -> None:
        outcome = self._measure_once(part, block, total)
        failure = outcome.failure
        if failure is not None and may_be_a_bad_image(failure) and self._without_bad_images():
            outcome = self._measure_once(part, block, total)
            failure = outcome.failure
        if failure is not None:
            self._failed.add(part.name)
            if part.beside is None:
                raise PipetuneError(f"cannot measure {part.name}: {failure.message}", hint=failure.hint)

    def _without_bad_images(self) -> bool:
        """Try all images, once; whether some had to be replaced."""
        images, path = self._subject.images, self._subject.workload.index_path
        if self._all_tried or not images.images:
            return False
        self._all_tried = True
        conditions = Conditions(
            workload=self._subject.workload, paths=images.files, cores=frozenset(os.sched_getaffinity(0)),
            servers=self._servers,
        )  # fmt: skip
        bad = find_bad(conditions, self._observer)
        if bad:
            images = replace_images(images, bad)
            write_index(path, images)
            self._files[False] = images.files
        return bool(bad)

    def _measure_once(self, part: Measured, block: int, total: int) -> Outcome:
        conditions = Conditions(
            workload=part.workload, paths=self._files[part.of_subset], cores=frozenset(os.sched_getaffinity(0)),
            servers=self._servers, gpus=self._gpus, stages=part.stages,
        )  # fmt: skip
        outcome, recording = harness.measure(
            part.candidate, part.role, conditions, ceiling=self._newest(part.beside), run_noise=run_noise((), ()),
            on_live=lambda live: self._observer.on_live(part.name, self._number, total, live),
        )  # fmt: skip
        outcome = replace(outcome, block=block, part=part.name)
        self.outcomes.append(outcome)
        self._folder.append_outcome(outcome)
        self._observer.on_outcome(outcome, self._number, total)
        if recording.stopped is not None:
            raise recording.stopped
        return outcome

    def _newest(self, name: str | None) -> Measurement | None:
        return next(
            (
                outcome.measurement
                for outcome in reversed(self.outcomes)
                if outcome.part == name and outcome.measurement
            ),
            None,
        )


def _in_order(wanted: Sequence[Measured], random: Random) -> list[Measured]:
    """In random order, but those first that others are stated against."""
    first = [part for part in wanted if part.beside is None]
    rest = [part for part in wanted if part.beside is not None]
    random.shuffle(rest)
    return [*first, *rest]


def _with_index(subject: Subject, folder: RunFolder) -> Subject:
    """With an index of all images in a file, which children read, and with the name of the user's own loader."""
    path, loader_path = str((folder.path / "index.json").resolve()), subject.workload.loader_path
    write_index(path, subject.images)
    if subject.loader is not None:
        loader = folder.path.resolve() / NAMED_FILE
        replace_file(loader, [subject.loader], mode=OWN_FILE)
        loader_path = str(loader)
    return replace(subject, workload=replace(subject.workload, index_path=path, loader_path=loader_path))


def _drawn(subject: Subject, seed: int) -> ImageSet | None:
    """Images to measure the stages on; ``None``: which ones the loader reads is not known."""
    if not subject.images.images:
        return None
    candidate = subject.candidate
    # A worker that is not forked gets a copy of what is held.
    copies = 1 if candidate.start_method == "fork" else max(1, candidate.num_workers)
    available = describe_host().memory_available_bytes or MOST_BYTES * _MEMORY_SHARE
    most = min(MOST_BYTES, available // _MEMORY_SHARE) // (copies * subject.workload.ranks)
    return draw_subset(subject.images, seed, most_bytes=most)


def find_bad(conditions: Conditions, observer: ExplainObserver) -> dict[int, str]:
    """Images that the default decoder cannot decode: position -> why."""
    tried = Candidate(backend=default_backend(), num_workers=0, prefetch_depth=0, batch_size=1)
    return harness.find_bad_images(
        tried, conditions, on_live=lambda live: observer.on_stage("trying images", live.images_done or 0, None)
    )


def _usable(
    subset: ImageSet, subject: Subject, folder: RunFolder, servers: ForkServers, observer: ExplainObserver
) -> ImageSet:  # fmt: skip
    """The subset without images that do not decode, with an index in a file."""
    path = str((folder.path / _SUBSET).resolve())
    write_index(path, subset)
    workload = replace(subject.workload, index_path=path)
    conditions = Conditions(
        workload=workload, paths=subset.files, cores=frozenset(os.sched_getaffinity(0)), servers=servers
    )
    bad = find_bad(conditions, observer)
    if bad:
        subset = replace_images(subset, bad)
        write_index(path, subset)
    return subset


def _record(chosen: ExplainOptions, subject: Subject, subset: ImageSet | None) -> dict[str, Any]:
    """run.json: everything that is needed to understand or repeat it, written before anything is measured."""
    return {
        "schema": SCHEMA, "kind": EXPLAIN, "pipetune": __version__,
        "started": datetime.now().astimezone().isoformat(), "command": own_command(sys.argv),
        "cwd": os.getcwd(), "options": {**to_dict(chosen), "run": None if chosen.run is None else str(chosen.run)},
        "of": None if chosen.run is None else str(chosen.run.resolve()), "candidate": to_dict(subject.candidate),
        "workload": to_dict(subject.workload), "host": to_dict(describe_host()), "notes": list(subject.notes),
        "subset_images": None if subset is None else len(subset.images),
    }  # fmt: skip
