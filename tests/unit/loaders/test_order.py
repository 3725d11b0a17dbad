from __future__ import annotations

import itertools

import pytest

from pipetune.loaders.order import EndlessOrder, EpochByEpoch, RankOrder


def test_every_epoch_is_a_new_shuffle_of_all_images() -> None:
    sample_indices = list(itertools.chain.from_iterable(itertools.islice(iter(EndlessOrder(10, 4, seed=1)), 15)))
    epochs = [sample_indices[start : start + 10] for start in range(0, 60, 10)]
    for number, epoch in enumerate(epochs):
        assert sorted(epoch) == [number * 10 + image for image in range(10)]
    assert len({tuple(sample_index % 10 for sample_index in epoch) for epoch in epochs}) == 6


def test_the_seed_decides_and_iterating_again_starts_anew() -> None:
    order = EndlessOrder(50, 8, seed=3)
    first = [next(iter(order)) for _ in range(2)]
    assert first[0] == first[1]
    assert next(iter(EndlessOrder(50, 8, seed=4))) != first[0]


def test_a_batch_may_be_larger_than_the_set() -> None:
    batch = next(iter(EndlessOrder(3, 8, seed=0)))
    assert [sample_index // 3 for sample_index in batch] == [0, 0, 0, 1, 1, 1, 2, 2]


def test_limited_epochs_leave_out_the_incomplete_last_batch() -> None:
    assert len(list(EndlessOrder(10, 4, seed=0, epochs=1))) == 2


def rank_order(n: int = 10, size: int = 2, *, seed: int | None = 3, rank: int = 0, world: int = 1, drop: bool = True):
    return RankOrder(n, size, seed, rank=rank, world_size=world, drop_last=drop)


def epochs_of(order: RankOrder, count: int) -> list[list[list[int]]]:
    batches = list(itertools.islice(iter(order), count * order.batches))
    return [batches[start : start + order.batches] for start in range(0, len(batches), order.batches)]


def test_every_index_once_per_epoch_over_all_ranks() -> None:
    ranks = [epochs_of(rank_order(12, 2, rank=rank, world=3), 2) for rank in range(3)]
    for epoch in range(2):
        sample_indices = [sample_index for batches in ranks for batch in batches[epoch] for sample_index in batch]
        assert sorted(sample_indices) == list(range(12 * epoch, 12 * (epoch + 1)))
    assert [t % 12 for b in ranks[0][0] for t in b] != [t % 12 for b in ranks[0][1] for t in b]


@pytest.mark.parametrize(("n", "world", "drop"), [(10, 3, True), (10, 3, False), (2, 5, False), (7, 1, False)])
def test_ranks_have_what_torchs_distributed_sampler_gives_them(n: int, world: int, drop: bool) -> None:
    distributed = pytest.importorskip("torch.utils.data.distributed", reason="the order is compared with torch")
    for rank in range(world):
        theirs = distributed.DistributedSampler(range(n), world, rank, shuffle=False, drop_last=drop)
        ours = rank_order(n, 1, seed=None, rank=rank, world=world, drop=drop)
        assert [sample_index for batch in epochs_of(ours, 1)[0] for sample_index in batch] == list(theirs)


def test_the_last_batch_is_dropped_or_smaller_on_all_ranks_alike() -> None:
    assert [rank_order(11, 2, rank=rank, world=2).batches for rank in (0, 1)] == [2, 2]
    kept = [rank_order(11, 4, rank=rank, world=2, drop=False) for rank in (0, 1)]
    assert [[len(batch) for batch in epochs_of(order, 1)[0]] for order in kept] == [[4, 2], [4, 2]]


def test_it_goes_on_from_any_place() -> None:
    whole = epochs_of(rank_order(10, 2), 3)
    order = rank_order(10, 2)
    order.begin_at(1, 3)
    assert list(itertools.islice(iter(order), 4)) == [*whole[1][3:], *whole[2][:2]]
    order.begin_at(2, 1, epochs=1)
    assert list(order) == whole[2][1:]


def test_one_epoch_each_time_for_workers_that_end_with_it() -> None:
    order = EpochByEpoch(5, 2, seed=1)
    endless = EndlessOrder(5, 2, seed=1)
    assert list(order) == [endless.epoch(0)[:2], endless.epoch(0)[2:4]]
    assert list(order) == [endless.epoch(1)[:2], endless.epoch(1)[2:4]]
