"""Parses ``--device`` into the spec of an accelerator, without importing torch."""

from __future__ import annotations

from pipetune.accelerator.named import emulated_spec
from pipetune.errors import UsageError
from pipetune.records.sweep import AcceleratorSpec


def parse_device(text: str, cuda_devices: int, remark: str | None = None) -> AcceleratorSpec:
    """``auto``, ``cuda``, ``cuda:N``, ``cpu``, ``emulated``, ``emulated:NAME`` or ``emulated:RATE`` -> spec.

    Args:
        text: what the user wrote.
        cuda_devices: number of CUDA devices that this process sees; decides what ``auto`` means.
        remark: why there are no more of them.

    Raises:
        UsageError: none of those, or no such CUDA device.
    """
    kind, _, rest = text.strip().partition(":")
    if kind == "auto" and not rest:
        kind = "cuda" if cuda_devices else "emulated"
    if kind == "emulated":
        return emulated_spec(rest)
    if kind == "cpu" and not rest:
        return AcceleratorSpec(kind="cpu", name="CPU")
    if kind == "cuda" and (not rest or rest.isdecimal()):
        index = int(rest or 0)
        if index >= cuda_devices:
            seen = f"{cuda_devices} CUDA device{'s' * (cuda_devices != 1)}{f' ({remark})' if remark else ''}"
            raise UsageError(f"no {text!r}: this process sees {seen}", hint="try --device emulated or --device cpu")
        return AcceleratorSpec(kind="cuda", name=f"CUDA device {index}", device_index=index)
    raise UsageError(f"unknown device {text!r}", hint="write auto, cuda:N, cpu, emulated:NAME or emulated:RATE")
