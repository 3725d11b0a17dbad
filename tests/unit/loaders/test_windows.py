from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from pipetune.decoders.crop import draw_crop
from pipetune.loaders.order import EndlessOrder, RankOrder
from pipetune.loaders.windows import MIN_SAMPLES, WindowedOrder

SIZES = np.array([(400, 300), (80, 1000), (333, 333), (64, 64), (500, 375)], np.int32)


@pytest.mark.parametrize("batch_size", [1, 3, 5, MIN_SAMPLES + 1])
def test_each_batch_has_the_windows_of_its_samples(batch_size: int) -> None:
    order = EndlessOrder(len(SIZES), batch_size, seed=4)
    count = 2 + MIN_SAMPLES // batch_size
    ours = list(itertools.islice(WindowedOrder(order, SIZES, 9), count))
    assert [indices for indices, _ in ours] == list(itertools.islice(order, count))
    for indices, crops in ours:
        sizes = [SIZES[index % len(SIZES)].tolist() for index in indices]
        each = [draw_crop(9, index, height, width) for index, (width, height) in zip(indices, sizes, strict=True)]
        assert crops.tolist() == [list(crop) for crop in each]


def test_an_order_that_ends_ends_with_its_last_batch_and_can_be_iterated_again() -> None:
    order = RankOrder(len(SIZES), 2, 0, rank=0, world_size=1, drop_last=False)
    windowed = WindowedOrder(order, SIZES, 0)
    for epoch in (0, 3):
        order.begin_at(epoch, 0, epochs=1)
        assert [len(crops) for _, crops in windowed] == [2, 2, 1]


def test_a_mistake_of_the_order_is_raised_where_it_is_iterated() -> None:
    def broken() -> Iterator[list[int]]:
        yield [0]
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        list(WindowedOrder(broken(), SIZES, 0))
