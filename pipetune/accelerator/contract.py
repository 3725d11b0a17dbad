"""What an accelerator offers to the training loop that feeds it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

#: Steps that may be unfinished after ``submit`` returns. A training loop runs ahead of its device until something
#: makes it wait (a logged loss, the launch queue, memory). Two lets the next batch be fetched while one step runs and
#: one is queued, so that a late batch costs only what the device really stood idle, and bounds the batches in memory.
MAX_IN_FLIGHT = 2


class DeviceStep(NamedTuple):
    """One finished step on the accelerator's timeline, in ``time.monotonic_ns``."""

    t_start_ns: int
    """The device began with this step's work (the copy included)."""
    t_end_ns: int
    h2d_s: float | None


class Accelerator(Protocol):
    """Consumes batches. ``submit`` does not wait for the step it starts."""

    def warm_up(self, batch_size: int, image_size: int) -> None:
        """Do whatever happens only once, before a loader is opened.

        A slow first step would let the loader fill its queues meanwhile; a loader almost as fast as the accelerator
        then lives off them for many times their length, and looks sufficient.
        """

    def submit(self, batch: Any) -> None:
        """Start a step on ``batch``; block while more than :data:`MAX_IN_FLIGHT` steps are unfinished."""

    def finished(self) -> list[DeviceStep]:
        """Steps that ended since the last call, in order, without waiting."""

    def drain(self) -> list[DeviceStep]:
        """Wait for all steps; those not yet returned by ``finished``."""

    def memory_bytes(self) -> int | None:
        """Most device memory used so far; ``None`` where there is none of its own."""
