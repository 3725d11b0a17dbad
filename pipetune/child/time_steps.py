"""Feeds batches to an accelerator and times the parts of each step: data wait, copy, compute, idle."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pipetune.accelerator.contract import Accelerator, DeviceStep
from pipetune.records.sweep import StepTime


def time_steps(
    batches: Iterable[Any], accelerator: Accelerator, clock: Callable[[], int] = time.monotonic_ns
) -> Iterator[StepTime]:
    """Feed every batch to the accelerator; yield each step once the accelerator has finished it, in order.

    The next batch is asked for only when the caller asks for the next step, so the caller decides when to stop.
    ``idle_s`` of the first step is 0: there is no step before it.
    """
    waiting: deque[tuple[int, float, int]] = deque()
    last_end_ns: int | None = None
    iterator = iter(batches)
    while True:
        asked = clock()
        try:
            batch = next(iterator)
        except StopIteration:
            break
        waiting.append((asked, (clock() - asked) / 1e9, len(batch.images)))
        accelerator.submit(batch)
        # Dropped before the next one is asked for, so that no batch beyond the loader's own is in memory.
        del batch
        for done in accelerator.finished():
            yield _join(waiting.popleft(), done, last_end_ns)
            last_end_ns = done.t_end_ns
    for done in accelerator.drain():
        yield _join(waiting.popleft(), done, last_end_ns)
        last_end_ns = done.t_end_ns


def _join(asked: tuple[int, float, int], done: DeviceStep, last_end_ns: int | None) -> StepTime:
    t_start_ns, data_wait_s, samples = asked
    return StepTime(
        t_start_ns=t_start_ns,
        data_wait_s=data_wait_s,
        h2d_s=done.h2d_s,
        compute_s=(done.t_end_ns - done.t_start_ns) / 1e9 - (done.h2d_s or 0.0) - done.others_s,
        idle_s=0.0 if last_end_ns is None else max(0.0, (done.t_start_ns - last_end_ns) / 1e9),
        t_end_ns=done.t_end_ns,
        samples=samples,
        others_s=done.others_s,
    )
