from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator

import pytest

from pipetune.hook.stream import IndexStream


class Sampler:
    """Another order in each epoch; counts its epochs."""

    def __init__(self, count: int = 6) -> None:
        self.count, self.epochs, self.seed = count, 0, None

    def __iter__(self) -> Iterator[int]:
        self.epochs += 1
        yield from (100 * self.epochs + number for number in range(self.count))

    def __len__(self) -> int:
        return self.count

    def set_epoch(self, epoch: int) -> None:
        self.seed = epoch


def rest(stream: IndexStream) -> list[int]:
    """What is left of the epoch; ``list`` would begin another one."""
    found = []
    with contextlib.suppress(StopIteration):
        while True:
            found.append(next(stream))
    return found


def test_it_is_the_samplers_epoch() -> None:
    stream = IndexStream(Sampler())
    assert list(iter(stream)) == [100, 101, 102, 103, 104, 105]
    assert list(iter(stream)) == []
    stream.begin()
    assert list(iter(stream)) == [200, 201, 202, 203, 204, 205]
    assert len(stream) == 6


def test_to_iterate_twice_before_the_first_index_loses_no_epoch() -> None:
    sampler = Sampler()
    stream = IndexStream(sampler)
    iter(stream)
    iter(stream)
    assert next(stream) == 100
    assert sampler.epochs == 1


def test_what_was_handed_out_and_not_delivered_comes_first_and_in_its_order() -> None:
    stream = IndexStream(Sampler())
    iter(stream)
    assert [next(stream) for _ in range(4)] == [100, 101, 102, 103]
    stream.delivered()
    stream.take_back()
    assert rest(stream) == [101, 102, 103, 104, 105]


def test_a_loader_that_ends_before_it_has_taken_all_back_again_keeps_the_order() -> None:
    stream = IndexStream(Sampler())
    taken = [next(stream) for _ in range(5)]
    stream.take_back()  # nothing of it was delivered
    again = [next(stream) for _ in range(2)]
    stream.delivered()
    stream.take_back()
    assert taken == [100, 101, 102, 103, 104]
    assert again == [100, 101]
    assert rest(stream) == [101, 102, 103, 104, 105]


def test_another_loader_goes_on_where_it_was_and_an_epoch_ends_with_its_last_index() -> None:
    stream = IndexStream(Sampler(2))
    got = [next(stream)]
    iter(stream)  # another loader begins
    assert got + rest(stream) == [100, 101]
    assert rest(stream) == []


def test_an_epoch_that_begins_forgets_what_the_one_before_had_out() -> None:
    stream = IndexStream(Sampler(3))
    iter(stream)
    next(stream)
    next(stream)
    stream.leave_out()
    stream.begin()
    stream.take_back()
    assert list(stream) == [200, 201, 202]


def test_indices_that_no_loader_has_taken_are_left_out_first() -> None:
    stream = IndexStream(Sampler(4))
    taken = [next(stream)]
    assert [stream.leave_out(), stream.leave_out()] == [True, True]
    assert stream.has_more()
    assert taken + rest(stream) == [100, 103]


def test_where_a_loader_has_taken_all_indices_it_delivers_fewer_of_them() -> None:
    stream = IndexStream(Sampler(3))
    for _ in range(3):
        next(stream)
    assert [stream.leave_out() for _ in range(2)] == [True, True]
    assert stream.leaves_out
    assert stream.has_more()
    stream.delivered()
    assert not stream.has_more()
    assert not stream.leave_out()


def test_where_it_ends_before_it_has_delivered_them_they_are_not_handed_out_again() -> None:
    stream = IndexStream(Sampler(3))
    for _ in range(3):
        next(stream)
    stream.leave_out()
    stream.take_back()
    assert rest(stream) == [100, 101]


def test_to_look_whether_there_are_more_takes_none() -> None:
    stream = IndexStream(Sampler(2))
    assert stream.has_more()
    assert rest(stream) == [100, 101]
    for _ in range(2):
        stream.delivered()
    assert not stream.has_more()


def test_while_paused_no_index_is_handed_out_and_none_is_lost() -> None:
    stream = IndexStream(Sampler(3))
    iter(stream)
    assert next(stream) == 100
    stream.allowed = 0
    with pytest.raises(StopIteration):
        next(stream)
    stream.drained()
    assert rest(stream) == [101, 102]


def test_more_deliveries_than_indices_are_no_error() -> None:
    stream = IndexStream(Sampler(1))
    stream.delivered()
    iter(stream)
    assert list(stream) == [100]


def test_methods_of_the_sampler_are_reached_through_it() -> None:
    sampler = Sampler()
    IndexStream(sampler).set_epoch(7)
    assert sampler.seed == 7
    assert not hasattr(IndexStream(sampler), "sampler")


def test_it_can_be_copied_as_loaders_are() -> None:
    """Without an end: a copy asks for attributes before it has any."""
    assert list(iter(copy.copy(IndexStream(Sampler(2))))) == [100, 101]
