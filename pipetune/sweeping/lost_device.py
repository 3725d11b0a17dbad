"""Whether the device is gone, so that no further candidate can be measured. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pipetune.errors import PipetuneError
from pipetune.measure.failures import DEVICE_ERROR, DEVICE_LOST
from pipetune.records.sweep import Outcome

_HINT = "see nvidia-smi and dmesg (Xid), reset the GPU or restart the machine, then resume"


def check_device(outcomes: Sequence[Outcome]) -> None:
    """End the sweep where the newest outcome says that the device is lost, or the newest two that it fails.

    One failure of the device may be the candidate's own: a decoder that runs on it.

    Raises:
        PipetuneError: the device is gone.
    """
    kinds = [outcome.failure.kind if outcome.failure else None for outcome in outcomes[-2:]]
    newest = outcomes[-1].failure if outcomes else None
    if newest is None or not (newest.kind == DEVICE_LOST or kinds == [DEVICE_ERROR, DEVICE_ERROR]):
        return
    raise PipetuneError(f"the accelerator is lost: {newest.message}", hint=_HINT)
