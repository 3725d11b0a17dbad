"""What is said of a data set: its account, and its labels."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pipetune.datasets.image_notes import describe_audit, describe_missing_labels, list_image_notes
from pipetune.datasets.index import read_index, write_index
from pipetune.packing.sources import FolderSources
from pipetune.records.audit import FILES, FOLDER_NAMES, MEMBERS, NO_LABELS, OWN_LABELS, RECORDS, SAMPLES, Audit
from tests.bad_images import jpeg
from tests.unit.datasets.test_shards import open_, write_shard


def audit(**changes: Any) -> Audit:
    values: dict[str, Any] = {"unit": MEMBERS, "members": 8, "used": 8, "rejected": 0, "label_source": OWN_LABELS}
    return Audit(**{**values, **changes})


def test_the_account_in_one_line() -> None:
    one = audit(members=36, rejected=4, other={"txt": 8, "json": 16}, labels=9, matched=8, unmatched=1, damaged=1)
    assert describe_audit(one) == (
        "36 members: 8 images used, 4 rejected, 24 other (16 json, 8 txt); 9 labels: 8 matched, 1 unmatched; "
        "1 shard is damaged or missing"
    )
    assert describe_audit(audit(members=1, used=1)) == "1 member: 1 image used, 0 rejected, 0 other"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"used": 24, "other": {"json": 24}}, "24 images, no labels found: all are class 0; KEY.json is not read"),
        ({"used": 1}, "1 image, no labels found: all are class 0"),
        (
            {"unit": SAMPLES, "unread_columns": ("id",)},
            "no column of integers is called label, class, cls, y or target",
        ),
        ({"unit": FILES, "other": {"json": 1}}, "8 images, no labels found: all are class 0"),
        ({"unit": RECORDS, "unread_columns": ("labels",)}, "image/class/label, label or class (labels)"),
    ],
)
def test_missing_labels_are_called_so(changes: dict[str, Any], text: str) -> None:
    assert text in describe_missing_labels(audit(label_source=NO_LABELS, **changes))


@pytest.mark.parametrize("changes", [{"rejected": 1}, {"unmatched": 1}, {"damaged": 1}, {"other": {"json": 1}}])
def test_a_pack_is_complete_where_nothing_is_left_out(changes: dict[str, Any]) -> None:
    assert audit().is_complete
    assert not audit(**changes).is_complete


def test_files_beside_the_images_of_a_folder_are_not_missed() -> None:
    assert audit(unit=FILES, other={"txt": 3}).is_complete


def test_a_flat_folder_has_no_labels_and_class_folders_have(tmp_path: Path) -> None:
    for name in ("flat/1.jpg", "classes/a/1.jpg", "classes/b/1.jpg", "classes/b/notes.txt", "classes/b/x.gif"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(jpeg())
    assert list_image_notes(open_(tmp_path / "flat")) == ["1 image, no labels found: all are class 0"]
    found = open_(tmp_path / "classes")
    assert found.audit == Audit(
        unit=FILES, members=4, used=2, rejected=1, other={"txt": 1}, label_source=FOLDER_NAMES
    )  # fmt: skip
    (note,) = list_image_notes(found)
    assert "1 file was skipped" in note


def test_an_index_keeps_the_account(tmp_path: Path) -> None:
    found = open_(write_shard(tmp_path / "a.tar", {"1.jpg": jpeg(), "1.seg.png": jpeg(), "1.cls": b"0", "1.txt": b""}))
    write_index(str(tmp_path / "index.json"), found)
    assert read_index(str(tmp_path / "index.json")).audit == found.audit
    assert found.audit is not None
    assert (found.audit.members, found.audit.rejected, dict(found.audit.other)) == (3, 1, {"txt": 1})


def test_a_subset_is_told_by_what_can_be_used(tmp_path: Path) -> None:
    members = {f"{n}.{e}": jpeg() if e == "jpg" else b"0" for n in range(4) for e in ("jpg", "cls")}
    found = open_(write_shard(tmp_path / "a.tar", {**members, "9.jpg": jpeg()}), limit_images=3)
    assert found.usable_count == 4
    assert list_image_notes(found)[0] == "measured on 3 of 4 images, of shards in random order"


@pytest.mark.parametrize(
    ("names", "note"),
    [
        (("set/ant/1.jpg", "set/bee/1.jpg"), "all are class 0; all lie in 'set': name that folder, if"),
        (("a/set/train/ant/1.jpg", "a/set/val/1.jpg"), "all are class 0; all lie in 'a/set': name that folder, if"),
        (("images/1.jpg", "images/2.jpg"), "2 images, no labels found: all are class 0$"),
        (("images/1.jpg", "masks/1.png"), "'images', 'masks' are taken for classes, as by ImageFolder"),
        (("plots/1.png", "train/a/1.jpg", "val/a/1.jpg"), "'train', 'val' are taken for classes, as by ImageFolder"),
        ((".cache/1.jpg", "a/1.jpg", "b/1.jpg"), "'.cache' is taken for a class, as by ImageFolder"),
        (("1.png", "0.tar", "1.tar"), r"2 shards lie beside the images \(.tar\), and only the images are used"),
        (("a/1.jpg", "b/1.jpg", "x.tfrecord-00000-of-00001"), "1 shard lies beside the images"),
    ],
)
def test_folders_that_are_probably_no_classes_are_told(names: tuple[str, ...], note: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(jpeg())
    found = open_(tmp_path)
    assert re.search(note, "; ".join(list_image_notes(found)))
    sources = FolderSources(str(tmp_path), lambda stage, done, total: None)
    assert sources.audit == found.audit


def test_other_names_are_not_remarked(tmp_path: Path) -> None:
    for name in ("ant/1.jpg", "bee/deep/1.jpg", "bee/2.jpg", "bee/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(jpeg())
    assert list_image_notes(open_(tmp_path)) == []
