"""How many ranks a sweep measures at the same time, from its options and the devices that there are."""

from __future__ import annotations

import re

from pipetune.errors import UsageError
from pipetune.records.sweep import AcceleratorSpec
from pipetune.sweeping.options import AUTO_RANKS, SweepOptions

#: ``8xa100``: as many ranks, each with an emulated accelerator of this name or rate.
_SEVERAL = re.compile(r"([1-9][0-9]{0,3})x(.+)")


def parse_ranks(text: str) -> int:
    """``8``, or ``auto``, which is :data:`pipetune.sweeping.options.AUTO_RANKS`.

    Raises:
        UsageError: neither.
    """
    if text.strip() == "auto":
        return AUTO_RANKS
    if not text.strip().isdecimal() or int(text) < 1:
        raise UsageError(f"{text!r} is no number of ranks", hint="write --ranks 8, or --ranks auto")
    return int(text)


def device_and_ranks(device: str, ranks: int) -> tuple[str, int]:
    """``--device 8xa100`` written out: ``emulated:a100`` and 8 ranks; another device as it is, with ``ranks``.

    Raises:
        UsageError: ``--ranks`` says otherwise.
    """
    several = _SEVERAL.fullmatch(device.strip())
    if several is None:
        return device, ranks
    count, name = int(several[1]), several[2].removeprefix("emulated:")
    if ranks not in (1, AUTO_RANKS, count):
        raise UsageError(f"--device {device} is for {count} ranks, --ranks is {ranks}", hint="omit --ranks")
    return f"emulated:{name}", count


def count_ranks(chosen: SweepOptions, accelerator: AcceleratorSpec, devices: int) -> int:
    """The number of ranks that are measured at the same time.

    Args:
        devices: of the accelerator's kind, as many as this process sees.

    Raises:
        UsageError: there are not so many devices, or the options do not go together.
    """
    real = accelerator.device_index is not None
    ranks = chosen.ranks
    if ranks == AUTO_RANKS:
        ranks = devices if real and not accelerator.device_index else 1
    if ranks == 1:
        return 1
    if real and (accelerator.device_index or ranks > devices):
        seen = f"this process sees {devices} devices"
        if accelerator.device_index:
            raise UsageError(
                f"--device {chosen.device} is one device, --ranks {ranks} takes the first {ranks}",
                hint="write --device cuda, and choose with CUDA_VISIBLE_DEVICES",
            )
        raise UsageError(f"--ranks {ranks} needs as many devices, {seen}", hint=f"write --ranks {max(1, devices)}")
    if chosen.target_metric == "nvml":
        raise UsageError(
            f"--target-metric nvml is of one GPU, not of {ranks} ranks", hint="use --target-metric goodput"
        )
    return ranks
