from __future__ import annotations

from collections.abc import Callable

import pytest

from pipetune.records.batch_size import BatchPoint
from pipetune.scaling.batch_search import BatchSearch, Measured
from tests.unit.scaling.test_batch_size import GIB, World


def search() -> tuple[BatchSearch, list[int], list[KeyboardInterrupt]]:
    sizes: list[int] = []
    stops: list[KeyboardInterrupt] = []
    return BatchSearch(on_point=lambda point: None, on_next=sizes.append, on_stop=stops.append), sizes, stops


def world() -> World:
    return World(1 * GIB, 42e6, 40 * GIB, 0.05, 3000.0)


def measured(size: int) -> Measured:
    return Measured(point=world().measure(size))


def failed(size: int) -> Measured:
    return Measured(point=BatchPoint(batch_size=size, samples_per_s=None, peak_bytes=None, failure="no driver"))


def test_what_was_measured_of_another_kind_does_not_count() -> None:
    found, sizes, _ = search()
    found.run(measured, (1 * GIB, 42e6), 0.92 * 40 * GIB)
    first = len(sizes)
    found.run(measured, (1 * GIB, 42e6), 0.92 * 40 * GIB, since=first)
    assert sizes[first:] == sizes[:first]
    assert [point.batch_size for point in found.points] == sizes


def test_given_sizes_come_first_each_once() -> None:
    found, sizes, _ = search()
    found.run_sizes(measured, (8, 8, 16))
    assert sizes == [8, 16]
    found.run(measured, (1 * GIB, 42e6), 0.92 * 40 * GIB)
    assert sizes[2] == 224, "a quarter of what the line allows"
    assert len(sizes) <= 6


def test_a_failure_ends_the_given_sizes() -> None:
    found, sizes, _ = search()
    found.run_sizes(failed, (8, 16))
    assert sizes == [8]
    assert found.failed == "no driver"


def test_asked_to_stop_before_anything_was_measured() -> None:
    def stop(size: int) -> Measured:
        raise KeyboardInterrupt

    found, _, stops = search()
    with pytest.raises(KeyboardInterrupt):
        found.run_sizes(stop, (8, 16))
    assert stops == []


def test_asked_to_stop_later_what_is_known_stays_and_nothing_more_is_measured() -> None:
    def stop(size: int) -> Measured:
        if size == 16:
            raise KeyboardInterrupt
        return measured(size)

    found, sizes, stops = search()
    found.run_sizes(stop, (8, 16))
    found.run(measured, (1 * GIB, 42e6), 0.92 * 40 * GIB)
    assert sizes == [8, 16]
    assert [point.batch_size for point in found.points] == [8]
    assert len(stops) == 1


def out_of_memory(size: int) -> Measured:
    point = BatchPoint(batch_size=size, samples_per_s=None, peak_bytes=None, failure="x", out_of_memory=True)
    return Measured(point=point)


@pytest.mark.parametrize(("again", "sizes_that_fit"), [(measured, [8, 16]), (out_of_memory, [8]), (failed, [8, 16])])
def test_a_size_that_is_measured_once_more(again: Callable[[int], Measured], sizes_that_fit: list[int]) -> None:
    """Where it fails for another reason than memory, what was measured before stays."""
    found, sizes, _ = search()
    found.run_sizes(measured, (8, 16))
    found.confirm(16, again)
    assert sizes == [8, 16, 16]
    assert [point.batch_size for point in found.points if point.samples_per_s] == sizes_that_fit
    assert len(found.points) == 2
    assert found.failed is None
    assert found.notes == (("batches of 16 were not measured once more: no driver",) if again is failed else ())


def test_asked_to_stop_meanwhile_nothing_more_is_measured() -> None:
    found, sizes, stops = search()
    found.run_sizes(measured, (8, 16))
    found.stop(None)
    assert found.stopped is None
    found.stop(KeyboardInterrupt())
    found.stop(KeyboardInterrupt())
    found.confirm(16, measured)
    assert sizes == [8, 16]
    assert len(stops) == 1


def test_asked_to_stop_while_it_is_measured_once_more() -> None:
    def stop(size: int) -> Measured:
        raise KeyboardInterrupt

    found, _, stops = search()
    found.run_sizes(measured, (8, 16))
    found.confirm(16, stop)
    assert [point.batch_size for point in found.points] == [8, 16]
    assert len(stops) == 1
