"""How many ranks are measured, from options and devices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.accelerator.named import emulated_spec
from pipetune.errors import UsageError
from pipetune.records.sweep import AcceleratorSpec
from pipetune.sweeping.options import AUTO_RANKS, SweepOptions
from pipetune.sweeping.ranks import count_ranks, device_and_ranks, parse_ranks

EMULATED = emulated_spec("v100")
FIRST_GPU = AcceleratorSpec(kind="cuda", name="CUDA device 0", device_index=0)
SECOND_GPU = replace(FIRST_GPU, device_index=1)


def options(**chosen: Any) -> SweepOptions:
    return SweepOptions(**{"dataset": "photos", **chosen})


@pytest.mark.parametrize(("text", "ranks"), [("8", 8), (" 1 ", 1), ("auto", AUTO_RANKS)])
def test_numbers_of_ranks(text: str, ranks: int) -> None:
    assert parse_ranks(text) == ranks


@pytest.mark.parametrize("text", ["0", "-1", "two", "", "1.5"])
def test_what_is_no_number_of_ranks(text: str) -> None:
    with pytest.raises(UsageError, match="is no number of ranks") as caught:
        parse_ranks(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("device", "ranks", "name"), [("8xa100", 8, "emulated:a100"), (" 2x1200", 2, "emulated:1200"),
                                  ("4xemulated:v100?copy=0", 4, "emulated:v100?copy=0")],
)  # fmt: skip
def test_a_device_for_several_ranks(device: str, ranks: int, name: str) -> None:
    for given in (1, AUTO_RANKS, ranks):
        assert device_and_ranks(device, given) == (name, ranks)
    with pytest.raises(UsageError, match=f"--ranks is {ranks + 1}"):
        device_and_ranks(device, ranks + 1)


@pytest.mark.parametrize("device", ["cuda:1", "emulated:a100", "auto", "xpu", "0xa100"])
def test_other_devices_are_left_alone(device: str) -> None:
    assert device_and_ranks(device, 3) == (device, 3)


@pytest.mark.parametrize(
    ("chosen", "accelerator", "devices", "ranks"),
    [
        ({}, FIRST_GPU, 8, 1),
        ({"ranks": AUTO_RANKS}, FIRST_GPU, 8, 8),
        ({"ranks": AUTO_RANKS}, SECOND_GPU, 8, 1),
        ({"ranks": AUTO_RANKS}, EMULATED, 1, 1),
        ({"ranks": 4}, FIRST_GPU, 8, 4),
        ({"ranks": 4}, EMULATED, 1, 4),
        ({"ranks": 2, "device": "cpu"}, AcceleratorSpec(kind="cpu", name="CPU"), 1, 2),
    ],
)
def test_ranks_by_devices(chosen: dict[str, Any], accelerator: AcceleratorSpec, devices: int, ranks: int) -> None:
    assert count_ranks(options(**chosen), accelerator, devices) == ranks


@pytest.mark.parametrize(
    ("chosen", "accelerator", "expected"),
    [
        ({"ranks": 9}, FIRST_GPU, "--ranks 9 needs as many devices, this process sees 8 devices"),
        ({"ranks": 2, "device": "cuda:1"}, SECOND_GPU, "--device cuda:1 is one device"),
        ({"ranks": 2, "target_metric": "nvml"}, FIRST_GPU, "--target-metric nvml is of one GPU"),
    ],
)
def test_what_does_not_go_together(chosen: dict[str, Any], accelerator: AcceleratorSpec, expected: str) -> None:
    with pytest.raises(UsageError, match=expected) as caught:
        count_ranks(options(**chosen), accelerator, 8)
    assert caught.value.hint
