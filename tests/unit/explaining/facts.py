"""Measurements of parts as a loader with known costs would give them."""

from __future__ import annotations

from pipetune.records.explanation import ACCELERATOR, COLD, FETCH, HAND_OVER, STORAGE, WITH_ACCELERATOR
from pipetune.records.sweep import Measurement, Outcome
from tests.unit.samples import outcome, sample


def measurement(rate: float, cpu: float | None, **changes: object) -> Measurement:
    """One with this rate (samples/s) and CPU time per 1000 samples (s)."""
    return sample(
        Measurement, samples_per_s=rate, ci95=(0.9 * rate, 1.1 * rate), cpu_s_per_1000_samples=cpu,
        cores_used=None if cpu is None else cpu * rate / 1000, **changes,
    )  # fmt: skip


def measured(part: str, rate: float, cpu: float | None, block: int = 1) -> Outcome:
    return outcome(2, part=part, block=block, measurement=measurement(rate, cpu))


#: Of a loader with two workers on four cores, whose workers are the limit: 1 ms per image.
def workers_bound(**changes: float) -> list[Outcome]:
    rates = {ACCELERATOR: 5000.0, HAND_OVER: 50_000.0, "collate": 20_000.0, "transform": 6000.0, "decode": 2050.0,
             FETCH: 2000.0, WITH_ACCELERATOR: 2000.0, COLD: 1990.0, STORAGE: 9000.0} | changes  # fmt: skip
    costs = {ACCELERATOR: 0.001, HAND_OVER: 0.02, "collate": 0.1, "transform": 0.33, "decode": 0.97, FETCH: 1.0,
             WITH_ACCELERATOR: 1.01, COLD: 1.05, STORAGE: 0.05}  # fmt: skip
    return [measured(name, rate, costs[name]) for name, rate in rates.items()]
