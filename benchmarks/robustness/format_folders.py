"""Folders of images, as torchvision's ``ImageFolder`` reads them, and layouts that are none. See ``formats.py``."""

from __future__ import annotations

from pathlib import Path

from benchmarks.robustness.format_parts import case, labelled, photo, tar

_NAMES = ("ant", "bee")


def fill(folder: Path, names: tuple[str, ...] = _NAMES, ending: str = "jpg") -> Path:
    """Three images of each class."""
    for label, name in enumerate(names):
        for number in range(3):
            write(folder / name / f"{number}.{ending}", photo(label, number))
    return folder


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@case(9, format="folder")
def classes_in_the_order_of_their_names(folder: Path) -> Path:
    return fill(folder, ("1", "10", "2"))


@case(6, format="folder")
def classes_that_differ_in_case(folder: Path) -> Path:
    return fill(folder, ("Ant", "ant"))


@case(6, format="folder")
def capital_endings(folder: Path) -> Path:
    return fill(folder, ending="JPEG")


@case(6, r"2 files were skipped.*\.jfif images are not read.*\.jpe images are not read", format="folder")
def unusual_endings(folder: Path) -> Path:
    write(folder / "ant" / "8.jfif", photo(0, 8))
    write(folder / "ant" / "9.jpe", photo(0, 9))
    return fill(folder)


@case(7, "'.ipynb_checkpoints' is taken for a class, as by ImageFolder", format="folder")
def a_hidden_class(folder: Path) -> Path:
    write(folder / ".ipynb_checkpoints" / "0-checkpoint.jpg", photo(0, 9))
    for label, name in ((1, "ant"), (2, "bee")):
        for number in range(3):
            write(folder / name / f"{number}.jpg", photo(label, number))
    return folder


@case(
    12,
    "all are class 0; all lie in 'set': name that folder",
    format="folder",
    labelled=False,
)
def splits_one_folder_deeper(folder: Path) -> Path:
    fill(folder / "set" / "train")
    fill(folder / "set" / "val")
    return folder


@case(6, "all are class 0; all lie in 'PetImages': name that folder", format="folder", labelled=False)
def classes_one_folder_deeper(folder: Path) -> Path:
    fill(folder / "PetImages")
    return folder


@case(8, "all are class 0; all lie in 'images': name that folder", format="folder", labelled=False)
def yolo_with_images_and_labels(folder: Path) -> Path:
    for number in range(8):
        split = ("train", "val")[number % 2]
        write(folder / "images" / split / f"{number}.jpg", photo(0, number))
        write(folder / "labels" / split / f"{number}.txt", b"0 0.5 0.5 0.1 0.1")
    return folder


@case(4, "the folder 'train' is used.*4 images, no labels found", format="folder", labelled=False)
def roboflow_with_images_in_each_split(folder: Path) -> Path:
    for number in range(8):
        split = ("train", "valid")[number % 2]
        write(folder / split / "images" / f"{number}.jpg", photo(0, number))
        write(folder / split / "labels" / f"{number}.txt", b"0 0.5 0.5 0.1 0.1")
    return folder


@case(6, "the folder 'train' is used", format="folder")
def splits_beside_a_picture(folder: Path) -> Path:
    write(folder / "logo.png", photo(2))
    fill(folder / "val")
    fill(folder / "train")
    return folder


for _layout, _folders in (
    ("splits beside a folder of plots", ("plots", "train", "val")),
    ("splits under other names", ("train_images", "val_images")),
    ("voc", ("JPEGImages", "SegmentationClass")),
    ("images and masks", ("images", "masks")),
    ("cityscapes", ("gtFine", "leftImg8bit")),
    ("folds", ("fold_0", "fold_1")),
):

    def _doubtful(folder: Path, names: tuple[str, ...] = _folders) -> Path:
        return fill(folder, names)

    _doubtful.__name__ = f"doubtful classes: {_layout}"
    case(3 * len(_folders), "are taken for classes, as by ImageFolder", format="folder")(_doubtful)


@case(1, r"3 shards lie beside the images \(.tar\)", format="folder", labelled=False)
def a_picture_beside_shards(folder: Path) -> Path:
    for number in range(3):
        tar(folder / f"{number}.tar", labelled())
    write(folder / "preview.png", photo(0, 0, "PNG"))
    return folder


@case(6, r"1 shard lies beside the images \(.tar\)", format="folder")
def a_shard_beside_class_folders(folder: Path) -> Path:
    tar(folder / "more.tar", labelled())
    return fill(folder)
