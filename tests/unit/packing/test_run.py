"""Packs from beginning to end: what stands in the folder, going on with one, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pipetune.errors import PipetuneError, UsageError
from pipetune.packing import run as module
from pipetune.packing import shard as shard_module
from pipetune.packing.manifest import PARTS, read_manifest
from pipetune.packing.options import Pixels
from pipetune.packing.prepare import PackObserver, prepare
from pipetune.packing.run import write
from tests.bad_images import jpeg
from tests.unit.packing.packs import CROP, files, options, pack, photographs

pytestmark = pytest.mark.usefixtures("jpeg_roi")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return photographs(tmp_path / "source")


def small_shards(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """As many shards, of however small a set."""
    monkeypatch.setattr("pipetune.packing.predict.shards_for", lambda total, images, size: count)


def test_a_pack_says_what_it_is(source: Path) -> None:
    chosen = options(source, pixels=Pixels(mode="shorter-edge", edge=64))
    (result,) = pack(chosen)
    assert result.complete
    assert result.images == 24
    assert result.done == {"resized": 24}
    assert json.loads((chosen.out / "classes.json").read_text()) == ["class0", "class1", "class2"]
    entries = list(read_manifest(chosen.out))
    assert [entry.number for entry in entries] == list(range(24))
    assert {entry.source for entry in entries} == {
        str(path.relative_to(source)) for path in source.rglob("*.jpg")
    }  # fmt: skip
    stored = json.loads((chosen.out / "pack.json").read_text())
    assert stored["result"]["images"] == stored["plan"]["images"] == 24
    assert stored["plan"]["fidelity"]["psnr_db"] > 20
    assert not (chosen.out / PARTS).exists()


def test_the_prediction_is_near_what_comes_of_it(source: Path) -> None:
    chosen = options(source, pixels=Pixels(mode="shorter-edge", edge=64))
    (one,) = prepare(chosen, PackObserver(), cores=1.0, crop=CROP)
    result = write(one, chosen, PackObserver())
    assert one.plan.total_bytes == pytest.approx(result.total_bytes, rel=0.1)


class Stop(Exception):
    """In the middle of a pack."""


class StopsAt(PackObserver):
    def __init__(self, image: int) -> None:
        self.image = image

    def on_image(self, done: int, total: int, done_bytes: int) -> None:
        if done == self.image:
            raise Stop


@pytest.mark.parametrize("format_", ["webdataset", "folder", "recordio", "mds"])
@pytest.mark.parametrize("image", [1, 9, 24])
def test_what_was_stopped_goes_on_to_the_same_bytes(
    format_: str, image: int, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_shards(monkeypatch, 4)
    whole = options(source, format=format_, out=source.parent / "whole", threads=2)
    pack(whole)
    chosen = options(source, format=format_, threads=2)
    with pytest.raises(Stop):
        pack(chosen, StopsAt(image))
    assert not list(chosen.out.glob("*.tmp"))
    assert len(list((chosen.out / PARTS).glob("*.jsonl"))) == image // 6
    (result,) = pack(replace(chosen, resume=True))
    assert result.complete
    assert files(chosen.out) == files(whole.out)


def test_what_a_call_has_left_that_was_killed_while_it_wrote_an_index_is_removed(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_shards(monkeypatch, 4)
    whole = options(source, out=source.parent / "whole")
    pack(whole)
    chosen = options(source)
    with pytest.raises(Stop):
        pack(chosen, StopsAt(20))
    dies = "import os, sys; from pathlib import Path; from pipetune.store.files import replace_file; "
    dies += "replace_file(Path(sys.argv[1]), (os._exit(9) for _ in 'x'))"
    done = subprocess.run([sys.executable, "-c", dies, str(chosen.out / "manifest.jsonl")], check=False)
    assert done.returncode == 9
    assert len(list(chosen.out.glob(".pipetune-*.tmp"))) == 1
    pack(replace(chosen, resume=True))
    assert files(chosen.out) == files(whole.out)


def test_a_shard_that_somebody_has_cut_off_is_written_again(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_shards(monkeypatch, 4)
    chosen = options(source)
    with pytest.raises(Stop):
        pack(chosen, StopsAt(20))
    shard = chosen.out / "shard-000001.tar"
    before = shard.read_bytes()
    shard.write_bytes(before[:1000])
    pack(replace(chosen, resume=True))
    assert shard.read_bytes() == before


def test_parts_together_are_the_same_pack(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_shards(monkeypatch, 5)
    whole = options(source, out=source.parent / "whole")
    pack(whole)
    chosen = options(source)
    for part in ((1, 2), (0, 2)):
        (result,) = pack(replace(chosen, part=part))
        assert not result.complete
        assert not (chosen.out / "manifest.jsonl").exists()
    (result,) = pack(replace(chosen, resume=True))
    assert result.complete
    assert files(chosen.out) == files(whole.out)


def test_a_pack_that_is_complete_stays_as_it_is(source: Path) -> None:
    chosen = options(source)
    (first,) = pack(chosen)
    before = files(chosen.out)
    (again,) = pack(replace(chosen, resume=True))
    assert again == first
    assert files(chosen.out) == before


def test_validation_is_a_pack_of_its_own_with_the_same_classes(source: Path) -> None:
    chosen = options(source, validation="2-per-class")
    train, validation = pack(chosen)
    assert (train.images, validation.images) == (18, 6)
    names = [json.loads((chosen.out / name / "classes.json").read_text()) for name in ("train", "validation")]
    assert names[0] == names[1] == ["class0", "class1", "class2"]
    sources = [{entry.source for entry in read_manifest(chosen.out / name)} for name in ("train", "validation")]
    assert not sources[0] & sources[1]


def test_small_classes_are_left_out(source: Path) -> None:
    (source / "class1" / "01.jpg").unlink()
    chosen = options(source, min_per_class=8)
    (result,) = pack(chosen)
    assert result.images == 16
    assert json.loads((chosen.out / "classes.json").read_text()) == ["class0", "class2"]
    assert {entry.label for entry in read_manifest(chosen.out)} == {0, 1}


def test_what_cannot_be_packed_is_listed(source: Path) -> None:
    (source / "class0" / "bad.jpg").write_bytes(b"no image")
    (source / "class1" / "cut.jpg").write_bytes(jpeg()[:2000])
    (source / "class2" / "secret.jpg").write_bytes(jpeg())
    (source / "class2" / "gone.jpg").write_bytes(jpeg())
    chosen = options(source)
    (one,) = prepare(chosen, PackObserver(), cores=1.0, crop=CROP)
    (source / "class2" / "secret.jpg").write_bytes(jpeg(quality=3))
    (source / "class2" / "gone.jpg").unlink()
    result = write(one, chosen, PackObserver())
    assert (result.images, result.rejected) == (24, 4)
    rejected = {row["source"]: row["reason"] for row in map(json.loads, (chosen.out / "rejected.jsonl").open())}
    assert "was changed" in rejected["class2/secret.jpg"]
    assert rejected["class2/gone.jpg"] == "No such file or directory"
    assert "cut off" in rejected["class1/cut.jpg"]


def test_the_disk_is_full(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_shards(monkeypatch, 4)
    chosen = options(source)
    real, calls = shard_module.write_part, []

    def full(*args: Any) -> None:
        calls.append(args)
        if len(calls) == 3:
            raise OSError(28, os.strerror(28))
        real(*args)

    monkeypatch.setattr(shard_module, "write_part", full)
    with pytest.raises(PipetuneError, match="No space left"):
        pack(chosen)
    monkeypatch.setattr(shard_module, "write_part", real)
    (result,) = pack(replace(chosen, resume=True))
    assert result.complete


def test_too_little_space_is_told_before(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = options(source)
    with monkeypatch.context() as patch:
        patch.setattr(module.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000})())
        with pytest.raises(UsageError, match="1000 B free"):
            pack(chosen)
    assert not list(chosen.out.glob("*.tar*"))
    (result,) = pack(replace(chosen, resume=True))
    assert result.complete


def test_two_packs_into_one_folder(source: Path) -> None:
    chosen = options(source)
    (one,) = prepare(chosen, PackObserver(), cores=1.0, crop=CROP)

    class Meanwhile(PackObserver):
        def on_image(self, done: int, total: int, done_bytes: int) -> None:
            if done == 3:
                with pytest.raises(PipetuneError, match="another process"):
                    write(one, chosen, PackObserver())

    assert write(one, chosen, Meanwhile()).complete


@pytest.mark.parametrize(
    ("out", "text"),
    [("source/inner", "lies in"), (".", "contains"), ("other", "has other things in it"), ("file", "is a file"),
     ("packed", "has a pack in it")],
)  # fmt: skip
def test_folders_that_cannot_take_a_pack(source: Path, out: str, text: str) -> None:
    (source.parent / "other").mkdir()
    (source.parent / "other" / "thing").write_text("")
    (source.parent / "file").write_text("")
    pack(options(source, out=source.parent / "packed"))
    with pytest.raises(UsageError, match=text):
        pack(options(source, out=source.parent / out))


def test_another_pack_is_not_gone_on_with(source: Path) -> None:
    chosen = options(source)
    pack(chosen)
    with pytest.raises(UsageError, match="begun with other images or other options"):
        pack(replace(chosen, resume=True, pixels=Pixels(mode="shorter-edge", edge=64)))
    (source / "class0" / "new.jpg").write_bytes(jpeg())
    with pytest.raises(UsageError, match="begun with other images or other options"):
        pack(replace(chosen, resume=True))


def test_a_changed_byte_is_found(source: Path) -> None:
    chosen = options(source, verify="none")
    (one,) = prepare(chosen, PackObserver(), cores=1.0, crop=CROP)
    write(one, chosen, PackObserver())
    entry = next(iter(read_manifest(chosen.out)))
    shard = chosen.out / entry.file
    data = bytearray(shard.read_bytes())
    data[entry.start + 100] ^= 1
    shard.write_bytes(data)
    with pytest.raises(PipetuneError, match="is not what was written"):
        module.verify(chosen.out, one.pack, "all", PackObserver().on_stage)


def test_a_plan_alone_leaves_nothing(source: Path) -> None:
    chosen = options(source)
    prepare(chosen, PackObserver(), cores=1.0, keep=False)
    assert not chosen.out.exists()


def test_killed_between_manifest_and_end_it_ends_the_next_time(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = options(source, out=source.parent / "whole")
    pack(whole)
    chosen = options(source)
    with monkeypatch.context() as patch:
        patch.setattr(module, "verify", lambda *_: (_ for _ in ()).throw(Stop()))
        with pytest.raises(Stop):
            pack(chosen)
    assert (chosen.out / "manifest.jsonl").exists()
    (result,) = pack(replace(chosen, resume=True))
    assert result.complete
    assert files(chosen.out) == files(whole.out)


def test_nothing_that_can_be_packed_is_a_failure(tmp_path: Path) -> None:
    bad = tmp_path / "source" / "a" / "1.jpg"
    bad.parent.mkdir(parents=True)
    bad.write_bytes(b"no image")
    with pytest.raises(PipetuneError, match="none of 1 images"):
        pack(options(tmp_path / "source"))


def test_a_plan_of_two_packs_leaves_nothing(source: Path) -> None:
    chosen = options(source, validation="1-per-class")
    assert [one.name for one in prepare(chosen, PackObserver(), cores=1.0, keep=False)] == ["train", "validation"]
    assert not chosen.out.exists()


@pytest.mark.parametrize("crop", [0, -5, 100_000])
def test_a_crop_has_an_edge(crop: int, source: Path) -> None:
    with pytest.raises(UsageError, match="--crop"):
        prepare(options(source), PackObserver(), cores=1.0, crop=crop)


def test_images_turned_without_loss_are_compared_with_their_sources(tmp_path: Path) -> None:
    for orientation in range(1, 9):
        path = tmp_path / "source" / "one" / f"{orientation}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        exif = Image.Exif()
        exif[0x0112] = orientation
        path.write_bytes(jpeg(exif=exif, subsampling=0))
    chosen = options(tmp_path / "source", pixels=Pixels(mode="lossless", upright=True), verify="all")
    (result,) = pack(chosen)
    assert result.done == {"transcoded": 1, "turned_lossless": 7}
    assert (result.verified, result.turned) == (8, 0)
