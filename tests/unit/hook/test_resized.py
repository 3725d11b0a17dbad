from __future__ import annotations

from collections import UserDict, namedtuple
from typing import Any

import pytest

from pipetune.hook import resized as module
from pipetune.hook.kept import KeptBatches
from pipetune.hook.resized import CannotResizeError, HostMemoryError, resized
from pipetune.usercode.batches import size_of

np = pytest.importorskip("numpy", reason="batches are arrays, too")
torch = pytest.importorskip("torch", reason="batches are tensors")

Pair = namedtuple("Pair", ["image", "label"])


class Encoding(UserDict):
    """As tokenizers of transformers make."""


def images(count: int = 3, edge: int = 2) -> Any:
    return torch.arange(count * 3 * edge * edge).reshape(count, 3, edge, edge)


def labels(count: int = 3) -> Any:
    return torch.arange(count)


def targets(*boxes: int) -> list[dict[str, Any]]:
    return [{"boxes": torch.zeros(count, 4), "labels": torch.full((count,), count)} for count in boxes]


def test_samples_come_again_in_their_order_with_their_labels() -> None:
    """In order, because some collate functions sort by length."""
    made = resized([images(), labels()], 7)
    assert isinstance(made, list)
    assert made[1].tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert torch.equal(made[0][6], images()[2])


def test_fewer_are_the_first_ones() -> None:
    assert resized((images(), labels()), 2)[1].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("batch", "labels_of"),
    [
        ((images(), labels()), lambda made: made[1]),
        (Pair(images(), labels()), lambda made: made.label),
        ({"x": images(), "y": labels()}, lambda made: made["y"]),
        (Encoding({"pixel_values": images(), "labels": labels()}), lambda made: made["labels"]),
        ([images(), {"class": labels(), "name": ["a", "b", "c"]}], lambda made: made[1]["class"]),
        ([images(2), labels(2)], lambda made: made[1]),  # as many fields as samples
        ([images(3), labels(3), torch.zeros(3, 5)], lambda made: made[1]),
        ((np.zeros((3, 4, 4, 3)), np.arange(3)), lambda made: made[1]),
    ],
)
def test_batches_of_any_form(batch: Any, labels_of: Any) -> None:
    made = resized(batch, 8)
    own = size_of(batch)
    assert type(made) is type(batch)
    assert size_of(made) == 8
    assert [int(value) for value in labels_of(made)] == sorted(number % own for number in range(8))


def test_detection_keeps_each_target_with_its_image() -> None:
    batch = (list(images(3)), targets(3, 1, 5))  # one has as many boxes as the batch has samples
    made = resized(batch, 5)
    assert len(made[0]) == len(made[1]) == 5
    assert [len(target["boxes"]) for target in made[1]] == [3, 3, 1, 1, 5]


@pytest.mark.parametrize("of_images", [list(images(2)), images(2)], ids=["list", "stacked"])
def test_images_and_targets_of_two_samples_are_not_two_samples(of_images: Any) -> None:
    """As many fields as samples: torchvision's reference scripts for detection have batches of two."""
    made = resized((of_images, targets(3, 1)), 5)
    assert len(made[0]) == len(made[1]) == 5
    assert [len(target["boxes"]) for target in made[1]] == [3, 3, 3, 1, 1]
    made = resized([(image, target) for image, target in zip(images(2), targets(3, 1), strict=True)], 5)
    assert [len(target["boxes"]) for _, target in made] == [3, 3, 3, 1, 1]


@pytest.mark.parametrize("batch", [
    [images(1), labels(1)], {"x": images(1), "y": labels(1), "name": ["a"]}, (images(1),),
    ([images(1)[0]], targets(5)),
], ids=["list", "dictionary", "images", "detection"])  # fmt: skip
def test_batches_of_one_sample(batch: Any) -> None:
    assert size_of(batch) == 1
    made = resized(batch, 6)
    assert size_of(made) == 6
    assert type(made) is type(batch)
    assert all(len(field) == 6 for field in (made.values() if isinstance(made, dict) else made))


def test_samples_that_were_not_collated() -> None:
    batch = [(image, target) for image, target in zip(images(3), targets(3, 1, 5), strict=True)]
    made = resized(batch, 4)
    assert [len(target["boxes"]) for _, target in made] == [3, 3, 1, 5]


def test_what_belongs_to_the_whole_batch_stays() -> None:
    made = resized({"x": images(), "scale": torch.tensor(2.0), "epoch": 4, "mean": torch.zeros(1, 7)}, 6)
    assert (made["scale"], made["epoch"], made["mean"].shape) == (torch.tensor(2.0), 4, (1, 7))


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (7, "the samples of a int cannot be told apart"),
        ([torch.zeros(0, 3, 2, 2)], "without samples"),
        ({"images": images(1), "boxes": torch.zeros(9, 6)}, "batches of one sample have an array of 9 rows"),
        ([torch.zeros(3, device="meta"), labels()], "on meta"),
        ({"images": images(), "boxes": torch.zeros(9, 6)}, "batches of 3 samples have an array of 9 rows"),
    ],
)
def test_what_cannot_be_resized_is_said(batch: Any, message: str) -> None:
    with pytest.raises(CannotResizeError, match=message):
        resized(batch, 8)


def test_the_hosts_memory_is_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "available_bytes", lambda: 10_000)
    resized([images(), labels()], 6)
    with pytest.raises(HostMemoryError, match="a quarter of the host's available memory"):
        resized([images(), labels()], 600)
    with pytest.raises(HostMemoryError):
        resized([images(), labels()], 6, ranks=50)
    monkeypatch.setattr(module, "available_bytes", lambda: None)
    assert size_of(resized([images(), labels()], 600)) == 600


def test_available_memory_is_read() -> None:
    assert (module.available_bytes() or 0) > 1 << 20


def test_kept_batches_are_handed_out_in_another_size_and_as_they_were() -> None:
    kept = KeptBatches(most=2)
    for number in range(2):
        kept.keep([images() + number, labels()])
    kept.resize(6)
    assert {size_of(kept.hand_out()) for _ in range(3)} == {6}
    kept.resize(None)
    assert [int(kept.hand_out()[0][0, 0, 0, 0]) for _ in range(2)] in ([0, 1], [1, 0])


def test_of_large_batches_fewer_are_made() -> None:
    kept = KeptBatches(most=8, most_bytes=4 * 6 * 3 * 2 * 2 * 8)
    kept.keep([images(), labels()])
    kept.resize(6)
    found = {id(kept.hand_out()[0]) for _ in range(20)}
    assert 1 < len(found) < 8
    kept.resize(600)
    assert len({id(kept.hand_out()[0]) for _ in range(3)}) == 1


def test_a_batch_that_cannot_be_resized_leaves_them_as_they_are() -> None:
    kept = KeptBatches()
    kept.keep([images(), torch.zeros(9, 6)])
    with pytest.raises(CannotResizeError):
        kept.resize(8)
    assert size_of(kept.hand_out()) == 3


def test_the_last_batch_of_an_epoch_is_left_out() -> None:
    kept = KeptBatches()
    kept.keep([images(1), labels(1)])
    kept.keep([images(3), labels(3)])
    kept.resize(6, own=3)
    assert {size_of(kept.hand_out()) for _ in range(9)} == {6}


def test_two_views_of_each_image_are_not_taken_for_twice_as_many_samples() -> None:
    kept = KeptBatches()
    kept.keep([images(6), labels(3)])
    with pytest.raises(CannotResizeError, match="a loader with batch size 3 have 6 rows"):
        kept.resize(6, own=3)


def test_an_error_half_way_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptBatches()
    kept.keep([images(), labels()])
    kept.keep([images(), labels(2)])
    with pytest.raises(CannotResizeError):
        kept.resize(6)
    assert {size_of(kept.hand_out()) for _ in range(3)} == {3}


def test_batches_that_take_the_place_of_kept_ones_come_in_the_size_that_was_asked_for() -> None:
    kept = KeptBatches()
    kept.keep([images(), labels()])
    kept.resize(5, 3)
    kept.replace([[images(), labels() + 10]])
    assert kept.hand_out()[1].tolist() == [10, 10, 11, 11, 12]
    with pytest.raises(CannotResizeError):
        kept.replace([[images(2), labels(2)]])
    assert kept.hand_out()[1].tolist() == [10, 10, 11, 11, 12], "they stay"
    kept.replace([])
    assert len(kept) == 1
