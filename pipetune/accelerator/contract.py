"""The interface between an accelerator and the training loop that gives it batches."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

#: Steps that may be unfinished after ``submit`` returns. A training loop runs ahead of its device until something
#: makes it wait (a logged loss, the launch queue, memory). With two, the next batch is fetched while one step runs and
#: one is queued: a late batch costs only the time in which the device was idle, and the batches in memory are bounded.
MAX_IN_FLIGHT = 2


class DeviceStep(NamedTuple):
    """One finished step on the accelerator's timeline, in ``time.monotonic_ns``."""

    t_start_ns: int
    """Start of this step's work on the device, the copy included."""
    t_end_ns: int
    h2d_s: float | None
    others_s: float = 0.0
    """At its end, waiting until the other ranks had computed the same step."""


class Accelerator(Protocol):
    """Consumes batches. ``submit`` does not wait for the step that it starts."""

    def warm_up(self, shape: tuple[int, ...]) -> None:
        """Do everything that happens only once for batches of images of this shape, before a loader is opened.

        During a slow first step the loader would fill its queues; one that is almost as fast as the accelerator would
        then draw on them for many batches, and appear sufficient.
        """

    def submit(self, batch: Any) -> None:
        """Start a step on ``batch``; block while more than :data:`MAX_IN_FLIGHT` steps are unfinished."""

    def finished(self) -> list[DeviceStep]:
        """Steps that ended since the last call, in order, without waiting."""

    def drain(self) -> list[DeviceStep]:
        """Wait for all steps; return those that ``finished`` has not returned yet."""

    def place(self, batch: Any) -> Any:
        """The batch as it is when a step begins to compute: on the device, where that has memory of its own."""

    def copy_rate(self, batch: Any) -> float | None:
        """Rate at which images are copied to the device while nothing else runs (bytes/s); ``None``: no copy."""

    def memory_bytes(self) -> int | None:
        """Largest device memory used so far (bytes); ``None`` where the device has no memory of its own."""
