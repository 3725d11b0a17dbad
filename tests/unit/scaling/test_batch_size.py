from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pipetune.records.batch_size import BatchPoint
from pipetune.scaling.batch_size import (
    MOST_FAILURES,
    MOST_PROCESSES,
    NEAR,
    knee_of,
    largest_of,
    largest_on,
    line_through,
    memory_line,
    next_batch,
    rounded,
)

GIB = 2.0**30


class World:
    """A device with a memory, and a model on it."""

    def __init__(
        self, fixed: float, each: float, total: float, launch_s: float, rate: float, noise: float = 0.0
    ) -> None:
        self.fixed, self.each, self.total, self.launch_s, self.rate = fixed, each, total, launch_s, rate
        self._chance, self._noise = random.Random(0), noise
        self.limit: float | None = None
        """Torch fails beyond it, and reserves up to a quarter more than it needs."""

    def rate_of(self, size: int) -> float:
        return size / (self.launch_s + size / self.rate)

    def measure(self, size: int) -> BatchPoint:
        peak = self.fixed + self.each * size
        if peak > (self.total if self.limit is None else self.limit):
            return BatchPoint(batch_size=size, samples_per_s=None, peak_bytes=None, failure="x", out_of_memory=True)
        rate = self.rate_of(size) * (1 + self._noise * self._chance.uniform(-1, 1))
        if self.limit is None:
            return BatchPoint(batch_size=size, samples_per_s=rate, peak_bytes=round(peak))
        reserved = min(self.limit, peak * self._chance.uniform(1.0, 1.25))
        return BatchPoint(batch_size=size, samples_per_s=rate, peak_bytes=round(reserved), allocated_bytes=round(peak))

    def search(self, off: float = 1.0, share: float = 0.92) -> list[BatchPoint]:
        """All that is measured, where fake tensors predict memory that is off by a factor."""
        points: list[BatchPoint] = []
        while (size := next_batch(points, (off * self.fixed, off * self.each), share * self.total)) is not None:
            points.append(self.measure(size))
            assert len(points) < 20
        return points

    def by_bisection(self, share: float = 0.92) -> int:
        low, high = 1, 1 << 17
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fixed + self.each * middle <= share * self.total else (low, middle)
        return low


WORLDS: dict[str, Callable[[], World]] = {
    "a large GPU": lambda: World(1.2 * GIB, 82e6, 80 * GIB, 0.030, 2900.0),
    "a small GPU": lambda: World(0.9 * GIB, 82e6, 11.4 * GIB, 0.02, 60.0),
    "launching takes long": lambda: World(1 * GIB, 42e6, 40 * GIB, 0.2, 3000.0),
    "launching takes nothing": lambda: World(1 * GIB, 42e6, 40 * GIB, 0.0, 3000.0),
    "large samples": lambda: World(2 * GIB, 2 * GIB, 24 * GIB, 0.1, 5.0),
    "small samples": lambda: World(0.1 * GIB, 1e6, 16 * GIB, 0.01, 50_000.0),
}


@pytest.mark.parametrize("noise", [0.0, 0.005])
@pytest.mark.parametrize("off", [0.8, 0.9, 1.0, 1.15])
@pytest.mark.parametrize("name", WORLDS)
def test_the_largest_and_the_knee_are_found_in_few_processes(name: str, off: float, noise: float) -> None:
    world = WORLDS[name]()
    world._noise = noise
    points = world.search(off)
    limit = 0.92 * world.total
    assert len(points) <= MOST_PROCESSES
    assert sum(point.out_of_memory for point in points) <= MOST_FAILURES
    largest, truth = largest_of(points, limit), world.by_bisection()
    assert largest is not None
    assert largest <= truth
    assert truth - largest <= max(8, 0.03 * truth) if truth >= 16 else largest == truth
    knee = knee_of(points, limit)
    assert knee is not None
    best = max(world.rate_of(size) for size in range(1, truth + 1))
    assert world.rate_of(knee) >= (NEAR - 2 * noise - 0.01) * best
    smallest = next(size for size in range(1, truth + 1) if world.rate_of(size) >= NEAR * best)
    assert knee <= max(8, 2.2 * smallest), f"{knee}, where {smallest} are as fast"


@pytest.mark.parametrize("off", [0.8, 0.9, 1.0, 1.15])
@pytest.mark.parametrize("name", WORLDS)
def test_memory_that_is_reserved_and_not_needed_hides_nothing(name: str, off: float) -> None:
    world = WORLDS[name]()
    world.limit = limit = 0.92 * world.total
    points = world.search(off)
    assert len(points) <= MOST_PROCESSES
    assert sum(point.out_of_memory for point in points) <= MOST_FAILURES
    largest, truth = largest_of(points, limit), world.by_bisection()
    assert largest is not None
    assert truth - largest <= max(8, 0.04 * truth) if truth >= 16 else truth - largest <= 1


def test_memory_that_is_no_line_ends_the_search_after_a_second_failure() -> None:
    class Steep(World):
        def measure(self, size: int) -> BatchPoint:
            if size > 500:
                return BatchPoint(batch_size=size, samples_per_s=None, peak_bytes=None, failure="x", out_of_memory=True)
            return super().measure(size)

    points = Steep(1 * GIB, 42e6, 40 * GIB, 0.05, 3000.0).search()
    assert sum(point.out_of_memory for point in points) == MOST_FAILURES + 1
    assert points[-1].out_of_memory
    largest = largest_of(points, 0.92 * 40 * GIB)
    assert largest is not None
    assert 0.9 * 500 <= largest <= 500


@pytest.mark.parametrize("off", [0.15, 0.3, 0.45])
def test_fake_tensors_that_are_far_too_low_cost_one_failure(off: float) -> None:
    """A quarter or a half of what they allow does not fit."""
    world = WORLDS["launching takes long"]()
    points = world.search(off)
    assert sum(point.out_of_memory for point in points) <= MOST_FAILURES
    largest, truth = largest_of(points, 0.92 * world.total), world.by_bisection()
    assert largest is not None
    assert 0.85 * truth <= largest <= truth


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5])
def test_models_of_which_a_few_samples_fit(most: int) -> None:
    world = World(1 * GIB, 2 * GIB, (1 + 2 * most + 0.5) / 0.92 * GIB, 0.1, 5.0)
    points = world.search()
    assert largest_of(points, 0.92 * world.total) == world.by_bisection() == most


def test_another_failure_ends_it() -> None:
    broken = BatchPoint(batch_size=8, samples_per_s=None, peak_bytes=None, failure="no driver")
    assert next_batch([broken], (GIB, 1e7), 10 * GIB) is None


def test_lines() -> None:
    assert line_through([(8, 100.0), (32, 340.0)]) == pytest.approx((20, 10))
    assert line_through([(4, 8.0)]) == (0.0, 2.0)
    with pytest.raises(ValueError, match="no point"):
        line_through([])
    assert largest_on((20, 10), 1000) == 96
    assert largest_on((20, 10), 25) == 0
    assert memory_line([]) is None
    assert [rounded(size) for size in (0.5, 3.9, 15.5, 16.0, 23.9, 1001.0)] == [0, 3, 15, 16, 16, 1000]
    assert largest_of([], 1e9) is None
    assert knee_of([], 1e9) is None
