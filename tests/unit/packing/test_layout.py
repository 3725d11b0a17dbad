from __future__ import annotations

from itertools import chain

import pytest

from pipetune.errors import UsageError
from pipetune.packing.layout import mark_of, new_labels, positions_of, shards_for, split

RANGES = [range(0, 10), range(10, 14), range(14, 34)]


def test_classes_with_few_images_get_no_label_and_the_others_move_up() -> None:
    assert new_labels([10, 4, 20], 5) == [0, None, 1]
    assert new_labels([10, 0, 20], 1) == [0, 1, 2], "nothing was asked for"
    with pytest.raises(UsageError, match="the largest has 20"):
        new_labels([10, 4, 20], 21)


def test_a_seed_gives_one_order_of_all_images() -> None:
    (one,) = split(RANGES, [0, None, 1], share=0, per_class=0, seed=3)
    (again,) = split(RANGES, [0, None, 1], share=0, per_class=0, seed=3)
    (other,) = split(RANGES, [0, None, 1], share=0, per_class=0, seed=4)
    assert one.order == again.order != other.order
    assert sorted(one.order) == [*range(0, 10), *range(14, 34)]
    assert list(one.order) != sorted(one.order)


def test_without_a_seed_the_order_is_that_of_the_folder() -> None:
    (one,) = split(RANGES, [0, 1, 2], share=0, per_class=0, seed=None)
    assert list(one.order) == list(range(34))


@pytest.mark.parametrize(
    ("share", "per_class", "counts"), [(0.2, 0, [2, 1, 4]), (0.01, 0, [1, 1, 1]), (0, 3, [3, 3, 3])]
)
def test_validation_takes_its_part_of_each_class(share: float, per_class: int, counts: list[int]) -> None:
    train, validation = split(RANGES, [0, 1, 2], share=share, per_class=per_class, seed=0)
    assert (train.name, validation.name) == ("train", "validation")
    assert sorted(chain(train.order, validation.order)) == list(range(34))
    assert [sum(number in numbers for number in validation.order) for numbers in RANGES] == counts


def test_a_class_keeps_an_image_to_train_with() -> None:
    with pytest.raises(UsageError, match="takes 4 of a class with 4 images"):
        split(RANGES, [0, 1, 2], share=0, per_class=4, seed=0)


@pytest.mark.parametrize(("count", "shards"), [(10, 3), (12, 4), (5, 5), (1, 1)])
def test_shards_have_all_images_once_and_as_many_each(count: int, shards: int) -> None:
    places = [positions_of(shard, shards, count) for shard in range(shards)]
    assert list(chain(*places)) == list(range(count))
    assert max(map(len, places)) - min(map(len, places)) <= 1


def test_as_many_shards_as_their_size_asks_for() -> None:
    assert shards_for(1000, 50, 300) == 4
    assert shards_for(1000, 2, 300) == 2
    assert shards_for(0, 5, 300) == 1


def test_a_mark_changes_with_any_part() -> None:
    assert mark_of(["a", 1]) == mark_of(["a", 1])
    assert len({mark_of(["a", 1]), mark_of(["a", 2]), mark_of(["a1"]), mark_of(["a", "1"])}) == 4
    assert mark_of(["\udcff"])
