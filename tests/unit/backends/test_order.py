from __future__ import annotations

import itertools

from pipetune.backends.order import EndlessOrder


def test_every_epoch_is_a_new_shuffle_of_all_images() -> None:
    tickets = list(itertools.chain.from_iterable(itertools.islice(iter(EndlessOrder(10, 4, seed=1)), 15)))
    epochs = [tickets[start : start + 10] for start in range(0, 60, 10)]
    for number, epoch in enumerate(epochs):
        assert sorted(epoch) == [number * 10 + image for image in range(10)]
    assert len({tuple(ticket % 10 for ticket in epoch) for epoch in epochs}) == 6


def test_the_seed_decides_and_iterating_again_starts_anew() -> None:
    order = EndlessOrder(50, 8, seed=3)
    first = [next(iter(order)) for _ in range(2)]
    assert first[0] == first[1]
    assert next(iter(EndlessOrder(50, 8, seed=4))) != first[0]


def test_a_batch_may_be_larger_than_the_set() -> None:
    batch = next(iter(EndlessOrder(3, 8, seed=0)))
    assert [ticket // 3 for ticket in batch] == [0, 0, 0, 1, 1, 1, 2, 2]


def test_limited_epochs_leave_out_the_incomplete_last_batch() -> None:
    assert len(list(EndlessOrder(10, 4, seed=0, epochs=1))) == 2
