"""Threads of the training process as its loader workers, in a job that has none that can be recognised. Pure.

A pool of threads that a script made itself has no name that tells what it does. While the main thread waits for its
next batch, those of them that compute can only be preparing it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipetune.records.observation import RankReading


def with_own_threads(readings: Sequence[RankReading]) -> Sequence[RankReading]:
    """The readings with the threads that compute in the place of loader workers, if no reading has any of these."""
    if any(reading.workers for reading in readings) or not any(reading.threads for reading in readings):
        return readings
    return [
        replace(reading, workers=reading.threads, worker_kind="thread") if reading.threads else reading
        for reading in readings
    ]
