"""The C code that makes JPEGs smaller, beside Pillow, and writes them anew, beside their own coefficients."""

from __future__ import annotations

import ctypes
import io
import itertools
import os
import subprocess

import numpy as np
import pytest
from PIL import Image, JpegImagePlugin

from pipetune.datasets.image_header import parse_header
from pipetune.install.find import roi_sources
from pipetune.packing import jpeg_library
from pipetune.packing.jpeg_library import MOST_ORDERS, CannotPack, Order, Packer, require_library
from tests.bad_images import PHOTO, jpeg, without_tables
from tests.unit.datasets.images import with_scans

pytestmark = pytest.mark.usefixtures("jpeg_roi")


@pytest.fixture
def packer() -> Packer:
    return Packer()


def opened(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def smaller(packer: Packer, data: bytes, size: tuple[int, int], **options: int) -> Image.Image:
    found = packer.made(data, [Order(size, **{"quality": 95, "sampling": 444, **options})])
    assert found is not None
    return opened(found[0])


def difference(one: Image.Image, other: Image.Image) -> float:
    return float(np.abs(np.asarray(one, np.float64) - np.asarray(other, np.float64)).mean())


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("size", [(1, 1), (7, 5), (64, 48), (149, 101), (300, 200), (599, 399)])
def test_pixels_are_those_of_pillows_bicubic_filter(packer: Packer, mode: str, size: tuple[int, int]) -> None:
    data = jpeg(mode=mode, quality=95, subsampling=0)
    found = smaller(packer, data, size, quality=100)
    wanted = opened(data).resize(size, Image.Resampling.BICUBIC)
    assert found.mode == mode
    assert found.size == size
    # What a JPEG of quality 100 rounds, and an inverse transform at half the size or less.
    assert difference(found, wanted) < 2


def test_an_image_is_enlarged_too(packer: Packer) -> None:
    data = jpeg(quality=95, subsampling=0)
    width, height = opened(data).size
    found = smaller(packer, data, (2 * width + 1, 2 * height - 1), quality=100)
    wanted = opened(data).resize(found.size, Image.Resampling.BICUBIC)
    assert difference(found, wanted) < 1


@pytest.mark.parametrize("sampling", [444, 422, 420])
def test_chroma_is_stored_as_asked_for(packer: Packer, sampling: int) -> None:
    found = smaller(packer, jpeg(), (96, 64), sampling=sampling)
    assert JpegImagePlugin.get_sampling(found) == {444: 0, 422: 1, 420: 2}[sampling]


@pytest.mark.parametrize("own", [0, 1, 2])
def test_chroma_is_kept_as_in_the_source(packer: Packer, own: int) -> None:
    found = smaller(packer, jpeg(subsampling=own), (96, 64), sampling=0)
    assert JpegImagePlugin.get_sampling(found) == own


def test_quality_is_what_was_asked_for(packer: Packer) -> None:
    found = smaller(packer, jpeg(), (96, 64), quality=37)
    wanted = opened(jpeg(quality=37))
    assert found.quantization == wanted.quantization  # type: ignore[attr-defined]


def test_orientation_and_colour_profile_stay_and_the_rest_goes(packer: Packer) -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a private remark"
    data = jpeg(exif=exif, icc_profile=b"profile" * 20_000, comment=b"a remark")
    smaller = packer.made(data, [Order((96, 64), orientation=6)])
    assert smaller is not None
    for found in (*smaller, packer.transcoded(data, orientation=6)):
        image = opened(found)
        assert dict(image.getexif()) == {0x0112: 6}
        assert image.info["icc_profile"] == b"profile" * 20_000, "in several markers"
        assert b"remark" not in found
        assert parse_header(found).orientation == 6
    assert b"Exif" not in packer.transcoded(data, orientation=1)


@pytest.mark.parametrize("options", [
    {}, {"progressive": True}, {"subsampling": 0, "progressive": True}, {"mode": "L"}, {"mode": "CMYK"},
    {"restart_marker_blocks": 2}, {"keep_rgb": True},
], ids=str)  # fmt: skip
def test_without_loss_all_coefficients_stay(packer: Packer, options: dict[str, object]) -> None:
    data = jpeg(**options)
    found = packer.transcoded(data, orientation=1)
    assert packer.same(data, found)
    assert not parse_header(found).progressive
    assert np.array_equal(np.asarray(opened(data)), np.asarray(opened(found)))


def test_other_images_are_not_the_same(packer: Packer) -> None:
    one = jpeg(quality=90)
    others = [jpeg(quality=89), jpeg(mode="L"), jpeg(quality=90, subsampling=0), with_changed_pixel(one)]
    for first, second in itertools.pairwise([one, *others]):
        assert not packer.same(first, second)
    assert packer.same(one, one)


def with_changed_pixel(data: bytes) -> bytes:
    image = opened(data)
    image.putpixel((3, 3), (255, 0, 255))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=90)
    return out.getvalue()


@pytest.mark.parametrize("damage", ["cut", "tables", "scans", "none", "text"])
def test_what_is_damaged_is_refused_with_a_reason(packer: Packer, damage: str) -> None:
    data = jpeg(quality=90)
    broken = {"cut": data[: len(data) // 2], "tables": without_tables(data), "scans": with_scans((200, 100), 150),
              "none": b"", "text": b"not a JPEG"}[damage]  # fmt: skip
    for call in (lambda: packer.made(broken, [Order((8, 8))]),
                 lambda: packer.transcoded(broken, orientation=1), lambda: packer.same(data, broken)):  # fmt: skip
        with pytest.raises(CannotPack, match=r".+"):
            call()
    assert packer.same(data, data), "it goes on with the next image"


@pytest.mark.parametrize("options", [{"mode": "CMYK"}, {"keep_rgb": True}], ids=str)
def test_colours_that_it_does_not_know_are_left_to_others(packer: Packer, options: dict[str, object]) -> None:
    assert packer.made(jpeg(**options), [Order((8, 8))]) is None


@pytest.mark.parametrize("sampling", ["444", "422", "420", "440", "411"])
@pytest.mark.parametrize("into", [444, 420])
@pytest.mark.parametrize("size", [(64, 48), (149, 101), (600, 401)])
def test_colour_is_where_it_was_whatever_it_is_stored_with(
    packer: Packer, sampling: str, into: int, size: tuple[int, int]
) -> None:
    simplejpeg = pytest.importorskip("simplejpeg", reason="it writes the unusual samplings")
    pixels = np.ascontiguousarray(opened(PHOTO.read_bytes()).convert("RGB").resize((299, 201)))
    data = simplejpeg.encode_jpeg(pixels, quality=100, colorsubsampling=sampling)
    found = smaller(packer, data, size, quality=100, sampling=into)
    stored = io.BytesIO()
    resized = opened(data).resize(size, Image.Resampling.BICUBIC)
    resized.save(stored, "JPEG", quality=100, subsampling={444: 0, 420: 2}[into])
    wanted = opened(stored.getvalue())
    assert difference(found, wanted) < 2.5
    # A colour that is half a sample away from its place differs most where it changes: on average by less than noise.
    one, other = (np.asarray(image.convert("YCbCr"), np.float64)[..., 1:] for image in (found, wanted))
    assert np.abs((one - other).mean()) < 0.3
    inner = (slice(2, -2), slice(2, -2))
    best = min(
        itertools.product((-1, 0, 1), repeat=2),
        key=lambda by: float(np.abs(np.roll(one, by, axis=(0, 1))[inner] - other[inner]).mean()),
    )
    assert best == (0, 0)


@pytest.fixture(scope="module")
def without_avx2(tmp_path_factory: pytest.TempPathFactory) -> Packer:
    """A packer of a library that is built without what is written for AVX2."""
    library = tmp_path_factory.mktemp("plain") / "jpeg_roi.so"
    sources = [str(path) for path in roi_sources() if path.suffix == ".c"]
    subprocess.run(
        [*os.environ.get("CC", "cc").split(), "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-DPIPETUNE_PLAIN", "-o",
         str(library), *sources, "-ljpeg", "-lm"], check=True,
    )  # fmt: skip
    require_library.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jpeg_library, "load_jpeg_roi", lambda: ctypes.CDLL(str(library)))
        plain = Packer()
    require_library.cache_clear()
    return plain


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("size", [(1, 1), (7, 5), (64, 48), (149, 101), (300, 200), (601, 399), (901, 60)])
def test_all_processors_make_the_same_bytes(
    packer: Packer, without_avx2: Packer, mode: str, size: tuple[int, int]
) -> None:
    data = jpeg(mode=mode, quality=95)
    orders = [Order(size), Order(size, sampling=444), Order(size, square=min(size))]
    assert packer.made(data, orders) == without_avx2.made(data, orders)


def test_several_images_are_what_each_would_be_alone(packer: Packer) -> None:
    data = PHOTO.read_bytes()
    orders = [
        Order((300, 200)), Order((30, 20), quality=80), Order((150, 100), sampling=444, orientation=3),
        Order((60, 40), square=40), Order((600, 400)), Order((9, 6), square=3), Order((301, 200)), Order((12, 90)),
    ]  # fmt: skip
    assert len(orders) == MOST_ORDERS
    together = packer.made(data, orders)
    alone = [packer.made(data, [one]) for one in orders]
    assert together is not None
    assert [[one] for one in together] == alone


@pytest.mark.parametrize("orders", [
    [], [Order((8, 8))] * (MOST_ORDERS + 1), [Order((8, 8)), Order((0, 0))], [Order((8, 8), square=9)],
    [Order((0, 0), square=4)],
], ids=len)  # fmt: skip
def test_orders_that_make_no_sense_are_left_to_others(packer: Packer, orders: list[Order]) -> None:
    if len(orders) > MOST_ORDERS:
        with pytest.raises(ValueError, match="at most"):
            packer.made(jpeg(), orders)
    else:
        assert packer.made(jpeg(), orders) is None


def test_the_square_is_the_middle_of_the_resized_image(packer: Packer) -> None:
    data = jpeg(quality=95, subsampling=0)
    found = packer.made(data, [Order((90, 60), square=48), Order((48, 80), square=48)])
    assert found is not None
    for pixels, size, box in ((found[0], (90, 60), (21, 6, 69, 54)), (found[1], (48, 80), (0, 16, 48, 64))):
        wanted = opened(data).resize(size, Image.Resampling.BICUBIC).crop(box)
        assert difference(Image.frombytes("RGB", (48, 48), pixels), wanted) < 2


@pytest.mark.parametrize("size", [(1, 3000), (3000, 1)])
def test_one_axis_alone_is_made_smaller(packer: Packer, size: tuple[int, int]) -> None:
    data = jpeg(quality=95)
    wanted = opened(data).resize(size, Image.Resampling.BICUBIC)
    assert difference(smaller(packer, data, size, quality=100), wanted) < 2.5


def test_one_packer_serves_images_of_all_sizes(packer: Packer) -> None:
    data = PHOTO.read_bytes()
    for size in ((8, 8), (300, 200), (8, 8), (1, 200)):
        assert smaller(packer, data, size).size == size


#: EXIF orientation -> what brings it upright, by the name of Pillow's, and the orientation that undoes that.
TURNS = {
    2: ("FLIP_LEFT_RIGHT", 2), 3: ("ROTATE_180", 3), 4: ("FLIP_TOP_BOTTOM", 4), 5: ("TRANSPOSE", 5),
    6: ("ROTATE_270", 8), 7: ("TRANSVERSE", 7), 8: ("ROTATE_90", 6),
}  # fmt: skip


@pytest.mark.parametrize("orientation", TURNS)
@pytest.mark.parametrize(
    "options", [{"subsampling": 0}, {"subsampling": 1}, {"subsampling": 2, "progressive": True}, {"mode": "L"}], ids=str
)
def test_turned_without_loss_and_back_all_coefficients_are_there(
    packer: Packer, orientation: int, options: dict[str, object]
) -> None:
    name, back = TURNS[orientation]
    mode = str(options.get("mode", "RGB"))
    out = io.BytesIO()
    opened(jpeg(mode=mode)).resize((160, 96)).save(
        out, "JPEG", quality=90, **{name: value for name, value in options.items() if name != "mode"}
    )
    data = out.getvalue()
    turned = packer.turned(data, orientation)
    assert turned is not None
    wanted = opened(data).transpose(Image.Transpose[name])
    assert opened(turned).size == wanted.size
    assert difference(opened(turned), wanted) < 1, "an inverse transform rounds other rows"
    again = packer.turned(turned, back)
    assert again is not None
    assert packer.same(data, again)
    assert not packer.same(data, turned)


@pytest.mark.parametrize(
    ("size", "possible"),
    [((160, 96), {2, 3, 4, 5, 6, 7, 8}), ((161, 96), {4, 5, 6}), ((160, 97), {2, 5, 8}), ((161, 97), {5}),
     ((8, 8), {5})],
    ids=str,
)  # fmt: skip
def test_an_axis_that_is_read_from_its_end_has_whole_blocks(
    packer: Packer, size: tuple[int, int], possible: set[int]
) -> None:
    out = io.BytesIO()
    opened(jpeg()).resize(size).save(out, "JPEG", quality=90, subsampling=2)
    found = {orientation: packer.turned(out.getvalue(), orientation) for orientation in TURNS}
    assert {orientation for orientation, data in found.items() if data is not None} == possible
    for orientation, data in found.items():
        if data is not None:
            wanted = opened(out.getvalue()).transpose(Image.Transpose[TURNS[orientation][0]])
            assert difference(opened(data), wanted) < 1.5
