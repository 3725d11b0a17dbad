"""Whether a sweep names augmenting on the device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.records.sweep import AcceleratorSpec, Outcome
from pipetune.report.sweep_text import conclusion_lines
from pipetune.sweeping.movable_recipe import find_movable_recipe
from tests.fakes import outcome
from tests.unit.sweeping.test_result import CEILING, DEFAULT, sweep_result

GPU = AcceleratorSpec(name="GPU", kind="cuda", device_index=0)
EMULATED = AcceleratorSpec(name="1,000/s", kind="emulated", rate_samples_per_s=1000.0)
IN_WORKERS = outcome("opencv", 2, rate=600.0)


def on_device(rate: float, workers: int = 2) -> Outcome:
    moved = outcome("opencv", workers, rate=rate)
    return replace(moved, candidate=replace(moved.candidate, transforms_on="device"))


@pytest.mark.parametrize(
    ("recipe", "accelerator", "others", "name"),
    [
        ("randaugment", GPU, (), "RandAugment"),
        ("mixup", GPU, (on_device(700.0),), "MixUp"),
        ("randaugment", replace(EMULATED, augment_samples_per_s=9000.0), (), "RandAugment"),
        # Measured, and slower; with another number of workers, but not beside its like.
        ("randaugment", GPU, (on_device(500.0),), None),
        ("randaugment", GPU, (on_device(500.0, workers=1),), "RandAugment"),
        ("randaugment", EMULATED, (), None),
        ("randaugment", AcceleratorSpec(name="CPU", kind="cpu"), (), None),
        ("basic", GPU, (), None),
    ],
)
def test_it_is_named_where_it_is_possible_and_was_not_slower(
    recipe: str, accelerator: AcceleratorSpec, others: tuple[Outcome, ...], name: str | None
) -> None:
    assert find_movable_recipe(IN_WORKERS.candidate, recipe, accelerator, [IN_WORKERS, *others]) == name


def test_nothing_is_moved_that_the_device_does_already() -> None:
    assert find_movable_recipe(on_device(1.0).candidate, "randaugment", GPU, [IN_WORKERS]) is None


def test_a_sweep_that_misses_its_target_names_it() -> None:
    best = outcome("opencv", 2, rate=600.0, cpu_busy_pct=98.0, cpu_s_per_1000_samples=3.3, cores_used=1.98)
    plain = sweep_result(CEILING, DEFAULT, best)
    result = replace(
        plain, accelerator=GPU, workload={**plain.workload, "augment": "randaugment"}, recommended=best, complete=True
    )
    text = "\n".join(line.text for line in conclusion_lines(result))
    assert "RandAugment on the device (transforms_on=device), or decoding on the GPU" in text
    assert "transforms_on" not in "\n".join(line.text for line in conclusion_lines(replace(plain, complete=True)))
    diagnosis = result.diagnose(best)
    assert diagnosis is not None
    assert "RandAugment on the device" in str(diagnosis.advice)
