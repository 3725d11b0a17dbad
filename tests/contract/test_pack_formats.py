"""Each format of ``pipetune pack``: written, then read by pipetune and by readers that are not its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipetune.datasets.open_dataset import open_dataset
from pipetune.packing.formats.contract import Row, Sample, ShardRows
from pipetune.packing.formats.recordio import MAGIC
from pipetune.packing.formats.table import FORMATS
from pipetune.packing.options import PackOptions
from pipetune.packing.prepare import PackObserver, prepare
from pipetune.packing.run import write
from tests.bad_images import jpeg

ENCODED = [name for name, one in FORMATS.items() if not one.holds_pixels]
PACKED = [name for name in ENCODED if name != "folder"]


def images() -> dict[tuple[str, str], bytes]:
    """(class, name) -> file: some with names that formats stumble over."""
    names = [("ant", "a.b.jpg"), ("ant", "__x__.jpg"), ("bee", "50%.JPEG"), ("bee", "c.png"), ("bee", "c.jpg"),
             ("cow", "sub/d.jpg"), ("cow", f"{'long' * 30}.jpg")]  # fmt: skip
    found = {}
    for number, name in enumerate(names):
        found[name] = jpeg(quality=80 + number, format="PNG" if name[1].endswith(".png") else "JPEG")
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for (label, name), data in images().items():
        path = tmp_path / "source" / label / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "source"


def packed(source: Path, name: str, **options: Any) -> Path:
    out = source.parent / f"packed-{name}"
    chosen = PackOptions(source=str(source), out=out, format=name, verify="all", shard_bytes=1 << 20, **options)
    (one,) = prepare(chosen, PackObserver(), cores=1.0)
    result = write(one, chosen, PackObserver())
    assert result.complete
    assert result.verified == result.images == len(images())
    return out


def needs(package: str) -> None:
    pytest.importorskip(package, reason=f"the format needs {package}")


@pytest.fixture(params=ENCODED)
def format_name(request: pytest.FixtureRequest) -> str:
    if request.param == "tfrecord":
        needs("google_crc32c")
    return str(request.param)


def test_every_image_and_label_can_be_read_again(format_name: str, source: Path) -> None:
    out = packed(source, format_name)
    found = open_dataset(str(out), seed=0, limit_bytes=1 << 40, workers=1)
    assert found.classes == ("ant", "bee", "cow")
    assert found.skipped == ()
    wanted = sorted((["ant", "bee", "cow"].index(label), data) for (label, _), data in images().items())
    read = []
    for image in found.images:
        with open(image.file, "rb") as file:
            file.seek(image.start)
            read.append((image.label, file.read(image.size_bytes)))
    assert sorted(read) == wanted


def test_shards_are_the_same_bytes_for_any_number_of_threads(format_name: str, source: Path, tmp_path: Path) -> None:
    one = packed(source, format_name, threads=1)
    one.rename(tmp_path / "one")
    three = packed(source, format_name, threads=3)
    assert contents(tmp_path / "one") == contents(three)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the one with times in it."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "pack.json"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_webdataset_reads_what_was_packed(source: Path) -> None:
    needs("webdataset")
    import webdataset

    out = packed(source, "webdataset")
    shards = [str(path) for path in sorted(out.glob("*.tar"))]
    read = []
    for sample in webdataset.WebDataset(shards, shardshuffle=False):
        (image,) = [value for name, value in sample.items() if name in ("jpg", "png")]
        read.append((int(sample["cls"]), image))
    assert sorted(read) == sorted((["ant", "bee", "cow"].index(label), data) for (label, _), data in images().items())


@pytest.mark.parametrize("name", ["recordio", "webdataset", "tfrecord"])
def test_dali_reads_what_was_packed(name: str, source: Path) -> None:
    needs("nvidia.dali")
    if name == "tfrecord":
        needs("google_crc32c")
    out = packed(source, name)
    read = sorted(of_dali(name, out))
    assert read == sorted((["ant", "bee", "cow"].index(label), data) for (label, _), data in images().items())


def of_dali(name: str, out: Path) -> Iterator[tuple[int, bytes]]:
    import nvidia.dali.fn as fn
    import nvidia.dali.tfrecord as tfrec
    from nvidia.dali import pipeline_def

    files = {ending: [str(path) for path in sorted(out.glob(f"*{ending}"))] for ending in (".rec", ".tar", ".tfrecord")}

    @pipeline_def(batch_size=len(images()), num_threads=1, device_id=None)
    def read() -> Any:
        if name == "recordio":
            indices = [path.removesuffix(".rec") + ".idx" for path in files[".rec"]]
            encoded, label = fn.readers.mxnet(path=files[".rec"], index_path=indices)
            return encoded, label
        if name == "webdataset":
            encoded, label = fn.readers.webdataset(
                paths=files[".tar"], ext=["jpg;png", "cls"], missing_component_behavior="error"
            )
            return encoded, label
        features = {
            "image/encoded": tfrec.FixedLenFeature((), tfrec.string, ""),
            "image/class/label": tfrec.FixedLenFeature([1], tfrec.int64, -1),
        }
        indices = [f"{path}.idx" for path in files[".tfrecord"]]
        found = fn.readers.tfrecord(path=files[".tfrecord"], index_path=indices, features=features)
        return found["image/encoded"], found["image/class/label"]

    pipeline = read()
    pipeline.build()
    encoded, labels = pipeline.run()
    for number in range(len(images())):
        data, label = encoded.at(number).tobytes(), labels.at(number)
        yield int(bytes(label)) if name == "webdataset" else int(label[0]), data


def sample(number: int, data: bytes, label: int = 3) -> Sample:
    return Sample(number, f"ant/{number}", "jpg", label, data)


@pytest.mark.parametrize("name", PACKED)
def test_a_shard_has_no_name_before_it_is_published(name: str, tmp_path: Path) -> None:
    if name == "tfrecord":
        needs("google_crc32c")
    format_ = FORMATS[name]
    shard = format_.shard_name(7)
    writer = format_.open(tmp_path, shard, 2)
    writer.add(sample(0, b"first"))
    size = writer.finish()
    assert not (tmp_path / shard).exists()
    writer.publish()
    assert (tmp_path / shard).stat().st_size == size
    abandoned = format_.open(tmp_path, "other", 1)
    abandoned.add(sample(0, b"x"))
    abandoned.abandon()
    assert [path.name for path in tmp_path.iterdir()] == [shard]


@pytest.mark.parametrize("name", PACKED)
def test_places_are_those_of_the_bytes(name: str, tmp_path: Path) -> None:
    if name == "tfrecord":
        needs("google_crc32c")
    format_ = FORMATS[name]
    shard = format_.shard_name(0)
    writer = format_.open(tmp_path, shard, 5)  # one fewer comes: it was rejected
    datas = [b"x" * 3, b"", bytes(range(256)) * 40, b"last"]
    places = [writer.add(sample(number, data)) for number, data in enumerate(datas)]
    size = writer.finish()
    writer.publish()
    for place, data in zip(places, datas, strict=True):
        assert format_.read(tmp_path, *place) == data
    rows = [Row(number, f"ant/{number}", 3, place.start, place.length) for number, place in enumerate(places)]
    format_.write_index(tmp_path, [ShardRows(shard, rows, size)], ["ant"])


def test_a_record_that_holds_the_magic_number_is_cut_and_joined(tmp_path: Path) -> None:
    format_ = FORMATS["recordio"]
    writer = format_.open(tmp_path, "one.rec", 3)
    aligned = b"abcd" + MAGIC + MAGIC + b"efg" + MAGIC + b"h"
    places = [writer.add(sample(number, data)) for number, data in enumerate([aligned, b"x" + MAGIC, b"plain"])]
    writer.finish()
    writer.publish()
    assert format_.read(tmp_path, *places[0]) == aligned
    assert format_.read(tmp_path, *places[1]) == b"x" + MAGIC
    assert format_.read(tmp_path, *places[2]) == b"plain"
    raw = (tmp_path / "one.rec").read_bytes()
    assert raw.count(MAGIC) == 7, "three records, two cuts, and two that stand elsewhere"
