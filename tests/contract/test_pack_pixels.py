"""A pack has the pixels that loaders see in its sources, of every odd file and for every decoder."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the backends produce torch tensors")
Image = pytest.importorskip("PIL.Image", reason="the reference decodes with Pillow")

from pipetune.datasets.image_header import parse_header  # noqa: E402
from pipetune.datasets.pillow_rgb import to_rgb  # noqa: E402
from pipetune.loaders.open_loader import open_loader  # noqa: E402
from pipetune.loaders.order import EndlessOrder  # noqa: E402
from pipetune.packing.fidelity import compare_crops  # noqa: E402
from pipetune.packing.options import Pixels  # noqa: E402
from pipetune.packing.pixels import pack_image  # noqa: E402
from pipetune.registry import BACKENDS, min_workers  # noqa: E402
from tests.contract.test_backends import ALL, require  # noqa: E402
from tests.odd_images import Odd, all_odd_images  # noqa: E402
from tests.photo_set import candidate, scan, workload  # noqa: E402

pytestmark = pytest.mark.usefixtures("jpeg_roi")

ODD = all_odd_images()
_EDGE = 64
#: Mean absolute difference in grey levels that JPEG at quality 95 and another resize leave.
_NEAR = 6.0
WAYS = {
    "shorter": Pixels(mode="shorter-edge", edge=_EDGE, quality=95, subsampling="444"),
    "upright": Pixels(mode="shorter-edge", edge=_EDGE, quality=95, subsampling="444", upright=True),
    "lossless": Pixels(mode="lossless", upright=True),
    "raw": Pixels(mode="shorter-edge", edge=_EDGE, raw=True),
}


def seen_by_loaders(data: bytes) -> Image.Image:
    header = parse_header(data)
    return to_rgb(Image.open(io.BytesIO(data)), header.orientation)


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.name)
@pytest.mark.parametrize("way", WAYS)
def test_packed_pixels_are_those_that_loaders_see(odd: Odd, way: str) -> None:
    packed = pack_image(odd.data, WAYS[way])
    source = seen_by_loaders(odd.data)
    if way == "raw":
        image = Image.frombytes("RGB", (packed.width, packed.height), packed.data)
        edge = min(source.size)
        left, top = (source.width - edge) // 2, (source.height - edge) // 2
        source = source.crop((left, top, left + edge, top + edge))
    else:
        image = seen_by_loaders(packed.data)
    resized = source.resize(image.size, Image.Resampling.BICUBIC)
    assert np.abs(np.asarray(image, float) - np.asarray(resized, float)).mean() < _NEAR
    fidelity = compare_crops([(odd.data, packed.data)], 32, raw=way == "raw")
    assert fidelity is not None
    assert fidelity.psnr_db > 22


def test_fidelity_is_measured_against_what_loaders_see() -> None:
    """A pack of white images was certified at 55 dB, because its sources were clipped in the same way."""
    (odd,) = (odd for odd in ODD if odd.name == "grey16.png")
    white = io.BytesIO()
    Image.new("RGB", (_EDGE, _EDGE), "white").save(white, "PNG")
    fidelity = compare_crops([(odd.data, white.getvalue())], 32)
    assert fidelity is not None
    assert fidelity.psnr_db < 15


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("packs")
    for way in ("shorter", "upright"):
        (root / way).mkdir()
        for odd in ODD:
            (root / way / f"{odd.name}.jpg").write_bytes(pack_image(odd.data, WAYS[way]).data)
    return {way: root / way for way in ("shorter", "upright")}


@pytest.mark.parametrize("backend", ALL)
@pytest.mark.parametrize("way", ["shorter", "upright"])
def test_every_decoder_reads_the_pack_alike(
    backend: str, way: str, folders: dict[str, Path], request: pytest.FixtureRequest
) -> None:
    require(request, backend)
    images = scan(folders[way])
    assert len(images.images) == len(ODD)
    assert not any(image.exif_disputed for image in images.images)
    batches = []
    for name in (backend, "pillow"):
        loader = open_loader(candidate(name, min_workers(BACKENDS[name]), len(ODD)), workload(image_size=32), images)
        try:
            batches.append(next(iter(loader)).images.clone())
        finally:
            loader.close()
    order = next(iter(EndlessOrder(len(ODD), len(ODD), workload().seed)))
    levels = (batches[0] - batches[1]).abs().mean(dim=(1, 2, 3)) * 58
    far = [images.images[number].path for number, level in zip(order, levels, strict=True) if level > _NEAR]
    assert far == []
