"""Measures one loader of the script after another in its own training loop, as pipetune asks for.

All of it happens inside ``next()``: what has been asked for is measured while the loop goes on, and between two
requests the loop waits. Of several ranks the first decides when a measurement is over; as collectives hold their steps
together, all of them have to stop at the same one, which it names a few steps ahead.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

from pipetune.hook.built import BuiltSource
from pipetune.hook.channel import Channel, ChannelClosedError
from pipetune.hook.device_memory import DeviceMemory
from pipetune.hook.division import Division, RepeatedSamplesError
from pipetune.hook.source import Source
from pipetune.hook.told_failure import describe_failure
from pipetune.measure import wire
from pipetune.measure.phases import PhaseProgress, Phases, Question, plan_phases
from pipetune.measure.script.protocol import CLOSED
from pipetune.records.sweep import StepTime
from pipetune.usercode.batches import size_of
from pipetune.usercode.loop_clock import LoopClock

#: So many batches are kept before anything is measured.
KEEP = 8
#: Time between two messages with steps (s).
_SEND_EVERY_S = 0.1
#: Other ranks hear of the last step at least so many steps, and so long (s), before it.
_AHEAD_STEPS, _AHEAD_S = 4, 0.2
#: Loops are at most so many batches ahead of the one that is trained on.
_SETTLED_AFTER = 10
_OUT_OF_MEMORY = "CUDA out of memory"
#: Workers are not started again, to see how long that takes, once it has taken so long (s).
_STARTS_S = 1.0


class Relay:
    """The conversation about the loader that is trained on.

    Args:
        follows: another rank decides when a measurement is over.
        ranks: how many train together.
        division: judges an iterable data set; ``None``: it has indices.
    """

    def __init__(
        self, channel: Channel, source: Source | BuiltSource, clock: LoopClock, *, follows: bool = False,
        ranks: int = 1, division: Division | None = None, now_ns: Callable[[], int] = time.monotonic_ns,
        leave: Callable[[int], Any] = os._exit,
    ) -> None:  # fmt: skip
        self._channel, self._source, self._clock = channel, source, clock
        self._follows, self._ranks, self._division = follows, ranks, division
        self._now_ns, self._leave = now_ns, leave
        self._phase = "keeping"
        self._phases: Phases | None = None
        self._progress = PhaseProgress()
        self._unsent: list[StepTime] = []
        self._label = ""
        """Phase of the unsent steps."""
        self._sent_ns = 0
        self._gathered = 0
        self._batches = 0
        """Since the request."""
        self._began_ns = 0
        self._last_end_ns: int | None = None
        self._first_end_ns: int | None = None
        self._skipped_ns = 0
        """Time between epochs since the request, which is left out (ns)."""
        self._others_ns = 0
        """Time that the loop has waited for other loaders since the request, which is in its steps (ns)."""
        self._stop_at: int | None = None
        self._starts = 0
        """How often workers are started before the measurement, to see how long that takes."""
        self._collected = False
        """Garbage was collected, see :meth:`_time_starts`."""
        self._memory: DeviceMemory | None = None
        """Of the device, where it is measured."""
        self._settled = False
        """It is counted from a step of the new batches on."""
        source.go_on()

    def next(self) -> Any:
        """The loop asks for a batch."""
        try:
            return self._next()
        except ChannelClosedError:
            # Nobody measures any more, and the training is not the script's own now.
            self._leave(CLOSED)
            raise

    def waited_for_others(self, span_ns: int) -> None:
        """The loop has waited for a batch of another loader."""
        self._others_ns += span_ns

    def epoch(self) -> None:
        """The loop has ended an epoch by itself and begins another: what it did in between is no step, nor is the last
        one before, whose end is not known."""
        now = self._now_ns()
        self._clock.done(now)
        self._clock.drain()
        self._clock.begin(now)
        if self._last_end_ns is not None:
            self._skipped_ns += max(0, now - self._last_end_ns)
            self._last_end_ns = now

    def _next(self) -> Any:
        now = self._now_ns()
        if self._memory is not None and self._phase == "measuring" and self._stop_at is None:
            self._look_after(self._memory)
        self._push(self._clock.done(now))
        if self._phase == "keeping" and self._gathered == KEEP:
            self._phase = "waiting"
        if self._phase == "measuring" and self._is_last():
            self._phase = "waiting"
        if self._phase == "waiting":
            self._clock.drain()
            self._serve()
            now = self._now_ns()
            self._clock.begin(now)
        batch, got = self._fetch(), self._now_ns()
        self._batches += 1
        self._clock.handed(now, got, size_of(batch))
        if self._phase == "keeping":
            self._gathered += 1
            return self._source.kept.keep(batch)
        return batch

    def _is_last(self) -> bool:
        """Whether the measurement has ended before this batch."""
        if self._follows and self._stop_at is None:
            message = self._channel.poll()
            if message is not None and message["type"] == "stop":
                self._stop_at = int(message["at"])
        if self._stop_at is None or self._batches < self._stop_at:
            return False
        if self._follows:
            self._channel.send("stopped", at=self._batches)
        return True

    def _serve(self) -> None:
        """Wait for what to measure next, and get ready for it."""
        while True:
            request = self._channel.receive()
            if request["type"] == "end":
                self.end(0)
            if request["type"] == "measure" and self._begin(request):
                return

    def _begin(self, request: dict[str, Any]) -> bool:
        self._progress, self._unsent, self._batches, self._stop_at = PhaseProgress(), [], 0, None
        self._label, self._memory, self._settled = "", None, False
        if self._division is not None:
            self._division.begin()
        self._starts = int(request["starts"]) if request["role"] != "ceiling" and self._source.stream is not None else 0
        workers, depth = int(request["num_workers"]), int(request["prefetch_depth"])
        question = None if request["question"] is None else _question(request["question"])
        plan = plan_phases(workers, depth, request["seconds"], request["warmup_limit_s"])
        source, epoch = self._source, None
        # The epochs of a data set without indices begin and end while it is measured.
        if isinstance(source, Source) and source.stream is None and request["role"] != "ceiling":
            epoch = partial(_epoch_of, source, request.get("epoch_batches"))
        self._phases = Phases(plan, self._progress, question, epoch=epoch)
        try:
            if request["role"] == "ceiling":
                self._source.kept.resize(request.get("batch_size"), request.get("own_batch_size"), self._ranks)
                self._source.replaying = True
                if request.get("memory"):
                    self._memory = DeviceMemory(float(request["memory"]), request.get("memory_limit_bytes"))
                    atexit.unregister(self.out_of_memory)
                    atexit.register(self.out_of_memory)
            else:
                self._source.switch(request["settings"])
        except Exception as error:
            self._fail("open", error)
            return False
        self._phase = "measuring"
        self._began_ns = self._sent_ns = self._now_ns()
        self._last_end_ns, self._skipped_ns, self._others_ns, self._first_end_ns = None, 0, 0, None
        self._channel.send("phase", phase="first_batch")
        return True

    def _look_after(self, memory: DeviceMemory) -> None:
        """Between two batches: count the peak from when the loop has come to the new batches; see whether it ended."""
        if not self._settled and (self._batches >= _SETTLED_AFTER or self._label == "timed"):
            self._settled = True
            memory.settle()
        elif self._settled and memory.ended():
            self._fail("timed", MemoryError(_OUT_OF_MEMORY))

    def out_of_memory(self) -> None:
        """The script is ending: report it where the device's memory has ended before."""
        if self._phase == "measuring" and self._memory is not None and self._memory.ended_at_all():
            with contextlib.suppress(OSError, ChannelClosedError):
                self._fail("timed", MemoryError(_OUT_OF_MEMORY))

    def _fetch(self) -> Any:
        while True:
            first, starts = self._source.awaits_first, list[tuple[float, float]]()
            try:
                if self._phase == "measuring" and self._batches == 0:
                    starts = self._time_starts()
                batch = self._source.next()
                if first or self._batches & (self._batches - 1) == 0:  # the first, second, fourth …
                    self._refuse_repeats()
            except StopIteration:
                raise
            except Exception as error:
                if self._phase != "measuring" or not self._source.settings:
                    raise  # the script's own loader: it gets what it would have got
                self._fail("timed", error)
                self._source.switch({})
                self._serve()
                continue
            if self._phase == "measuring" and self._batches == 0:
                # Where the iterator goes on from before, what it took to start is known from then.
                times = (0.0, 0.0) if self._source.replaying else (self._source.open_s, self._source.first_s)
                if starts:
                    times = (times[0], median(wait for wait, _ in starts))
                self._channel.send("first_batch", open_s=times[0], time_to_first_batch_s=times[1], starts=starts)
            return batch

    def _time_starts(self) -> list[tuple[float, float]]:
        """How long workers take to start and to end, each time (s)."""
        found: list[tuple[float, float]] = []
        until_ns = self._now_ns() + _STARTS_S * 1e9
        source = self._source
        if self._starts and not self._collected:
            # As ``pipetune run`` does before the first workers (pipetune.hook.tuned): a worker that inherits a full
            # collection which is due takes 0.2 s longer with each epoch, and when one is due is chance.
            gc.collect()
            self._collected = True
        while isinstance(source, Source) and len(found) < self._starts and self._now_ns() < until_ns:
            found.append(source.time_start())
        return found

    def _refuse_repeats(self) -> None:
        """Refuse workers of an iterable data set that yield each sample several times.

        Raises:
            RepeatedSamplesError: they do. As many workers as the script has are its own affair.
        """
        fault = self._find_repeats()
        if fault is not None and not self._has_own_workers():
            raise RepeatedSamplesError(fault)

    def _find_repeats(self) -> str | None:
        if self._division is None or self._source.replaying or self._phase != "measuring":
            return None
        return self._division.find_fault(self._source.inner, own=self._has_own_workers())

    def _has_own_workers(self) -> bool:
        script_has = self._source.loader.num_workers
        return bool(self._source.settings.get("num_workers", script_has) == script_has)

    def _push(self, steps: list[StepTime]) -> None:
        """Count steps that have finished."""
        phases = self._phases
        if phases is None or self._phase != "measuring":
            return
        for step in steps:
            if phases.complete or self._follows:
                return
            self._last_end_ns = step.t_end_ns
            self._first_end_ns = self._first_end_ns or step.t_end_ns
            label = phases.push(now := self._without_gaps(step))
            if label != self._label:
                self._send_steps()
                self._label = label
                self._channel.send("phase", phase=label)
            self._unsent.append(now)
            if phases.complete:
                self._send_steps()
                self._finish()
                return
            if self._now_ns() - self._sent_ns > _SEND_EVERY_S * 1e9:
                self._send_steps()

    def _without_gaps(self, step: StepTime) -> StepTime:
        """The step as if epochs followed each other at once."""
        skipped = self._skipped_ns
        if not skipped:
            return step
        return replace(step, t_start_ns=step.t_start_ns - skipped, t_end_ns=step.t_end_ns - skipped)

    def _finish(self) -> None:
        try:
            self._refuse_repeats()
        except RepeatedSamplesError as error:
            self._fail("timed", error)
            return
        ahead = 0
        if self._ranks > 1:
            # The first one has waited for new workers.
            steps_ns = self._now_ns() - (self._first_end_ns or self._began_ns) - self._skipped_ns
            step_s = max(1e-3, steps_ns / 1e9 / max(1, self._batches - 1))
            ahead = max(_AHEAD_STEPS, round(_AHEAD_S / step_s))
        self._stop_at = self._batches + ahead
        self._channel.send(
            "result", warmup_batches=self._progress.warmup_batches, steady=self._progress.steady,
            window_batches=self._progress.window_batches, ended_early=self._progress.answered,
            epoch_windows=self._progress.epoch_windows, epoch_batches=getattr(self._source, "epoch_batches", None),
            stop_at=self._stop_at, changed_in_place=self._source.kept.changed_in_place,
            repeats=self._find_repeats() is not None,
            other_loaders_frac=self._others_ns / max(1, self._now_ns() - self._began_ns),
            psnr_db=None if self._source.swap is None else min(999.0, self._source.swap.psnr_db),
            **({} if self._memory is None else self._memory.found()),
        )  # fmt: skip

    def _send_steps(self) -> None:
        if self._unsent:
            self._channel.send("steps", phase=self._label, rows=wire.steps_to_rows(self._unsent))
        self._unsent, self._sent_ns = [], self._now_ns()

    def _fail(self, phase: str, error: Exception) -> None:
        self._phase, self._phases = "waiting", None
        self._channel.send("failure", phase=phase, **describe_failure(error, self._source))

    def end(self, status: int) -> None:
        """End the process here, inside ``next()``, without an exception: many scripts save a checkpoint then."""
        with contextlib.suppress(Exception):
            self._source.close()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        self._leave(status)


def _epoch_of(source: Source, expected: int | None) -> int | None:
    """Batches of an epoch: as many as were expected, until one has ended."""
    return source.epoch_batches or expected


def _question(values: dict[str, Any]) -> Question:
    return Question(**{**values, "levels": tuple(values["levels"])})
