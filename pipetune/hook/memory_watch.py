"""Watches the memory of the device while batches of another size are trained on."""

from __future__ import annotations

from pipetune.hook.device_memory import DeviceMemory

#: Loops are at most so many batches ahead of the one that is trained on.
_SETTLED_AFTER = 10
OUT_OF_MEMORY = "CUDA out of memory"


class MemoryWatch:
    """The memory of a device during one measurement; it is counted from a step of the new batches on.

    Args:
        share: of the device's memory that a step may take.
        limit_bytes: see :class:`pipetune.hook.device_memory.DeviceMemory`.
    """

    def __init__(self, share: float, limit_bytes: int | None) -> None:
        self._memory = DeviceMemory(share, limit_bytes)
        self._settled = False

    def has_ended(self, batches: int, phase: str | None) -> bool:
        """Whether the memory has ended, looked at between two batches.

        Args:
            batches: since the measurement began.
            phase: of the measurement, as it was last sent.
        """
        if not self._settled and (batches >= _SETTLED_AFTER or phase == "timed"):
            self._settled = True
            self._memory.settle()
            return False
        return self._settled and self._memory.ended()

    def has_ever_ended(self) -> bool:
        """Whether the memory has ended at any time, also before it was counted."""
        return self._memory.ended_at_all()

    def describe(self) -> dict[str, object]:
        """What was measured, as the result has it."""
        return dict(self._memory.found())
