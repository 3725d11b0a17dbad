"""Accelerators that can be emulated by name: ResNet-50 training rates and where each was published.

These were measured by others on other machines. Beside the rate, an emulated device may cost the training process what
a real one does: CPU time for launching each step, and a copy of each batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from pipetune.errors import UsageError, did_you_mean
from pipetune.records.sweep import AcceleratorSpec
from pipetune.units import format_rate, parse_duration

#: CPU time of launching one training step of ResNet-50 in eager PyTorch (s): torch 2.14's own CPU time for 932 launches
#: without a device to wait for (tests/fake_cuda, batch 1, bf16, a core of an AMD EPYC).
_LAUNCH_S = 0.011
#: What a copy from page-locked memory reaches of its bus (bytes/s): three quarters of PCIe x16's rate in one direction
#: (NVIDIA's data sheets: V100 generation 3, A100 generation 4, H100 generation 5).
_PCIE_3, _PCIE_4, _PCIE_5 = (0.75 * rate for rate in (16e9, 32e9, 64e9))


@dataclass(frozen=True, slots=True)
class NamedAccelerator:
    """A published training rate (samples/s, one device, ResNet-50, 224 px), and the bus that such a device has."""

    name: str
    rate_samples_per_s: float
    source: str
    copy_bytes_per_s: float


_NVIDIA = "NVIDIA DeepLearningExamples, PyTorch ResNet50 v1.5 README, training performance (container 21.03)"
_DLIO = "DLIO benchmark, configs/workload resnet50 (batch size / computation time), used by MLPerf Storage"

NAMED: dict[str, NamedAccelerator] = {
    accelerator.name: accelerator
    for accelerator in (
        NamedAccelerator("v100-fp32", 367, f"{_NVIDIA}, 1 x V100 16GB, FP32", _PCIE_3),
        NamedAccelerator("v100", 1200, f"{_NVIDIA}, 1 x V100 16GB, mixed precision", _PCIE_3),
        NamedAccelerator("a100-tf32", 938, f"{_NVIDIA}, 1 x A100 80GB, TF32", _PCIE_4),
        NamedAccelerator("a100", 2470, f"{_NVIDIA}, 1 x A100 80GB, mixed precision", _PCIE_4),
        NamedAccelerator("a100-mlperf", 920, f"{_DLIO}, A100", _PCIE_4),
        NamedAccelerator("h100-mlperf", 1786, f"{_DLIO}, H100", _PCIE_5),
    )
}

#: The accelerator that ``emulated`` alone means, as does ``auto`` without a CUDA device.
DEFAULT_EMULATED = "v100"
_HOST_COSTS = ("launch", "copy", "scatter", "augment")
_EXAMPLE = "write e.g. emulated:a100?launch=15ms&copy=12&scatter=0.02 (CPU time, GB/s, share)"


def emulated_spec(text: str) -> AcceleratorSpec:
    """``''``, a name of :data:`NAMED`, its beginning, or a rate in samples/s -> the spec of an emulated accelerator.

    What a step costs the host may follow: ``a100?launch=15ms&copy=12&scatter=0.02``: CPU time of launching it, GB/s of
    the copy to the device, and relative standard deviation of the rate between processes. ``augment=20000`` is the rate
    at which it augments images (samples/s), without which only their loader does. A device of :data:`NAMED` has a
    launch and a copy unless they are set to 0, one that is given by its rate has neither.

    Raises:
        UsageError: neither a name nor a finite number above zero; or something else follows.
    """
    text, _, query = text.partition("?")
    text = text or DEFAULT_EMULATED
    # A beginning that only one name has: h100.
    beginning = [name for name in NAMED if name.startswith(text.lower())]
    named = NAMED.get(text.lower()) or (NAMED[beginning[0]] if len(beginning) == 1 else None)
    if named is not None:
        rate, source, name = named.rate_samples_per_s, named.source, named.name
    else:
        try:
            rate = float(text)
        except ValueError:
            hint = did_you_mean(text, NAMED, prefix="emulated:", otherwise=_choices())
            raise UsageError(f"unknown emulated accelerator {text!r}", hint=hint) from None
        if not (rate > 0 and math.isfinite(rate)):
            raise UsageError(f"an emulated accelerator needs a rate above zero, not {text!r}", hint=_choices())
        source, name = None, format_rate(rate)
    host = {"launch_s": 0.0, "copy_bytes_per_s": None, "scatter": 0.0}
    if named is not None:
        host |= {"launch_s": _LAUNCH_S, "copy_bytes_per_s": named.copy_bytes_per_s}
    return AcceleratorSpec(
        kind="emulated", name=f"EMULATED {name}", rate_samples_per_s=rate, source=source, **(host | _host_costs(query))
    )


def _host_costs(query: str) -> dict[str, Any]:
    """Fields of the spec for what follows ``?``."""
    fields: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        try:
            if key == "launch":
                fields["launch_s"] = 0.0 if value == "0" else parse_duration(value)
            elif key == "copy":
                fields["copy_bytes_per_s"] = 1e9 * _between(float(value), 0.0, 1e4) or None
            elif key == "scatter":
                fields["scatter"] = _between(float(value), 0.0, 0.5)
            elif key == "augment":
                fields["augment_samples_per_s"] = _between(float(value), 1.0, 1e9)
            else:
                hint = did_you_mean(key, _HOST_COSTS, otherwise=_EXAMPLE)
                raise UsageError(f"an emulated accelerator has no {key!r}", hint=hint)
        except ValueError:
            raise UsageError(f"{key}={value} of an emulated accelerator cannot be used", hint=_EXAMPLE) from None
    return fields


def _between(value: float, low: float, high: float) -> float:
    if not low <= value <= high:
        raise ValueError(value)
    return value


def _choices() -> str:
    return f"write a rate such as emulated:1000, or a name: {', '.join(f'emulated:{name}' for name in NAMED)}"
