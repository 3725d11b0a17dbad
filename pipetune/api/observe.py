"""``pipetune.observe``: the user's own training loop, observed from inside the same process."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pipetune.api.state import as_html, as_line, loop_facts
from pipetune.errors import PipetuneError, UsageError
from pipetune.machine.host import describe_host
from pipetune.machine.nvml.gpu import Gpu, NvmlUnavailable
from pipetune.machine.nvml.in_time import open_gpu_in_time
from pipetune.processes.signals import defer_signals
from pipetune.records.observation import Reading
from pipetune.records.redact import redact_words
from pipetune.records.sweep import StepTime, to_dict
from pipetune.runs.load import load
from pipetune.runs.run import OBSERVE, Run
from pipetune.sampler.loop import LEFT_BEHIND, Sampler
from pipetune.store.columns import columns_of
from pipetune.store.folder import RunFolder, create_run
from pipetune.store.watch_log import is_kept
from pipetune.units import format_duration
from pipetune.usercode.batches import size_of
from pipetune.usercode.loop_clock import HostClock, LoopClock, clock_for
from pipetune.version import __version__

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
_NAME = "main"
#: Steps and readings are written this often (s): rarely enough not to disturb the loop.
_WRITE_S = 2.0
#: Of steps that are in the run folder, or where there is none, so many of the newest are kept in memory, 200 to 300
#: bytes each.
_MAX_STEPS = 200_000


class Observed(Generic[T]):
    """An iterable of the loader's batches that records when each was asked for, delivered and processed.

    Made by :func:`observe`; used in a ``with``. It may be iterated again and again, an epoch each time; what happens
    between two epochs is neither the loader's nor a stall.
    """

    def __init__(
        self, loader: Iterable[T], *, device: str | None, out: Path | None, save: bool, interval_s: float,
        warmup_steps: int,
    ) -> None:  # fmt: skip
        self._loader, self._device, self._interval_s = loader, device, interval_s
        self._out, self._save = out, save
        self._folder: RunFolder | None = None
        self._info: dict[str, Any] = {
            "kind": OBSERVE, "pipetune": __version__, "started": datetime.now().astimezone().isoformat(),
            "command": shlex.join(redact_words(sys.orig_argv)), "warmup_steps": warmup_steps, "interval_s": interval_s,
            "host": to_dict(describe_host()),
        }  # fmt: skip
        self._path = Path("observed loop")
        self._steps: list[StepTime] = []
        self._readings: list[Reading] = []
        self._count = 0
        self._written = [0, 0]
        self._dropped = 0
        self._writing = threading.Lock()
        self._write_due_s = 0.0
        self._sampler: Sampler | None = None
        self._clock: LoopClock | None = None
        self._began_s = 0.0
        self._ended: tuple[str, float] | None = None
        self._held = contextlib.ExitStack()
        self.problem: str | None = None
        """Why steps and readings could not be written; the loop goes on, and writing is tried again."""

    def __enter__(self) -> Self:
        if self._sampler is not None:
            raise UsageError("this loop has been observed already", hint="call pipetune.observe(loader) once more")
        with contextlib.ExitStack() as held:
            if self._save:
                folder = create_run(self._out, dataset_name="observe", now=datetime.now())
                self._folder, self._path = held.enter_context(folder), folder.path
            clock = clock_for(self._device)
            cores = frozenset(os.sched_getaffinity(0))
            sampler = Sampler(os.getpid(), None, cores, self._interval_s, self._on_reading, keep=1)
            held.callback(sampler.stop)
            self._use(clock, sampler)
            self._write_info()
            sampler.start()
            self._sampler, self._clock, self._held = sampler, clock, held.pop_all()
            self._began_s, self._ended = time.monotonic(), None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left_behind = False
        # A second Ctrl-C must not take away what the first one has ended.
        with defer_signals(), self._held:
            clock, self._clock = self._clock, None
            if clock is not None:
                with contextlib.suppress(RuntimeError):  # a CUDA device was lost, which the loop reports itself
                    self._steps += clock.drain()
            if self._sampler is not None:
                left_behind = not self._sampler.stop()
            self._write()
            ended = "the loop ended" if error is None else f"{type(error).__name__}: {error}"
            self._ended = (ended, time.monotonic() - self._began_s)
            folder = self._folder
            if folder is not None:
                self._try(lambda: folder.close_timeline(_NAME))
                self._try(lambda: folder.write_json("result.json", {"kind": OBSERVE, "reason": ended}))
        if left_behind:
            warnings.warn(LEFT_BEHIND, stacklevel=2)
        if self.problem is not None:
            warnings.warn(f"what was observed could not all be written: {self.problem}", stacklevel=2)

    def __repr__(self) -> str:
        return as_line("observe", self._facts())

    def _repr_html_(self) -> str:
        return as_html("observe", self._facts())

    def _facts(self) -> dict[str, str]:
        if self._sampler is None:
            return {"state": "not begun: use it in a with"}
        state, seconds = self._ended or ("observing", time.monotonic() - self._began_s)
        facts = {"state": state, "duration": format_duration(seconds)}
        facts |= loop_facts(list(self._steps), self._warmup_steps)
        if self._dropped:
            facts["steps"] = f"{self._dropped + len(self._steps)}; of the newest {len(self._steps)}:"
        facts["run folder"] = str(self._path) if self._folder is not None else "none (save=False)"
        return facts if self.problem is None else facts | {"not written": self.problem}

    @property
    def _warmup_steps(self) -> int:
        """Of the steps in memory, so many first ones are warm-up."""
        asked: int = self._info["warmup_steps"]
        return max(0, asked - self._dropped)

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[T]:
        clock = self._clock
        if clock is None:
            raise UsageError(
                "an observed loader is iterated inside its with", hint="with pipetune.observe(loader) as …"
            )
        if self._device is None and not self._steps and clock.name == HostClock.name:
            # The model may have come to the GPU since the ``with`` began.
            clock = self._clock = clock_for(None)
            if clock.name != HostClock.name and self._sampler is not None:
                self._use(clock, self._sampler)
                self._try(self._write_info)
        iterator: Iterator[T] | None = None
        clock.begin(time.monotonic_ns())
        try:
            while True:
                asked_ns = time.monotonic_ns()
                try:
                    # Starting the loader's workers is part of the first wait.
                    iterator = iter(self._loader) if iterator is None else iterator
                    batch = next(iterator)
                except StopIteration:
                    return
                clock.handed(asked_ns, time.monotonic_ns(), size_of(batch))
                yield batch
                # The batch is not kept alive while the loop waits for the next one.
                del batch
                self._steps += clock.done(time.monotonic_ns())
        finally:
            self._steps += clock.done(time.monotonic_ns())

    def _use(self, clock: LoopClock, sampler: Sampler) -> None:
        """Note the clock, and have its GPU read."""
        gpu = _gpu_of(clock)
        if gpu is not None:
            sampler.use(gpu)
        self._info |= {"clock": clock.name, "gpu": None if gpu is None else gpu.name}

    def frame(self) -> pd.DataFrame:
        """One row: what the loop came to. See :meth:`pipetune.runs.run.Run.frame`."""
        return self.run.frame()

    def readings(self) -> pd.DataFrame:
        """One row per reading so far. See :meth:`pipetune.runs.run.Run.readings`."""
        return self.run.readings()

    def steps(self) -> pd.DataFrame:
        """One row per step so far. See :meth:`pipetune.runs.run.Run.steps`."""
        return self.run.steps()

    def stalls(self) -> pd.DataFrame:
        """One row per stall so far. See :meth:`pipetune.runs.run.Run.stalls`."""
        return self.run.stalls()

    @property
    def run(self) -> Run:
        """The run so far, for :mod:`pipetune.plot`."""
        if self._dropped and self._folder is not None:
            self._write()
            return load(self._path)
        info = self._info | {"warmup_steps": self._warmup_steps}
        found = Run(path=self._path, kind=OBSERVE, info=info, result={}, candidates=(_NAME,), problems=())
        found.keep(_NAME, columns_of(list(self._readings), list(self._steps)))
        return found

    def _on_reading(self, reading: Reading) -> None:
        """Keep a reading, and write; in the sampler's thread, so that the loop does not wait for the disk."""
        self._count += 1
        if is_kept(self._count):  # a training run of days is not to fill the memory
            self._readings.append(reading)
        now_s = time.monotonic()
        if now_s >= self._write_due_s:
            self._write_due_s = now_s + _WRITE_S
            self._write()

    def _write_info(self) -> None:
        if self._folder is not None:
            self._folder.write_json("run.json", self._info)

    def _write(self) -> None:
        folder = self._folder
        if folder is None:
            with self._writing:
                self._let_go(len(self._steps))
            return
        with self._writing:
            steps, readings = self._steps[self._written[0] :], self._readings[self._written[1] :]
            if steps or readings:
                self.problem = None  # what could not be written before is among them
            if steps and self._try(lambda: folder.append_timeline(_NAME, "step", steps)):
                self._written[0] += len(steps)
            if readings and self._try(lambda: folder.append_timeline(_NAME, "reading", readings)):
                self._written[1] += len(readings)
            self._written[0] -= self._let_go(self._written[0])

    def _let_go(self, count: int) -> int:
        """Take the oldest of the first ``count`` steps out of the memory where they are very many; returns how many."""
        if count <= _MAX_STEPS:
            return 0
        surplus = count - _MAX_STEPS // 2
        del self._steps[:surplus]  # in place: the loop adds to this list meanwhile
        self._dropped += surplus
        return surplus

    def _try(self, write: Callable[[], None]) -> bool:
        try:
            write()
        except PipetuneError as error:  # a full disk is no reason to end somebody's training
            self.problem = str(error)
            return False
        return True


def observe(
    loader: Iterable[T],
    *,
    device: str | None = None,
    out: str | Path | None = None,
    save: bool = True,
    interval_s: float = 0.1,
    warmup_steps: int = 3,
) -> Observed[T]:
    """Observe a training loop from inside::

        with pipetune.observe(loader) as seen:
            for images, labels in seen:
                train_step(images, labels)
        seen.stalls()
        pipetune.plot.stall_timeline(seen.run)

    The accelerator counts as busy while the loop's body runs; with CUDA while the device is between the events
    that are queued before and after it. Steps and readings are written to a run folder as they come; of more than
    200,000 written steps the oldest leave the memory. Without a run folder only the newest 100,000 to 200,000 steps are
    kept.

    Args:
        loader: any iterable of batches.
        device: where the step runs: ``cuda:N`` or ``cpu``. Unless given, CUDA if the program uses it.
        out: run folder, new or empty; ``pipetune-runs/TIME-observe`` unless given.
        save: ``False``: write nothing, and of very many steps keep the newest alone.
        interval_s: time between two readings of the machine (s). Of very many only every tenth, then every hundredth is
            kept.
        warmup_steps: this many first steps count neither in rates nor as stalls.

    Raises:
        UsageError: an argument is out of range; in the ``with``: ``out`` or ``device`` cannot be used.
    """
    if not 0.01 <= interval_s <= 60 or warmup_steps < 0:
        raise UsageError(
            f"interval_s={interval_s:g}, warmup_steps={warmup_steps} is out of range",
            hint="write interval_s=0.1, warmup_steps=3",
        )
    path = None if out is None else Path(out)
    return Observed(
        loader, device=device, out=path, save=save, interval_s=interval_s, warmup_steps=warmup_steps
    )  # fmt: skip


def _gpu_of(clock: LoopClock) -> Gpu | None:
    uuid = clock.gpu_uuid()
    if uuid is None:
        return None
    try:
        return open_gpu_in_time(uuid)
    except NvmlUnavailable:
        return None
