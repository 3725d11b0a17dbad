"""``pipetune pack --format raw``: written, mapped by numpy, and read by every backend that takes pixels."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

torch = pytest.importorskip("torch", reason="what is tested handles tensors")

from pipetune.datasets.index import ImageSet, read_index, write_index  # noqa: E402
from pipetune.datasets.open_dataset import open_dataset  # noqa: E402
from pipetune.decoders import jpeg_roi, pillow  # noqa: E402
from pipetune.decoders.contract import Array, BadImage  # noqa: E402
from pipetune.decoders.layout import Layout  # noqa: E402
from pipetune.errors import PipetuneError, UsageError  # noqa: E402
from pipetune.loaders.photos import Photos  # noqa: E402
from pipetune.packing.options import Pixels  # noqa: E402
from pipetune.registry import BACKENDS  # noqa: E402
from tests.bad_images import jpeg  # noqa: E402
from tests.unit.packing.packs import options, pack, photographs  # noqa: E402

pytestmark = pytest.mark.usefixtures("jpeg_roi")

EDGE = 48
RAW = Pixels(mode="shorter-edge", edge=EDGE, raw=True)
LAYOUTS = [Layout(size=24, uint8=uint8, channels_last=last) for uint8 in (False, True) for last in (False, True)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return photographs(tmp_path / "source")


def packed(source: Path, pixels: Pixels = RAW) -> Path:
    chosen = options(source, format="raw", pixels=pixels, verify="all", shuffle=None)
    (result,) = pack(chosen)
    assert result.complete
    return chosen.out


def opened(out: Path) -> ImageSet:
    return open_dataset(str(out), seed=0, limit_bytes=1 << 40, workers=1)


def arrays(out: Path) -> tuple[Array, Array]:
    return np.load(out / "shard-000000.pixels.npy", mmap_mode="r"), np.load(out / "shard-000000.labels.npy")


def middle(data: bytes, edge: int = EDGE) -> Array:
    """The square in the middle of an image whose shorter edge is so long, by Pillow."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)).convert("RGB"))
    factor = min(image.size)
    size = (image.width * edge // factor, image.height * edge // factor)
    image = image.resize(size, Image.Resampling.BICUBIC)
    left, top = (size[0] - edge) // 2, (size[1] - edge) // 2
    return np.asarray(image.crop((left, top, left + edge, top + edge)), np.int16)


def test_numpy_maps_the_pixels_and_reads_the_labels(source: Path) -> None:
    pixels, labels = arrays(packed(source))
    assert (pixels.shape, pixels.dtype) == ((24, EDGE, EDGE, 3), np.uint8)
    assert labels.dtype == np.int64
    assert labels.tolist() == [0] * 8 + [1] * 8 + [2] * 8
    for number, path in enumerate(sorted(source.rglob("*.jpg"))):
        difference = np.abs(pixels[number].astype(np.int16) - middle(path.read_bytes()))
        assert difference.mean() < 2, "decoded at a quarter of the size, and the rest of the way by the same filter"


def test_other_kinds_of_images_are_turned_and_become_rgb(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    datas = [jpeg(exif=exif), jpeg(format="PNG", mode="RGBA"), jpeg(mode="L"), jpeg(mode="CMYK"), jpeg(format="WEBP")]
    for number, data in enumerate(datas):
        path = tmp_path / "source" / "one" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    pixels, _ = arrays(packed(tmp_path / "source"))
    for number, data in enumerate(datas):
        assert np.abs(pixels[number].astype(np.int16) - middle(data)).mean() < 2


def test_the_exact_size_is_stored_without_resampling(tmp_path: Path) -> None:
    square = Image.open(io.BytesIO(jpeg())).convert("RGB").resize((EDGE, EDGE))
    path = tmp_path / "source" / "one" / "a.jpg"
    path.parent.mkdir(parents=True)
    square.save(path, quality=90)
    pixels, _ = arrays(packed(tmp_path / "source"))
    assert np.array_equal(pixels[0], np.asarray(Image.open(path)))


def test_a_smaller_image_is_rejected_unless_it_may_be_enlarged(source: Path) -> None:
    small = source / "class0" / "small.jpg"
    Image.open(io.BytesIO(jpeg())).convert("RGB").resize((40, 30)).save(small)
    out = packed(source)
    assert len(arrays(out)[0]) == 24
    assert "has a shorter edge of 30 px, and not 48; --enlarge" in (out / "rejected.jsonl").read_text()
    out.rename(source.parent / "first")
    larger = Pixels(mode="shorter-edge", edge=EDGE, raw=True, enlarge=True)
    assert len(arrays(packed(source, larger))[0]) == 25


def test_the_index_keeps_what_the_shards_hold(source: Path, tmp_path: Path) -> None:
    images = opened(packed(source))
    assert images.is_raw
    assert images.classes == ("class0", "class1", "class2")
    assert {(image.width, image.height, image.format, image.size_bytes) for image in images.images} == {
        (EDGE, EDGE, "raw", 3 * EDGE * EDGE)
    }
    write_index(str(tmp_path / "index.json"), images)
    assert read_index(str(tmp_path / "index.json")) == images
    text = (tmp_path / "index.json").read_text()
    (tmp_path / "index.json").write_text(text.replace(f",{EDGE},{EDGE},", f",{EDGE},{EDGE + 1},"))
    with pytest.raises(PipetuneError, match="is not an image index"):
        read_index(str(tmp_path / "index.json"))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("hold", [False, True])
def test_crops_are_those_of_the_reference(layout: Layout, hold: bool, source: Path) -> None:
    images = opened(packed(source))
    wanted, found = (np.full(layout.shape(40), 0, layout.dtype) for _ in range(2))
    reference = Photos(images, pillow.load, layout, 3)
    ours = Photos(images, no_load, layout, 3, jpeg_roi.fill_some, hold=hold)
    reference.fill(range(40), wanted)
    ours.fill(range(40), found)
    assert np.abs(wanted.astype(np.float32) - found.astype(np.float32)).max() <= (
        1 if layout.uint8 else 1 / (255 * 0.22)
    )
    assert ours.labels(range(40)).tolist() == [image.label for image in images.images] + [0] * 8 + [1] * 8


def no_load(photo: object, window: object, out: object) -> None:
    raise AssertionError("C does it all")


@pytest.mark.parametrize("hold", [False, True])
def test_a_shard_that_is_cut_off_is_named(hold: bool, source: Path) -> None:
    out = packed(source)
    images = opened(out)
    shard = out / "shard-000000.pixels.npy"
    os.truncate(shard, 128 + 20 * 3 * EDGE * EDGE)
    photos = Photos(images, jpeg_roi.load, LAYOUTS[0], 3, jpeg_roi.fill_some, hold=hold)
    batch = np.zeros(LAYOUTS[0].shape(1), np.float32)
    with pytest.raises(BadImage, match=r"shard-000000.pixels.npy/23"):
        photos.fill([23], batch)
    again = opened(out)
    assert len(again.images) == 20
    assert "cut off" in again.skipped[0][1]


def fortran() -> Array:
    return np.asfortranarray(np.zeros((2, 8, 8, 3), np.uint8))


#: What is done to a shard's file, and what is said then.
DAMAGES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "no labels": ("labels", Path.unlink, "its labels cannot be read: No such file or directory"),
    "other labels": ("labels", lambda path: np.save(path, np.zeros(3, np.int64)), r"\[3\] of <i8, and not int64"),
    "float labels": ("labels", lambda path: np.save(path, np.zeros(24, np.float32)), "of <f4"),
    "labels cut off": ("labels", lambda path: os.truncate(path, 200), "its labels are cut off"),
    "two axes": ("pixels", lambda path: np.save(path, np.zeros((4, 4), np.uint8)), r"\[4, 4\] of \|u1, and not pixels"),
    "floats": ("pixels", lambda path: np.save(path, np.zeros((2, 8, 8, 3), np.float32)), "of <f4, and not pixels"),
    "by columns": ("pixels", lambda path: np.save(path, fortran()), "another kind"),
    "text": ("pixels", lambda path: path.write_bytes(b"nothing of the kind" * 20), "not an array of numpy"),
    "a program": (  # which is not run
        "pixels", lambda path: path.write_bytes(b"\x93NUMPY\x01\x00\x76\x00{}(os)"), "not an array",
    ),
    "billions": (
        "pixels", lambda path: path.write_bytes(path.read_bytes()[:128].replace(b"(24,", b"(4000000000,")), "labels",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_shard_that_is_damaged_is_refused(damage: str, source: Path) -> None:
    name, change, text = DAMAGES[damage]
    out = packed(source)
    change(out / f"shard-000000.{name}.npy")
    with pytest.raises(UsageError, match=text):
        opened(out)


def test_a_negative_label_is_no_class(source: Path) -> None:
    out = packed(source)
    path = out / "shard-000000.labels.npy"
    labels = np.load(path)
    labels[0] = -1
    np.save(path, labels)
    images = opened(out)
    assert len(images.images) == 23
    assert images.skipped[0][1] == "a label of -1, which is no class"


def test_pixels_are_not_packed_again(source: Path, tmp_path: Path) -> None:
    out = packed(source)
    with pytest.raises(UsageError, match="is a pack of pixels"):
        pack(options(out, out=tmp_path / "again"))


def test_who_takes_pixels() -> None:
    assert [name for name, backend in BACKENDS.items() if backend.reads_raw] == ["pillow", "pillow-simd", "jpeg-roi"]
