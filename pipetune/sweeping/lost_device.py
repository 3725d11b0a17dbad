"""Whether the device is gone, so that no further candidate can be measured. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pipetune.errors import PipetuneError
from pipetune.measure.failures import DEVICE_ERROR, DEVICE_LOST
from pipetune.records.sweep import Outcome

_HINT = "see nvidia-smi and dmesg (Xid), reset the GPU or restart the machine, then resume"


def check_device(outcomes: Sequence[Outcome]) -> None:
    """End the sweep where the newest outcome says that the device is lost, or where it fails twice in a row.

    A failure of the device may be the candidate's own, of a decoder that runs on it. After a loss the next candidate
    does not get as far as its first batch.

    Raises:
        PipetuneError: the device is gone.
    """
    kinds = [outcome.failure.kind if outcome.failure else None for outcome in outcomes[-2:]]
    newest = outcomes[-1].failure if outcomes else None
    if newest is None:
        return
    again = kinds == [DEVICE_ERROR, DEVICE_ERROR] and newest.phase == "open"
    if newest.kind != DEVICE_LOST and not again:
        return
    raise PipetuneError(f"the accelerator is lost: {newest.message}", hint=_HINT)
