from __future__ import annotations

import pytest

from pipetune.accelerator.named import DEFAULT_EMULATED, NAMED, emulated_spec
from pipetune.accelerator.parse_device import parse_device
from pipetune.errors import UsageError


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
    assert parse_device("cpu", 0).kind == "cpu"
    assert parse_device("emulated:v100", 4).rate_samples_per_s == 1200


@pytest.mark.parametrize(
    ("text", "expected"),
    [("cuda", "sees 0 CUDA devices"), ("cuda:1", "sees 0"), ("tpu", "unknown device"), ("cpu:3", "unknown device")],
)
def test_devices_that_are_not_there(text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        parse_device(text, 0)
