"""Labels of packs: those of the source, or a line says that they are others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.datasets.open_dataset import open_dataset
from pipetune.packing.layout import count_empty_classes
from pipetune.packing.prepare import PackObserver
from pipetune.packing.run import is_complete_pack
from pipetune.packing.run import pack as pack_all
from pipetune.records.pack import PackRun
from pipetune.report.line import texts
from pipetune.report.pack_text import plan_lines, result_lines
from tests.bad_images import jpeg
from tests.unit.datasets.test_shards import write_shard
from tests.unit.packing.packs import CROP, options

pytestmark = pytest.mark.usefixtures("jpeg_roi")


def packed(source: Path, name: str) -> tuple[PackRun, list[int], str]:
    """The run, the labels that a training has then, and what is said."""
    chosen = replace(options(source, format=name), out=source.parent / name)
    (run,) = pack_all(chosen, PackObserver(), cores=1.0, crop=CROP)
    images = open_dataset(str(chosen.out), seed=0, limit_bytes=1 << 30, workers=1).images
    assert run.result is not None
    said = texts([*plan_lines("", run.plan, CROP), *result_lines("", run.plan, run.result)])
    return run, [image.label for image in images], " ".join(said)


@pytest.mark.parametrize("name", ["webdataset", "recordio", "tfrecord", "mds"])
def test_labels_with_gaps_stay_in_shards(name: str, tmp_path: Path) -> None:
    source = write_shard(
        tmp_path / "one.tar", {"1.jpg": jpeg(), "1.cls": b"1", "2.jpg": jpeg(quality=70), "2.cls": b"5"}
    )
    run, labels, said = packed(source, name)
    assert labels == [1, 5]
    assert is_complete_pack(run)
    assert "ImageFolder" not in said


def test_a_folder_of_classes_says_that_it_has_no_gaps(tmp_path: Path) -> None:
    source = write_shard(
        tmp_path / "one.tar", {"1.jpg": jpeg(), "1.cls": b"1", "2.jpg": jpeg(quality=70), "2.cls": b"5"}
    )
    run, labels, said = packed(source, "folder")
    assert labels == [0, 1]
    assert run.plan.empty_classes == 4
    assert not is_complete_pack(run)
    assert said.count("4 classes before the last have no image: ImageFolder counts folders") == 1


def test_a_class_of_which_no_image_could_be_packed_is_told_afterwards(tmp_path: Path) -> None:
    for name, data in (("a", jpeg()), ("b", jpeg()[:-200]), ("c", jpeg())):
        (tmp_path / "source" / name).mkdir(parents=True)
        (tmp_path / "source" / name / "1.jpg").write_bytes(data)
    run, labels, said = packed(tmp_path / "source", "folder")
    assert labels == [0, 1]
    assert run.result is not None
    assert (run.plan.empty_classes, run.result.empty_classes) == (0, 1)
    assert "1 class before the last has no image" in said


@pytest.mark.parametrize(("labels", "count"), [([], 0), ([0, 1], 0), ([0, 2, 2], 1), ([5], 5)])
def test_gaps_are_counted(labels: list[int], count: int) -> None:
    assert count_empty_classes(labels) == count
