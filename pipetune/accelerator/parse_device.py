"""Parses ``--device`` into the spec of an accelerator, without importing torch."""

from __future__ import annotations

from pipetune.accelerator.named import emulated_spec
from pipetune.errors import UsageError
from pipetune.records.sweep import AcceleratorSpec

#: What torch trains on besides the CPU, as torch calls it, and what a person does.
REAL_DEVICES = {"cuda": "CUDA device", "xpu": "XPU"}


def parse_device(text: str, devices: int, remark: str | None = None) -> AcceleratorSpec:
    """``auto``, ``cuda``, ``cuda:N``, ``xpu:N``, ``cpu``, ``emulated``, ``emulated:NAME`` or ``emulated:RATE`` -> spec.

    Args:
        text: what the user wrote.
        devices: number of devices that this process sees: of the kind that was written, CUDA devices for ``auto``.
        remark: why there are no more of them.

    Raises:
        UsageError: none of those, or no such device.
    """
    kind, _, rest = text.strip().partition(":")
    if kind == "auto" and not rest:
        kind = "cuda" if devices else "emulated"
    if kind == "emulated":
        return emulated_spec(rest)
    if kind == "cpu" and not rest:
        return AcceleratorSpec(kind="cpu", name="CPU")
    if kind in REAL_DEVICES and (not rest or rest.isdecimal()):
        index, name = int(rest or 0), REAL_DEVICES[kind]
        if index >= devices:
            seen = f"{devices} {name}{'s' * (devices != 1)}{f' ({remark})' if remark else ''}"
            raise UsageError(f"no {text!r}: this process sees {seen}", hint="try --device emulated or --device cpu")
        return AcceleratorSpec(kind=kind, name=f"{name} {index}", device_index=index)
    raise UsageError(f"unknown device {text!r}", hint="write auto, cuda:N, xpu:N, cpu, emulated:NAME or emulated:RATE")
