from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.datasets.index import ImageSet
from pipetune.datasets.open_dataset import open_dataset
from pipetune.datasets.splits import find_training_split
from pipetune.errors import UsageError
from tests.unit.datasets.test_folder import put


def opened(root: Path) -> ImageSet:
    return open_dataset(str(root), seed=0, limit_bytes=1 << 40, workers=1)


@pytest.mark.parametrize(
    ("training", "others"),
    [
        ("train", ("val",)), ("train", ("valid", "test")), ("Training", ("Validation", "Testing")), ("train", ()),
        ("train2017", ("test2017", "unlabeled2017", "val2017")), ("train_2014", ("val_2014",)),
    ],
)  # fmt: skip
def test_the_training_split_is_the_data_set(training: str, others: tuple[str, ...], tmp_path: Path) -> None:
    for name in (training, *others):
        put(tmp_path / name / "cat" / "1.jpg")
        put(tmp_path / name / "dog" / "2.jpg")
    put(tmp_path / "annotations" / "instances.json", b"{}")
    put(tmp_path / "labels.csv", b"")
    images = opened(tmp_path)
    assert images.root == str(tmp_path / training)
    assert images.classes == ("cat", "dog")
    assert images.audit is not None
    assert (images.audit.split, images.audit.other_splits) == (training, tuple(sorted(others)))


def test_beside_another_class_they_are_classes(tmp_path: Path) -> None:
    for name in ("bus", "train", "val"):
        put(tmp_path / name / "1.jpg")
    assert find_training_split(str(tmp_path)) is None
    assert opened(tmp_path).classes == ("bus", "train", "val")


def test_other_names_are_classes(tmp_path: Path) -> None:
    for name in ("trains", "valley", "contest", "train station"):
        put(tmp_path / name / "1.jpg")
    assert opened(tmp_path).classes == ("contest", "train station", "trains", "valley")


def test_splits_without_one_to_train_with_are_asked_about(tmp_path: Path) -> None:
    for name in ("val", "test"):
        put(tmp_path / name / "a" / "1.jpg")
    with pytest.raises(UsageError, match=r"holds splits and none to train with: 'test', 'val'") as caught:
        opened(tmp_path)
    assert caught.value.hint == f"name one of them: {tmp_path}/test"


def test_of_several_training_splits_one_is_to_be_named(tmp_path: Path) -> None:
    for name in ("train2014", "train2017", "val2017"):
        put(tmp_path / name / "1.jpg")
    with pytest.raises(UsageError, match=r"several training splits: 'train2014', 'train2017'"):
        opened(tmp_path)
    (tmp_path / "train2014" / "1.jpg").unlink()
    assert opened(tmp_path).root == str(tmp_path / "train2017")


def test_a_training_split_without_images_is_named(tmp_path: Path) -> None:
    put(tmp_path / "train" / "notes.txt", b"")
    put(tmp_path / "val" / "1.jpg")
    with pytest.raises(UsageError, match=r"no images in '.*/train'"):
        opened(tmp_path)


def test_folders_that_do_not_hold_images_are_no_splits(tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    put(tmp_path / "1.jpg")
    assert opened(tmp_path).classes == (tmp_path.name,)
