"""Every decoder makes the same pixels of every odd file, and reads the orientation that the index has."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the backends produce torch tensors")
Image = pytest.importorskip("PIL.Image", reason="the reference decodes with Pillow")

from pipetune.datasets.image_header import parse_header  # noqa: E402
from pipetune.datasets.index import ImageSet  # noqa: E402
from pipetune.datasets.upright import TURNS  # noqa: E402
from pipetune.decoders.contract import BadImage  # noqa: E402
from pipetune.errors import PipetuneError  # noqa: E402
from pipetune.loaders import dali_names  # noqa: E402
from pipetune.loaders.open_loader import open_loader, open_trial  # noqa: E402
from pipetune.loaders.order import EndlessOrder  # noqa: E402
from pipetune.registry import BACKENDS, min_workers  # noqa: E402
from tests.contract.test_backends import ALL, require  # noqa: E402
from tests.odd_images import Odd, all_odd_images, encoded, scene, short, tiff  # noqa: E402
from tests.photo_set import candidate, scan, workload  # noqa: E402

ODD = all_odd_images()
_SIZE = 48
#: Mean absolute difference in grey levels: resizing without antialiasing and rounding of 16 bits are within it, and
#: another orientation, a clipped or an inverted image is far beyond.
_NEAR = 6.0


@pytest.fixture(scope="module", params=ALL)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    require(request, name)
    return name


@pytest.fixture(scope="module")
def odd_set(tmp_path_factory: pytest.TempPathFactory) -> ImageSet:
    folder = tmp_path_factory.mktemp("odd")
    for odd in ODD:
        (folder / odd.name).write_bytes(odd.data)
    return scan(folder)


def test_the_index_has_the_orientation_that_libraries_read(odd_set: ImageSet) -> None:
    seen = {Path(image.path).name: (image.orientation, image.exif_disputed) for image in odd_set.images}
    assert seen == {odd.name: (odd.orientation, odd.disputed) for odd in ODD}


def test_every_decoder_makes_the_same_pixels(backend: str, odd_set: ImageSet) -> None:
    count = len(odd_set.images)
    setting = workload(image_size=_SIZE)
    chosen = candidate(backend, min_workers(BACKENDS[backend]), count)
    loader = open_loader(chosen, setting, odd_set)
    try:
        images = next(iter(loader)).images.clone()
    finally:
        loader.close()
    (reference,) = [next(iter(open_loader(candidate("pillow", 0, count), setting, odd_set))).images]
    order = next(iter(EndlessOrder(count, count, setting.seed)))
    levels = (images - reference).abs().mean(dim=(1, 2, 3)) * 58
    far = {
        Path(odd_set.images[sample].path).name: round(float(level))
        for sample, level in zip(order, levels, strict=True)
        if level > _NEAR
    }
    assert far == {}


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.name)
def test_the_reference_is_right(odd: Odd) -> None:
    from pipetune.datasets.pillow_rgb import to_rgb

    upright = np.asarray(to_rgb(Image.open(io.BytesIO(odd.data)), odd.orientation)).astype(int)
    stored = Image.open(io.BytesIO(odd.data))
    assert upright.shape[:2] == (stored.size if odd.orientation >= 5 else stored.size[::-1])
    if odd.orientation in TURNS:
        plain = np.asarray(to_rgb(Image.open(io.BytesIO(odd.data)), 1)).astype(int)
        assert upright.shape != plain.shape or np.abs(upright - plain).mean() > 20


def test_what_nvimagecodec_cannot_parse_is_named(backend: str, tmp_path: Path) -> None:
    """A WebP with a chunk of odd length before its EXIF ended DALI without a name, and the candidate was lost."""
    if BACKENDS[backend].module is not None:
        pytest.skip("its library reads the file")
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(encoded(scene(), "JPEG"))
    (tmp_path / "lossless.webp").write_bytes(padded_webp())
    images = scan(tmp_path)
    chosen = candidate(backend, min_workers(BACKENDS[backend]), 2)
    loader = open_loader(chosen, workload(image_size=_SIZE), images)
    try:
        with pytest.raises(BadImage, match=r"lossless\.webp"):
            for _, _ in zip(range(4), loader, strict=False):
                pass
    finally:
        loader.close()
    reasons = {Path(image.path).name: open_trial(chosen, workload())(image) for image in images.images}
    assert [name for name, reason in reasons.items() if reason is not None] == ["lossless.webp"]


def padded_webp() -> bytes:
    image = scene()
    for level in range(256):
        image.putpixel((0, 0), (level, 0, 0))
        data = encoded(image, "WEBP", lossless=True, exif=tiff("<", short("<", 6)))
        at = data.index(b"VP8L") + 4
        if int.from_bytes(data[at : at + 4], "little") % 2:
            return data
    raise AssertionError("every length is even")


def test_dali_is_given_copies_of_so_many_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dali_names, "MAX_COPIES", 1)
    two = [odd for odd in ODD if odd.disputed][:2]
    for odd in two:
        (tmp_path / odd.name).write_bytes(odd.data)
    names = dali_names.DaliNames()
    first, second = scan(tmp_path).images
    name = names.name(first)
    assert names.name(first) == name
    assert names.path(name) == first.path
    assert parse_header(Path(name).read_bytes()).orientation == first.orientation
    with pytest.raises(PipetuneError, match="more than 1 images"):
        names.name(second)
    names.close()
    assert not Path(name).exists()
