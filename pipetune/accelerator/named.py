"""Accelerators that can be emulated by name: ResNet-50 training rates and where each was published.

These were measured by others on other machines. They set the rate of an emulated device and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pipetune.errors import UsageError, did_you_mean
from pipetune.records.sweep import AcceleratorSpec
from pipetune.units import format_rate


@dataclass(frozen=True, slots=True)
class NamedAccelerator:
    """A published training rate (samples/s, one device, ResNet-50, 224 px)."""

    name: str
    rate_samples_per_s: float
    source: str


_NVIDIA = "NVIDIA DeepLearningExamples, PyTorch ResNet50 v1.5 README, training performance (container 21.03)"
_DLIO = "DLIO benchmark, configs/workload resnet50 (batch size / computation time), used by MLPerf Storage"

NAMED: dict[str, NamedAccelerator] = {
    accelerator.name: accelerator
    for accelerator in (
        NamedAccelerator("v100-fp32", 367, f"{_NVIDIA}, 1 x V100 16GB, FP32"),
        NamedAccelerator("v100", 1200, f"{_NVIDIA}, 1 x V100 16GB, mixed precision"),
        NamedAccelerator("a100-tf32", 938, f"{_NVIDIA}, 1 x A100 80GB, TF32"),
        NamedAccelerator("a100", 2470, f"{_NVIDIA}, 1 x A100 80GB, mixed precision"),
        NamedAccelerator("a100-mlperf", 920, f"{_DLIO}, A100"),
        NamedAccelerator("h100-mlperf", 1786, f"{_DLIO}, H100"),
    )
}

#: The accelerator that ``emulated`` alone means, as does ``auto`` without a CUDA device.
DEFAULT_EMULATED = "v100"


def emulated_spec(text: str) -> AcceleratorSpec:
    """``''``, a name of :data:`NAMED` or a rate in samples/s -> the spec of an emulated accelerator.

    Raises:
        UsageError: neither a name nor a finite number above zero.
    """
    text = text or DEFAULT_EMULATED
    named = NAMED.get(text.lower())
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
    return AcceleratorSpec(kind="emulated", name=f"EMULATED {name}", rate_samples_per_s=rate, source=source)


def _choices() -> str:
    return f"write a rate such as emulated:1000, or a name: {', '.join(f'emulated:{name}' for name in NAMED)}"
