from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from typing import Any

import pytest

from pipetune.hook.kept import KeptBatches, rebuilt, tensors_of
from tests.unit.hook.fake_tensor import Tensor

Pair = namedtuple("Pair", ["image", "label"])


class Encoding(UserDict):
    """As tokenizers of transformers make."""


class Awkward(UserDict):
    def __init__(self, one: int, other: int) -> None:
        super().__init__({"x": Tensor(one, other)})


def test_the_newest_are_kept_and_come_in_turn() -> None:
    kept = KeptBatches(most=2)
    for number in range(3):
        kept.keep([Tensor(number)])
    assert [kept.hand_out()[0].values for _ in range(5)] == [[1], [2], [1], [2], [1]]
    assert len(kept) == 2


def test_bytes_are_limited_but_one_batch_is_always_there() -> None:
    kept = KeptBatches(most=8, most_bytes=4 * 5)
    for number in range(3):
        kept.keep([Tensor(number, number)])
    assert [kept.hand_out()[0].values for _ in range(2)] == [[1, 1], [2, 2]]
    kept.keep([Tensor(*range(100))])
    assert len(kept) == 1


def test_what_the_loop_takes_out_of_a_batch_is_there_again() -> None:
    kept = KeptBatches()
    kept.keep({"image": Tensor(1), "more": [Tensor(2)]})
    first = kept.hand_out()
    first.pop("image")
    first["more"].clear()
    second = kept.hand_out()
    assert second["image"].values == [1]
    assert second["more"][0].values == [2]


def test_it_is_there_again_in_a_dictionary_of_another_class_too() -> None:
    """torch collates samples that are OrderedDicts into one."""
    kept = KeptBatches()
    kept.keep(OrderedDict(image=Tensor(1)))
    kept.hand_out().pop("image")
    again = kept.hand_out()
    assert type(again) is OrderedDict
    assert again["image"].values == [1]


def test_what_the_loop_gets_while_it_is_kept_is_another_container() -> None:
    kept = KeptBatches()
    given = kept.keep([Tensor(1), Tensor(2)])
    given.clear()
    assert [tensor.values for tensor in kept.hand_out()] == [[1], [2]]


def test_a_loop_that_leaves_batches_alone_gets_the_same_tensors() -> None:
    kept = KeptBatches()
    tensor = Tensor(1)
    kept.keep((tensor, 7))
    assert kept.hand_out()[0] is tensor
    assert kept.hand_out()[0] is tensor
    assert not kept.changed_in_place


def test_a_loop_that_changes_them_gets_copies_from_then_on() -> None:
    kept = KeptBatches()
    kept.keep([Tensor(3, pinned=True)])
    kept.hand_out()[0].mul_(2)
    second = kept.hand_out()[0]
    assert kept.changed_in_place
    second.mul_(2)
    third = kept.hand_out()[0]
    assert third.values == [6]  # changed once, before that was known
    assert third.is_pinned()


def test_a_tensor_that_all_batches_share_is_not_taken_for_one_that_changes() -> None:
    """A mask, say: it stays when the oldest batch goes."""
    mask = Tensor(0)
    kept = KeptBatches(most=1)
    kept.keep([Tensor(1), mask])
    kept.keep([Tensor(2), mask])
    kept.hand_out()
    assert not kept.changed_in_place


@pytest.mark.parametrize(
    "batch",
    [
        Tensor(1), [Tensor(1)], (Tensor(1), 2), {"a": {"b": Tensor(1)}}, Pair(Tensor(1), "x"), Encoding(x=Tensor(1)),
        [[Tensor(1)], (Tensor(2),)],
    ],
    ids=lambda batch: type(batch).__name__,
)  # fmt: skip
def test_containers_are_made_anew_and_of_the_same_kind(batch: Any) -> None:
    got = rebuilt(batch, lambda tensor: ("leaf", tensor.values))
    assert tensors_of(got) == []  # each was replaced
    if not isinstance(batch, Tensor):
        assert type(got) is type(batch)
        assert got is not batch


def test_a_container_that_cannot_be_made_anew_is_handed_out_as_it_is() -> None:
    batch = Awkward(1, 2)
    assert rebuilt(batch, lambda tensor: tensor) is batch
    assert rebuilt("text", lambda tensor: tensor) == "text"


def test_tensors_are_found_at_any_depth_and_in_order() -> None:
    found = tensors_of({"a": [Tensor(1), {"b": (Tensor(2), None)}], "c": "text", "d": Tensor(3)})
    assert [tensor.values for tensor in found] == [[1], [2], [3]]
