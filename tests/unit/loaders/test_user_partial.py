"""A user's own DataLoader with stages left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchvision", reason="its data set is torchvision's")

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset
from torchvision import datasets, transforms

from pipetune.errors import UsageError
from pipetune.loaders.user_partial import partial_of
from pipetune.records.explanation import COLLATE, DECODE, FETCH, HAND_OVER, STAGES, TRANSFORM
from tests.photo_set import PHOTOS

TRANSFORMS = transforms.Compose([transforms.Resize((16, 16)), transforms.ToTensor()])


def folder(**changes: Any) -> Any:
    return datasets.ImageFolder(str(PHOTOS), transform=TRANSFORMS, **changes)


def loader(dataset: Any = None, **changes: Any) -> Any:
    return DataLoader(folder() if dataset is None else dataset, batch_size=2, num_workers=0, **changes)


def first(stage: str) -> tuple[str, ...]:
    return STAGES[STAGES.index(stage) :]


def images(made: Any) -> list[Any]:
    return [batch[0] for batch in made]


def shuffled_back(batches: list[Any]) -> set[tuple[float, ...]]:
    return {tuple(image.flatten().tolist()) for batch in batches for image in batch}


@pytest.mark.parametrize("stage", [FETCH, DECODE, TRANSFORM, COLLATE])
def test_its_samples_are_some_of_its_own(stage: str) -> None:
    whole = shuffled_back(images(loader()))
    part = images(partial_of(loader(), first(stage), 0))
    assert len(part) == len(loader())
    assert shuffled_back(part) <= whole


def test_handing_over_makes_batches_of_the_same_kind() -> None:
    expected = next(iter(loader()))
    got = next(iter(partial_of(loader(), (HAND_OVER,), 0)))
    assert [one.shape for one in got] == [one.shape for one in expected]
    assert [one.dtype for one in got] == [one.dtype for one in expected]


def test_a_worker_hands_over_shared_memory() -> None:
    made = partial_of(DataLoader(folder(), batch_size=2, num_workers=1), (HAND_OVER,), 0)
    batch = next(iter(made))
    assert batch[0].is_shared()


class Counting:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, path: str) -> Any:
        self.asked.append(path)
        return datasets.folder.pil_loader(path)


def test_held_images_are_decoded_before_it_is_iterated() -> None:
    counting = Counting()
    made = partial_of(loader(folder(loader=counting)), first(TRANSFORM), 0)
    before = len(counting.asked)
    assert before > 0
    list(made)
    assert len(counting.asked) == before


def test_a_function_of_its_own_that_reads_and_decodes_is_not_divided() -> None:
    with pytest.raises(UsageError, match="reads and decodes a file in one go"):
        partial_of(loader(folder(loader=Counting())), first(DECODE), 0)


class Cached(datasets.ImageFolder):
    def __getitem__(self, index: int) -> Any:
        return torch.zeros(3, 4, 4), index


@pytest.mark.parametrize("stage", [TRANSFORM, DECODE])
def test_a_folder_that_does_not_ask_its_loader_is_not_divided(stage: str) -> None:
    with pytest.raises(UsageError, match="Cached has a loader and does not use it"):
        partial_of(loader(Cached(str(PHOTOS))), first(stage), 0)


def test_paths_may_be_objects() -> None:
    dataset = folder()
    dataset.samples = [(Path(path), label) for path, label in dataset.samples]
    assert len(list(partial_of(loader(dataset), first(DECODE), 0))) == len(loader())


class OpensFiles(Dataset[Any]):
    """Opens something when it is first asked for a sample, as data sets of archives do."""

    def __init__(self) -> None:
        self.opened = False

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        self.opened = True
        return torch.full((3, 4, 4), float(index))


@pytest.mark.parametrize("stages", [STAGES, first(COLLATE), (HAND_OVER,)])
def test_the_data_set_is_not_asked_in_this_process(stages: tuple[str, ...]) -> None:
    dataset = OpensFiles()
    partial_of(loader(dataset), stages, 0)
    assert not dataset.opened


class ManyAtOnce(OpensFiles):
    def __getitems__(self, indices: list[int]) -> Any:
        return [(torch.zeros(3), index) for index in indices]


def test_a_data_set_that_gives_several_samples_is_asked_for_several() -> None:
    made = partial_of(loader(ManyAtOnce()), STAGES, 0)
    assert sorted(index for _, numbers in made for index in numbers.tolist()) == sorted(range(6))


def test_what_a_worker_asks_of_its_data_set_is_there() -> None:
    made = partial_of(loader(OpensFiles()), STAGES, 0)
    assert made.dataset.opened is False


def test_workers_stay_whatever_the_loader_says() -> None:
    own = DataLoader(folder(), batch_size=2, num_workers=1, persistent_workers=False)
    assert partial_of(own, (HAND_OVER,), 0).persistent_workers
    assert not partial_of(loader(), (HAND_OVER,), 0).persistent_workers


def test_part_of_a_folder_is_divided_as_the_folder_is() -> None:
    some = Subset(folder(), [3, 1])
    whole = shuffled_back(images(loader(some)))
    assert shuffled_back(images(partial_of(loader(some), first(DECODE), 0))) <= whole


class Tensors(Dataset[Any]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return {"image": torch.full((3, 4, 4), float(index)), "name": f"n{index}"}


def test_another_data_set_is_divided_where_its_samples_are_ready() -> None:
    batch = next(iter(partial_of(loader(Tensors()), first(COLLATE), 0)))
    assert batch["image"].shape == (2, 3, 4, 4)
    empty = next(iter(partial_of(loader(Tensors()), (HAND_OVER,), 0)))
    assert empty["image"].shape == (2, 3, 4, 4)
    assert len(empty["name"]) == 2
    with pytest.raises(UsageError, match="Tensors reads, decodes and transforms in one go"):
        partial_of(loader(Tensors()), first(TRANSFORM), 0)


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield torch.zeros(3)


class KeepsItsIterator(DataLoader[Any]):
    """As timm's loaders for several epochs."""

    def __iter__(self) -> Any:
        yield from ()


@pytest.mark.parametrize(
    "made", [DataLoader(Endless()), DataLoader(Tensors(), batch_size=None), KeepsItsIterator(Tensors()), [1, 2]]
)
def test_a_loader_without_a_seam_is_taken_as_a_whole(made: Any) -> None:
    assert partial_of(made, STAGES, 0) is made
    with pytest.raises(UsageError, match="cannot be divided into stages"):
        partial_of(made, first(COLLATE), 0)


def test_the_users_loader_stays_as_it_is() -> None:
    own = loader()
    before = dict(vars(own))
    partial_of(own, first(DECODE), 0)
    partial_of(own, (HAND_OVER,), 0)
    assert vars(own) == before
    assert own.dataset.loader is datasets.folder.default_loader
