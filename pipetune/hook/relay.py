"""Measures one loader of the script after another in its own training loop, as pipetune asks for.

All of it happens inside ``next()``: what has been asked for is measured while the loop goes on, and between two
requests the loop waits. Of several ranks the first decides when a measurement is over; as collectives hold their steps
together, all of them have to stop at the same one, which it names a few steps ahead.

Epochs end where the script's own would (:mod:`pipetune.hook.source`), also in the middle of a measurement, which goes
on with the next one. With the end of each, what was measured until then is sent, for the script may have no other
epoch: then its process ends in its own way, and the parent has all that there was
(:mod:`pipetune.measure.script.joined`). A request may also come with the start of the process: then the loader is
measured from its very first batch.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from pipetune.hook.built import BuiltSource
from pipetune.hook.channel import Channel, ChannelClosedError
from pipetune.hook.division import Division, RepeatedSamplesError
from pipetune.hook.epochs import Epochs
from pipetune.hook.keeping import LEAST_KEPT, Keeping, count_to_keep
from pipetune.hook.measurement_plan import count_steps_ahead, describe_progress, make_phases
from pipetune.hook.memory_watch import OUT_OF_MEMORY, MemoryWatch
from pipetune.hook.outbox import Outbox
from pipetune.hook.source import Source
from pipetune.hook.told_failure import describe_failure, tell_of_lost_worker
from pipetune.measure.phases import PhaseProgress, Phases
from pipetune.measure.script.protocol import CLOSED
from pipetune.records.sweep import StepTime
from pipetune.usercode.batches import size_of
from pipetune.usercode.loop_clock import LoopClock


class Relay:
    """The conversation about the loader that is trained on.

    Args:
        follows: another rank decides when a measurement is over.
        ranks: how many train together.
        division: judges an iterable data set; ``None``: it has indices, and nothing to judge.
    """

    def __init__(
        self, channel: Channel, source: Source | BuiltSource, clock: LoopClock, *, follows: bool = False,
        ranks: int = 1, division: Division | None = None, now_ns: Callable[[], int] = time.monotonic_ns,
        leave: Callable[[int], Any] = os._exit,
    ) -> None:  # fmt: skip
        self._channel, self._source, self._clock = channel, source, clock
        self._follows, self._ranks, self._division = follows, ranks, division or Division(None, None)
        self._now_ns, self._leave = now_ns, leave
        self._phase = "waiting"
        self._phases: Phases | None = None
        self._progress = PhaseProgress()
        self._outbox = Outbox(channel, now_ns)
        self._keeping = Keeping(0, 0)
        self._batches = 0
        """Since the request."""
        self._began_ns = 0
        self._last_end_ns: int | None = None
        self._first_end_ns: int | None = None
        self._epochs = Epochs()
        self._others_ns = 0
        """Time that the loop has waited for other loaders since the request, which is in its steps (ns)."""
        self._stop_at: int | None = None
        self._starts = 0
        """How often workers are started before the measurement, to see how long that takes."""
        self._memory: MemoryWatch | None = None
        """Of the device, where it is measured."""
        self._told = True
        """The parent knows that the loop waits."""
        self._request: dict[str, Any] = {}
        """What is measured, or will be as soon as enough batches are kept."""
        self._from_start = False
        """The loader is measured from its first batch on."""

    def next(self) -> Any:
        """The loop asks for a batch."""
        try:
            return self._next()
        except ChannelClosedError:
            # Nobody measures any more, and the training is not the script's own now.
            self._leave(CLOSED)
            raise

    def waited_for_others(self, span_ns: int) -> None:
        """The loop has waited for a batch of another loader; between epochs that is no part of a measurement."""
        self._others_ns += self._epochs.wait_for_others(span_ns)

    def measure_from_start(self, request: dict[str, Any]) -> None:
        """Measure from the loader's first batch on; before any is taken."""
        self._from_start = True
        self._begin(request)
        self._epochs.begin(self._source.opened_ns, None, 0)
        self._division.epochs.begin_epoch()

    def stepped(self) -> None:
        """An optimizer has stepped."""
        if not self._epochs.within_one:
            self._clock.drain()  # the device, too, has ended the step
            self._epochs.step(self._now_ns())
            if self._epochs.trains_on_kept:
                self.end(0)  # as a script that has one epoch

    @property
    def epoch_has_ended(self) -> bool:
        """The loop was told that its epoch has ended, and has not begun another."""
        return not self._epochs.within_one

    def epoch(self, loader: Any | None = None) -> None:
        """The loop iterates anew; what it did since the last epoch is no step. Where it has left that one before its
        end, nor is its last step, whose end is not known.

        Args:
            loader: that it iterates over, where it is another one in place of the first.
        """
        if self._epochs.within_one:
            self._push(self._clock.drain())
            self._clock.done(self._now_ns())
            self._clock.drain()
        now = self._now_ns()
        self._epochs.begin(now, self._last_end_ns, self._source.delivered)
        self._clock.begin(now)
        waits = self._phase == "waiting" or (self._stop_at is not None and self._batches >= self._stop_at)
        self._division.follow(loader)
        self._source.begin_epoch(loader, open_now=not waits)
        self._division.epochs.begin_epoch()
        self._channel.send("epoch", within=True)

    def _next(self) -> Any:
        now = self._now_ns()
        if self.epoch_has_ended and getattr(self._source, "begins_itself", False):
            self.epoch()
        counts = self._memory is not None and self._phase == "measuring" and self._stop_at is None
        if counts and self._memory is not None and self._memory.has_ended(self._batches, self._outbox.phase):
            self._fail("timed", MemoryError(OUT_OF_MEMORY))
        self._push(self._clock.done(now))
        if self._phase == "measuring" and self._is_last():
            self._phase, self._told = "waiting", False
        if self._phase == "keeping" and self._keeping.is_enough:
            self._start_ceiling()
        if self._phase == "waiting":
            self._clock.drain()
            if not self._told:
                self._told = True
                self._channel.send("resting")
            self._serve()
            now = self._now_ns()
            self._clock.begin(now)
        try:
            batch = self._fetch()
        except StopIteration:
            self._division.epochs.end_epoch()
            self._end_epoch(now)
            raise
        return self._hand_over(batch, now)

    def _hand_over(self, batch: Any, asked_ns: int) -> Any:
        """Note that the loop gets a batch; returns what it gets."""
        got, source = self._now_ns(), self._source
        self._batches += 1
        workers = source.settings.get("num_workers", getattr(source.loader, "num_workers", 0))
        whole = self._from_start or self._progress.whole_epochs
        began = self._epochs.asked_for_first(asked_ns, got, int(workers or 0), whole=whole)
        if began == asked_ns:
            self._epochs.waited((got - asked_ns) / 1e9)
        elif not whole:
            self._clock.begin(began)
        self._clock.handed(began, got, size_of(batch))
        if self._phase != "keeping":
            return batch
        self._keeping.took(got, len(source.kept) + 1, alone=self._ranks == 1)
        return source.kept.keep(batch)

    def script_ends(self) -> None:
        """The process ends by itself, perhaps in the middle of an epoch, whose last step's end is not known."""
        if self._epochs.within_one and self._phase == "measuring":
            with contextlib.suppress(OSError, ChannelClosedError):
                self._end_epoch(self._now_ns())

    def _end_epoch(self, asked_ns: int) -> None:
        """Send what was measured until now: there may be no other epoch."""
        self._epochs.end(asked_ns, self._now_ns(), self._source.delivered)
        self._push(self._clock.drain())
        self._outbox.send()
        self._fails_by_repeats()
        self._channel.send("epoch", within=False, **self._epochs.describe(), **self._division.describe(self._source))

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
        """Begin what is asked for, or keep batches for it first; whether it could be begun."""
        self._request = request
        if request["role"] != "ceiling":
            return self._start(lambda: self._source.switch(request["settings"]))
        if len(self._source.kept) >= LEAST_KEPT:
            return self._start_ceiling()
        source, count = self._source, count_to_keep(self._source.length, self._source.delivered)
        self._keeping = Keeping(count, self._now_ns(), lambda: self._ranks > 1 or source.length is not None)
        self._phase, self._phases = "keeping", None
        return True

    def _start_ceiling(self) -> bool:
        request, source = self._request, self._source

        def replay() -> None:
            source.kept.resize(request.get("batch_size"), request.get("own_batch_size"), self._ranks)
            source.replay()

        started = self._start(replay)
        if started and request.get("memory"):
            self._memory = MemoryWatch(float(request["memory"]), request.get("memory_limit_bytes"))
            atexit.unregister(self.out_of_memory)
            atexit.register(self.out_of_memory)
        return started

    def _start(self, prepare: Callable[[], None]) -> bool:
        """From the next batch on the steps count; whether it could be prepared."""
        request, source, ceiling = self._request, self._source, self._request["role"] == "ceiling"
        self._progress, self._batches, self._stop_at, self._memory = PhaseProgress(), 0, None, None
        self._division.begin(request)
        self._outbox.restart()
        length, expected = self._epochs.batches or source.length, request.get("epoch_batches")
        epoch = None if ceiling else lambda: self._epochs.batches or source.length or expected
        self._phases = make_phases(request, self._progress, length, epoch)
        try:
            prepare()
        except Exception as error:
            self._fail("open", error)
            return False
        self._starts = 0 if ceiling else int(request["starts"])
        self._phase = "measuring"
        self._began_ns = self._now_ns()
        self._epochs.restart(keep_length=source.stream is not None)
        self._last_end_ns, self._others_ns, self._first_end_ns = None, 0, None
        self._channel.send("phase", phase="first_batch")
        return True

    def out_of_memory(self) -> None:
        """The script is ending: report it where the device's memory has ended before."""
        if self._phase == "measuring" and self._memory is not None and self._memory.has_ever_ended():
            with contextlib.suppress(OSError, ChannelClosedError):
                self._fail("timed", MemoryError(OUT_OF_MEMORY))

    def _fetch(self) -> Any:
        while True:
            first, starts = self._source.awaits_first, list[tuple[float, float]]()
            try:
                if self._phase == "measuring" and self._batches == 0:
                    starts = self._source.time_starts(self._starts)
                batch = self._source.next()
            except Exception as error:
                if isinstance(error, StopIteration) or self._phase != "measuring" or not self._source.settings:
                    tell_of_lost_worker(self._channel, error, self._source.inner)
                    raise  # the script's own loader: it gets what it would have got
                self._fail("timed", error)
                self._source.switch({})
                self._serve()
                continue
            looks = self._division.take(batch, self._source, self._batches, is_first=first)
            if looks and isinstance(self._source, Source) and self._fails_by_repeats():
                self._source.put_back(batch)
                self._serve()
                continue
            if self._phase == "measuring" and self._batches == 0:
                # Where the iterator goes on from before, what it took to start is known from then.
                open_s, first_s = (0.0, 0.0) if self._source.replaying else (self._source.open_s, self._source.first_s)
                first_s = median(wait for wait, _ in starts) if starts else first_s
                self._channel.send("first_batch", open_s=open_s, time_to_first_batch_s=first_s, starts=starts)
            return batch

    def _fails_by_repeats(self) -> bool:
        """Whether the measurement fails, because workers of an iterable data set do not divide its samples."""
        judged = self._phase == "measuring" and self._stop_at is None
        fault = self._division.find_refusal(self._source) if judged else None
        if fault is not None:
            self._fail("timed", RepeatedSamplesError(fault))
        return fault is not None

    def _push(self, steps: list[StepTime]) -> None:
        """Count steps that have finished."""
        phases = self._phases
        if phases is None or self._phase != "measuring" or self._follows:
            return
        for step in steps:
            if phases.complete:
                break
            self._last_end_ns = step.t_end_ns
            self._first_end_ns = self._first_end_ns or step.t_end_ns
            label = phases.push(now := self._epochs.without_gaps(step))
            self._outbox.add(now, label)
            if phases.complete:
                self._outbox.send()
        if phases.complete and self._stop_at is None and not self._division.epochs.is_awaited:
            self._finish()

    def _finish(self) -> None:
        if self._fails_by_repeats():
            return
        spent_ns = self._now_ns() - (self._first_end_ns or self._began_ns) - self._epochs.skipped_ns
        ahead = count_steps_ahead(spent_ns, self._batches) if self._ranks > 1 else 0
        self._stop_at = self._batches + ahead
        self._channel.send(
            "result", **describe_progress(self._progress), epoch_batches=self._source.epoch_batches,
            **self._epochs.describe(), **self._division.describe(self._source),
            stop_at=self._stop_at, changed_in_place=self._source.kept.changed_in_place,
            other_loaders_frac=self._others_ns / max(1, self._now_ns() - self._began_ns - self._epochs.skipped_ns),
            psnr_db=None if self._source.swap is None else min(999.0, self._source.swap.psnr_db),
            **({} if self._memory is None else self._memory.describe()),
        )  # fmt: skip

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
