from __future__ import annotations

import pytest

from pipetune.accelerator.named import DEFAULT_EMULATED, NAMED, emulated_spec
from pipetune.accelerator.parse_device import parse_device
from pipetune.errors import UsageError
from pipetune.records.sweep import AcceleratorSpec


def test_every_named_rate_says_where_it_was_published_and_that_it_is_emulated() -> None:
    for name, accelerator in NAMED.items():
        spec = emulated_spec(name)
        assert spec.rate_samples_per_s == accelerator.rate_samples_per_s > 0
        assert spec.source
        assert spec.name == f"EMULATED {name}"


def test_a_rate_and_nothing_at_all() -> None:
    assert emulated_spec("1500").rate_samples_per_s == 1500.0
    assert emulated_spec("1500").source is None
    assert emulated_spec("") == emulated_spec(DEFAULT_EMULATED)


@pytest.mark.parametrize("text", ["0", "-3", "nan", "inf"])
def test_a_rate_must_be_above_zero(text: str) -> None:
    with pytest.raises(UsageError, match="above zero"):
        emulated_spec(text)


def test_the_nearest_name_is_suggested() -> None:
    with pytest.raises(UsageError, match="did you mean emulated:a100"):
        emulated_spec("a1000x")


def test_devices() -> None:
    assert parse_device("auto", 0).kind == "emulated"
    assert parse_device("auto", 2).device_index == 0
    assert parse_device("cuda:1", 2).device_index == 1
    assert parse_device("xpu:1", 2) == AcceleratorSpec(kind="xpu", name="XPU 1", device_index=1)
    assert parse_device("cpu", 0).kind == "cpu"
    assert parse_device("emulated:v100", 4).rate_samples_per_s == 1200


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cuda", "sees 0 CUDA devices"),
        ("xpu", "sees 0 XPUs"),
        ("cuda:1", "sees 0"),
        ("tpu", "unknown device"),
        ("cpu:3", "unknown device"),
    ],
)
def test_devices_that_are_not_there(text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        parse_device(text, 0)


def test_a_named_device_costs_the_host_something_and_a_rate_does_not() -> None:
    a100, rate = emulated_spec("a100"), emulated_spec("1500")
    assert a100.launch_s > 0
    assert a100.copy_bytes_per_s == pytest.approx(24e9)
    assert (rate.launch_s, rate.copy_bytes_per_s, rate.scatter) == (0.0, None, 0.0)


def test_what_a_step_costs_the_host_may_be_set() -> None:
    spec = emulated_spec("1500?launch=15ms&copy=12&scatter=0.02")
    assert (spec.launch_s, spec.copy_bytes_per_s, spec.scatter) == (0.015, 12e9, 0.02)
    bare = emulated_spec("a100?launch=0&copy=0")
    assert (bare.launch_s, bare.copy_bytes_per_s) == (0.0, None)
    assert parse_device("emulated:a100?launch=0", 0).launch_s == 0.0


@pytest.mark.parametrize("query", ["lunch=3ms", "copy=-1", "copy=fast", "scatter=2", "launch=soon", "launch="])
def test_a_cost_that_cannot_be_used(query: str) -> None:
    with pytest.raises(UsageError):
        emulated_spec(f"a100?{query}")


def test_how_fast_it_augments_is_stated_or_not_known() -> None:
    assert emulated_spec("a100").augment_samples_per_s is None
    assert emulated_spec("500?augment=20000").augment_samples_per_s == 20_000
    for wrong in ("0", "many"):
        with pytest.raises(UsageError, match=f"augment={wrong}"):
            emulated_spec(f"500?augment={wrong}")
