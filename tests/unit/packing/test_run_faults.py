"""Packs whose sources go away, and packs that are not what they were."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.errors import PipetuneError
from pipetune.packing import shards
from pipetune.packing.formats.shard_file import UNFINISHED
from pipetune.packing.manifest import read_manifest
from pipetune.packing.prepare import PackObserver, prepare
from pipetune.packing.run import write
from tests.unit.packing.packs import CROP, options, pack, photographs

pytestmark = pytest.mark.usefixtures("jpeg_roi")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return photographs(tmp_path / "source")


def test_a_disk_that_does_not_answer_is_no_bad_image(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = options(source)
    (one,) = prepare(chosen, PackObserver(), cores=1.0, crop=CROP)
    real = shards.read_source

    def fails(place: Any) -> bytes:
        if place.file.endswith("07.jpg"):
            raise OSError(5, os.strerror(5))
        return real(place)

    monkeypatch.setattr(shards, "read_source", fails)
    with pytest.raises(PipetuneError, match=r"cannot read '.*07.jpg': Input/output error"):
        write(one, chosen, PackObserver())
    monkeypatch.setattr(shards, "read_source", real)
    (result,) = pack(replace(chosen, resume=True))
    assert (result.images, result.rejected) == (24, 0)


@pytest.mark.parametrize("moved", ["source", "source/class1"])
def test_storage_that_has_gone_is_no_bad_image(moved: str, source: Path) -> None:
    """Unmounted, or without the right to read it any more: nothing of it is given up."""
    chosen = options(source)
    (one,) = prepare(chosen, PackObserver(), cores=1.0, crop=CROP)
    there, elsewhere = source.parent / moved, source.parent / "elsewhere"
    there.rename(elsewhere)
    with pytest.raises(PipetuneError, match=r"cannot read '.*\.jpg': No such file or directory"):
        write(one, chosen, PackObserver())
    elsewhere.rename(there)
    (result,) = pack(replace(chosen, resume=True))
    assert (result.images, result.rejected) == (24, 0)


def test_one_file_that_has_gone_is_left_out(source: Path) -> None:
    chosen = options(source)
    (one,) = prepare(chosen, PackObserver(), cores=1.0, crop=CROP)
    next(source.rglob("*.jpg")).unlink()
    result = write(one, chosen, PackObserver())
    assert (result.images, result.rejected, result.complete) == (23, 1, True)


def test_a_shard_that_has_gone_is_not_many_bad_images(source: Path) -> None:
    first = options(source, out=source.parent / "first")
    pack(first)
    chosen = options(first.out, out=source.parent / "second")
    (one,) = prepare(chosen, PackObserver(), cores=1.0, crop=CROP)
    for shard in first.out.glob("*.tar"):
        shard.unlink()
    with pytest.raises(PipetuneError, match=r"cannot read '.*\.tar': No such file"):
        write(one, chosen, PackObserver())


@pytest.mark.parametrize("format_", ["webdataset", "recordio", "folder", "mds"])
def test_a_complete_pack_is_looked_at_again(format_: str, source: Path) -> None:
    chosen = options(source, format=format_, verify="none")
    pack(chosen)
    again = replace(chosen, resume=True, verify="all")
    (result,) = pack(again)
    assert result.verified == 24
    entry = list(read_manifest(chosen.out))[-1]
    path = chosen.out / entry.file
    path.write_bytes(path.read_bytes()[: entry.start + entry.length - 1])
    with pytest.raises(PipetuneError, match=rf"has [\d,]+ bytes, its images {entry.start + entry.length:,}; rm -r "):
        pack(replace(again, verify="none"))
    path.unlink()
    with pytest.raises(PipetuneError, match=r"cannot be read: No such file or directory; rm -r "):
        pack(again)


def test_what_a_killed_call_has_left_does_not_take_the_room(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is removed before free space is looked at."""
    chosen = options(source)
    (one,) = prepare(chosen, PackObserver(), cores=1.0, crop=CROP)
    left = chosen.out / f"{one.pack.format.shard_name(0)}.x1{UNFINISHED}"
    left.write_bytes(b"half of a shard")
    usage = shutil.disk_usage(chosen.out)
    monkeypatch.setattr(
        "pipetune.packing.run.shutil.disk_usage", lambda path: usage._replace(free=0) if left.exists() else usage
    )
    assert write(one, chosen, PackObserver()).complete
