"""What a script's loader loses with the beginning of each epoch, where workers start anew or wait for it. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median, stdev
from typing import Any

from pipetune.records.script import ScriptLoader
from pipetune.records.sweep import Candidate, Measurement
from pipetune.stats.intervals import t95

#: Starts of a candidate's workers that are timed before it is measured, and in epochs of which length (s) they matter:
#: a start of half a second is less than 1 % of a longer one.
_STARTS, _SHORT_EPOCH_S = 3, 60.0
#: Of an epoch of a batch or two hardly more than the start remains: its steady rate is of at least the rest.
_MOST_OF_EPOCH = 0.9
#: Epochs are the same for all worker counts where they differ by less than this factor: by an incomplete batch of each.
_SAME_EPOCH = 1.2
#: An epoch that is said to have more batches or samples is not believed.
_MOST_IN_EPOCH = 1 << 40


class EpochLengths:
    """What is known of the epochs of a script's loader: of one with an iterable data set they have to be seen."""

    def __init__(self) -> None:
        self._batches: dict[int, int] = {}
        """Worker count -> batches of an epoch, once one has ended."""
        self._own_samples: int | None = None
        """That the script's own workers yield in an epoch of an iterable data set, once one of theirs has ended."""

    def describe(self, workers: int) -> dict[str, int | None]:
        """The fields of a request for so many workers."""
        return {"epoch_batches": expected_epoch(self._batches, workers), "own_epoch_samples": self._own_samples}

    def learn(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Remember the epochs of a measurement, also of a script that has ended in the middle of it."""
        if request["role"] == "ceiling":
            return
        if 0 < (batches := result.get("epoch_batches") or 0) < _MOST_IN_EPOCH:
            self._batches[request["num_workers"]] = batches
        samples = result.get("epoch_samples") or 0
        if request["num_workers"] == request["own_workers"] and 0 < samples < _MOST_IN_EPOCH:
            self._own_samples = samples


def starts_to_time(loader: ScriptLoader | None, candidate: Candidate, rate: float | None) -> int:
    """How often to start the candidate's workers, to see how long that takes.

    Args:
        rate: of the script (samples/s), once it is known.
    """
    samples = None if loader is None or loader.iterable else _samples_per_start(loader, candidate)
    return 0 if samples is None or (rate and samples / rate > _SHORT_EPOCH_S) else _STARTS


def _samples_per_start(loader: ScriptLoader, candidate: Candidate) -> int | None:
    """Samples from one beginning of an epoch to the next; ``None``: it costs nothing, or an epoch is not known.

    Workers that a candidate keeps do not start anew, but wait for the indices of an epoch until it begins.
    """
    return loader.samples_between_starts(candidate.num_workers)


def expected_epoch(known: Mapping[int, int], workers: int) -> int | None:
    """Batches of an epoch of an iterable data set; ``None``: an epoch has to be waited for.

    Args:
        known: worker count -> batches of its epoch. Where they are about the same for counts of which one is twice the
            other, so they are for others; elsewhere each worker may have an epoch of its own.
    """
    if workers in known:
        return known[workers]
    readers = [max(1, count) for count in known]
    alike = (
        bool(known) and max(readers) >= 2 * min(readers) and max(known.values()) <= _SAME_EPOCH * min(known.values())
    )
    return round(median(known.values())) if alike else None


def with_epoch_start(
    m: Measurement, loader: ScriptLoader, candidate: Candidate, starts: Sequence[tuple[float, float]] = (), *,
    whole: bool = False,
) -> Measurement:  # fmt: skip
    """The rate over whole epochs: each begins with a wait for the first batch of new workers, and ends with theirs.

    The steady rate alone would favour many workers where epochs are short: of 512 images per rank in one second, two
    workers that start in 0.1 s are no faster than none. Where the loop waits for batches anyway, the first of each
    worker would have been waited for without a start, too: an epoch of ``n`` batches takes ``first + (n - 1) · interval
    + step + end``, which is ``n · interval + first + end - wait`` of one worker.

    Args:
        starts: wait for the first batch, and for the workers' end, of several starts (s); ``()``: the measurement's own
            start is all that is known.
        whole: whole epochs were measured, so that their starts are in the rate already, and are only stated apart.
    """
    samples = _samples_per_start(loader, candidate)
    # Iterable data sets begin their epochs within the timed phase.
    if samples is None or loader.iterable or m.time_to_first_batch_s <= 0:
        return m
    if candidate.keep_workers and not starts:
        return m  # the first batch of new workers tells nothing of an epoch's beginning
    each_s = [first_s + end_s for first_s, end_s in starts] or [m.time_to_first_batch_s]
    waited_s, steps = m.data_wait_frac * m.timed_s, m.steps
    if whole:  # the waits of the starts are among them
        epochs = min(m.samples / samples, m.steps)
        waited_s, steps = max(0.0, waited_s - epochs * median(each_s)), round(m.steps - epochs)
    wait_s = candidate.num_workers * waited_s / steps if steps else 0.0
    start_s = max(0.0, median(each_s) - wait_s)
    if whole:
        epoch_s = samples / m.samples_per_s
        start_s = min(start_s, _MOST_OF_EPOCH * epoch_s)
        return replace(m, steady_samples_per_s=samples / (epoch_s - start_s), epoch_start_s=start_s)
    epoch_s = samples / m.samples_per_s + start_s
    factor = 1 - start_s / epoch_s
    scatter = 0.0
    if len(each_s) > 1:
        # A mean's, which is not wider than the median's: their outliers are what widens it.
        scatter = t95(len(each_s) - 1) * stdev(each_s) / math.sqrt(len(each_s)) / epoch_s

    def scaled(value: float, interval: tuple[float, float]) -> tuple[float, float]:
        low, high = ((interval[side] - value) / value for side in (0, 1))
        wider = [math.hypot(one, scatter) for one in (low, high)]
        return factor * value * max(0.0, 1 - wider[0]), factor * value * (1 + wider[1])

    return replace(
        m, samples_per_s=factor * m.samples_per_s, ci95=scaled(m.samples_per_s, m.ci95),
        goodput=None if m.goodput is None else factor * m.goodput,
        goodput_ci95=scaled(m.goodput, m.goodput_ci95) if m.goodput and m.goodput_ci95 else m.goodput_ci95,
        data_wait_frac=1 - factor * (1 - m.data_wait_frac), steady_samples_per_s=m.samples_per_s,
        accelerator_idle_frac=1 - factor * (1 - m.accelerator_idle_frac), epoch_start_s=start_s,
    )  # fmt: skip
