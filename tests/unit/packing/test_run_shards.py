"""Packs of shards: names that several have, names that lead elsewhere, damage."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from pipetune.datasets.open_dataset import open_dataset
from pipetune.packing.manifest import read_manifest
from pipetune.packing.prepare import PackObserver
from pipetune.packing.run import is_complete_pack
from pipetune.packing.run import pack as run_pack
from pipetune.report.pack_text import plan_lines
from tests.bad_images import jpeg
from tests.unit.packing.packs import options, pack, photographs

pytestmark = pytest.mark.usefixtures("jpeg_roi")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return photographs(tmp_path / "source")


def test_shards_can_be_packed_into_another_format(source: Path) -> None:
    pack(options(source))
    again = options(source.parent / "out", out=source.parent / "again", format="recordio")
    pack(again)
    chosen = options(again.out, out=source.parent / "third", format="folder")
    (result,) = pack(chosen)
    assert result.images == 24
    assert sorted(path.name for path in chosen.out.iterdir() if path.is_dir()) == ["class0", "class1", "class2"]
    assert json.loads((chosen.out / "classes.json").read_text()) == ["class0", "class1", "class2"]
    assert sorted(entry.label for entry in read_manifest(chosen.out)) == [0] * 8 + [1] * 8 + [2] * 8


def shards_of(folder: Path, shards: list[dict[str, tuple[bytes, int]]]) -> Path:
    """Tar files with images and labels of these names."""
    folder.mkdir()
    for number, members in enumerate(shards):
        with tarfile.open(folder / f"{number}.tar", "w") as tar:
            for name, (data, label) in members.items():
                for ending, content in (("jpg", data), ("cls", str(label).encode())):
                    info = tarfile.TarInfo(f"{name}.{ending}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
    return folder


@pytest.mark.parametrize("format_", ["webdataset", "folder", "mds"])
def test_names_that_several_shards_have_stay_apart(format_: str, tmp_path: Path) -> None:
    datas = [jpeg(quality=quality) for quality in range(50, 54)]
    source = shards_of(
        tmp_path / "shards", [{"1": (datas[0], 0), "2": (datas[1], 11)}, {"1": (datas[2], 11), "2": (datas[3], 2)}]
    )
    chosen = options(source, format=format_, out=tmp_path / "out", verify="all")
    (result,) = pack(chosen)
    assert result.images == 4
    found = open_dataset(str(chosen.out), seed=0, limit_bytes=1 << 30, workers=1)
    read = sorted(
        (one.label, Path(one.file).read_bytes()[one.start : one.start + one.size_bytes]) for one in found.images
    )
    labels = [0, 1, 2] if format_ == "folder" else [0, 2, 11]  # a folder has classes with images only
    assert read == sorted([(labels[0], datas[0]), (labels[2], datas[1]), (labels[2], datas[2]), (labels[1], datas[3])])


def test_names_in_shards_lead_nowhere_else(tmp_path: Path) -> None:
    source = shards_of(tmp_path / "shards", [{"../../evil": (jpeg(), 0), "/tmp/evil": (jpeg(), 0), "..": (jpeg(), 0)}])
    chosen = options(source, format="folder", out=tmp_path / "deep" / "out")
    pack(chosen)
    found = {path for path in tmp_path.rglob("*.jpg")}
    assert all(chosen.out in path.parents for path in found)
    assert not Path("/tmp/evil.jpg").exists()


def test_what_a_damaged_shard_hides_is_told(tmp_path: Path) -> None:
    source = shards_of(tmp_path / "shards", [{str(number): (jpeg(), number % 2) for number in range(6)}])
    shard = source / "0.tar"
    shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2])
    chosen = options(source, out=tmp_path / "out")
    (result,) = pack(chosen)
    assert result.complete
    assert result.unusable > 0
    assert json.loads((chosen.out / "rejected.jsonl").read_text().splitlines()[0])["number"] is None


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, "8 members: 8 images used, 0 rejected, 0 other; 8 labels: 8 matched, 0 unmatched"),
        ({"0.seg.png": jpeg()}, "9 members: 8 images used, 1 rejected, 0 other"),
        ({"0.json": b"{}"}, "9 members: 8 images used, 0 rejected, 1 other (1 json)"),
        ({"9.cls": b"0"}, "9 labels: 8 matched, 1 unmatched"),
        ({"9.gif": b"GIF8", "9.cls": b"0"}, "9 members: 8 images used, 1 rejected"),
        ({"9.jpg": b"no image", "9.cls": b"0"}, "9 members: 8 images used, 1 rejected"),
    ],
    ids=["whole", "mask", "json", "label alone", "gif", "damaged"],
)
def test_a_plan_accounts_for_each_member_and_strict_needs_all(
    more: dict[str, bytes], text: str, tmp_path: Path
) -> None:
    source = shards_of(tmp_path / "shards", [{str(number): (jpeg(), number % 2) for number in range(8)}])
    with tarfile.open(source / "0.tar", "a") as tar:
        for name, content in more.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    (run,) = run_pack(options(source, out=tmp_path / "out"), PackObserver(), cores=1, plan=True)
    assert any(text in line.text for line in plan_lines("", run.plan, 224))
    assert is_complete_pack(run) == (not more)


def test_data_without_labels_are_called_so_in_the_plan(tmp_path: Path) -> None:
    source = tmp_path / "flat"
    source.mkdir()
    (source / "1.jpg").write_bytes(jpeg())
    (run,) = run_pack(options(source, out=tmp_path / "out"), PackObserver(), cores=1, plan=True)
    texts = [line.text for line in plan_lines("", run.plan, 224)]
    assert texts[0].startswith("1 image of 1 class, ")
    assert "1 image, no labels found: all are class 0" in texts
    assert is_complete_pack(run)
