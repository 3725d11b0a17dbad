"""Every decode backend of the registry keeps the same promises (see pipetune.loaders.contract)."""

from __future__ import annotations

import itertools
import os
import resource
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipetune.datasets.index import ImageSet
from pipetune.datasets.open_dataset import open_dataset
from pipetune.decoders.contract import Photo
from pipetune.decoders.crop import draw_crop
from pipetune.install.ffmpeg import has_ffmpeg
from pipetune.loaders.contract import Batch
from pipetune.loaders.open_loader import open_loader, open_trial
from pipetune.loaders.order import EndlessOrder
from pipetune.machine.proc import tree_pids
from pipetune.records.imagenet import MEAN, STD
from pipetune.records.sweep import Candidate, Workload
from pipetune.registry import BACKENDS, default_backend, installed_version, loaders_of, min_workers, native_workers
from tests.bad_images import jpeg, without_tables
from tests.photo_set import PHOTOS, candidate, scan, workload

torch = pytest.importorskip("torch", reason="the backends produce torch tensors")
Image = pytest.importorskip("PIL.Image", reason="the reference decodes with Pillow")
features = pytest.importorskip("PIL.features", reason="the reference decodes with Pillow")

# Backend by backend (hence the scope of the fixture), DALI last: a process with DALI's threads should not be forked,
# and the other backends' workers are forked from this one. A sweep has one backend per process.
#: A process has Pillow or Pillow-SIMD: test_pillow_simd.py runs this file in a process of the other kind.
PILLOW = default_backend()
OTHER_PILLOW = {"pillow": "pillow-simd", "pillow-simd": "pillow"}[PILLOW]
ALL = sorted({*BACKENDS} - {OTHER_PILLOW}, key=lambda name: (native_workers(BACKENDS[name]), name))
#: Mean absolute difference to the reference in normalised units (1 unit is about 58 grey levels), mean over a batch and
#: the most for one image. OpenCV resizes without antialiasing; DALI's triangular filter and chroma upsampling differ.
#: Pillow-SIMD resizes as Pillow does.
NEAR = {
    "pillow": (0.0, 0.0),
    "pillow-simd": (0.0, 0.0),
    "torchvision": (0.02, 0.05),
    "torchcodec": (0.02, 0.05),
    "opencv": (0.06, 0.15),
    "opencv-reduced": (0.06, 0.15),
    "simplejpeg": (0.06, 0.15),
    "simplejpeg-reduced": (0.06, 0.15),
    "jpeg-roi": (0.005, 0.01),
    "jpeg-roi-fast": (0.03, 0.08),
    "spdl": (0.03, 0.08),
    "dali": (0.03, 0.08),
    "dali-cpu": (0.03, 0.08),
    "nvjpeg": (0.005, 0.01),  # of the code around the decoder, on the CPU; tests/gpu has it on a GPU
    "nvimagecodec": (0.005, 0.01),
}


def fewest(backend: str) -> int:
    return min_workers(BACKENDS[backend])


def first_batches(chosen: Candidate, setting: Workload, images: ImageSet, count: int) -> list[Batch]:
    loader = open_loader(chosen, setting, images)
    try:
        return [Batch(b.images.clone(), b.labels.clone()) for b in itertools.islice(iter(loader), count)]
    finally:
        loader.close()


@pytest.fixture(autouse=True, scope="module", params=ALL)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    require(request, name)
    return name


def require(request: pytest.FixtureRequest, name: str) -> None:
    """See that the backend is there; what has to be compiled is compiled."""
    if name.startswith("jpeg-roi"):
        request.getfixturevalue("jpeg_roi")
    if name == "spdl" and not has_ffmpeg():
        pytest.skip("FFmpeg's libraries are not installed")
    assert installed_version(BACKENDS[name]), f"the test environment must have it: {BACKENDS[name].install}"


def test_batches_have_the_promised_shape_type_and_labels(backend: str) -> None:
    images = scan(PHOTOS)
    setting = workload(image_size=160)
    (batch,) = first_batches(candidate(backend, fewest(backend), batch_size=6), setting, images, 1)
    assert batch.images.shape == (6, 3, 160, 160)
    assert batch.images.dtype == torch.float32
    assert batch.labels.dtype == torch.int64
    sample_indices = next(iter(EndlessOrder(len(images.images), 6, setting.seed)))
    assert batch.labels.tolist() == [
        images.images[sample_index % len(images.images)].label for sample_index in sample_indices
    ]


def test_pixels_are_near_the_reference(backend: str) -> None:
    images = scan(PHOTOS)
    ours = first_batches(candidate(backend, fewest(backend), 8), workload(), images, 2)
    reference = first_batches(candidate(PILLOW, 0, 8), workload(), images, 2)
    for mine, theirs in zip(ours, reference, strict=True):
        per_image = (mine.images - theirs.images).abs().mean(dim=(1, 2, 3))
        mean, most = float(per_image.mean()), float(per_image.max())
        limit_of_mean, limit_of_most = NEAR[backend]
        assert (mean <= limit_of_mean, most <= limit_of_most) == (True, True), f"measured ({mean:.3f}, {most:.3f})"


@pytest.mark.parametrize("transfer", ["float32", "uint8"])
def test_pixels_are_the_same_whether_the_crop_is_decoded_or_the_whole_image(backend: str, transfer: str) -> None:
    if not BACKENDS[backend].steers_jpeg_engine:
        pytest.skip("it has no choice")
    window, whole = (
        first_batches(
            replace(candidate(backend, fewest(backend), 8), decode_region=region, transfer=transfer),
            workload(),
            scan(PHOTOS),
            2,
        )
        for region in ("window", "whole")
    )
    for one, other in zip(window, whole, strict=True):
        assert torch.equal(one.images, other.images)


def test_channels_are_red_green_blue_and_normalised(backend: str, tmp_path: Path) -> None:
    Image.new("RGB", (64, 48), (250, 100, 20)).save(tmp_path / "plain.jpg", quality=100, subsampling=0)
    setting = workload(image_size=32)
    (batch,) = first_batches(candidate(backend, fewest(backend), 1), setting, scan(tmp_path), 1)
    got = batch.images.mean(dim=(0, 2, 3)) * torch.tensor(STD) + torch.tensor(MEAN)
    assert got.tolist() == pytest.approx([250 / 255, 100 / 255, 20 / 255], abs=0.01)


def test_the_stream_is_the_same_for_any_worker_count_and_seed_decides_it(backend: str) -> None:
    images = scan(PHOTOS)
    few, many = (first_batches(candidate(backend, count, 3), workload(), images, 5) for count in (1, 3))
    for one, other in zip(few, many, strict=True):
        assert torch.equal(one.labels, other.labels)
        assert torch.allclose(one.images, other.images, atol=1e-5)
    (else_,) = first_batches(candidate(backend, 1, 3), workload(seed=8), images, 1)
    assert not torch.equal(few[0].images, else_.images)


def test_each_epoch_holds_every_image_once_and_goes_on_without_end(backend: str, tmp_path: Path) -> None:
    for number in range(6):
        folder = tmp_path / f"class{number}"
        folder.mkdir()
        Image.new("RGB", (40, 40), (40 * number, 0, 0)).save(folder / "a.png")
    batches = first_batches(candidate(backend, fewest(backend), 2), workload(image_size=16), scan(tmp_path), 9)
    labels = [label for batch in batches for label in batch.labels.tolist()]
    epochs = [labels[start : start + 6] for start in (0, 6, 12)]
    assert all(sorted(epoch) == list(range(6)) for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_a_cold_run_is_one_epoch_of_whole_batches(backend: str) -> None:
    images = scan(PHOTOS)
    setting = workload(cache="cold")
    assert len(first_batches(candidate(backend, fewest(backend), 3), setting, images, 99)) == 1


def exif_of(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def save_variants(folder: Path) -> list[str]:
    """The same photograph in every shape that libraries are known to differ on."""
    photo = Image.open(PHOTOS / "people" / "chelsea.jpg").convert("RGB")
    for orientation in (3, 6, 8):
        photo.save(folder / f"exif{orientation}.jpg", quality=95, exif=exif_of(orientation))
    photo.save(folder / "exif8.png", exif=exif_of(8))
    photo.save(folder / "damaged_exif.png", exif=b"neither II nor MM")
    photo.convert("L").save(folder / "grey.jpg", quality=95)
    photo.convert("CMYK").save(folder / "cmyk.jpg", quality=95)
    photo.save(folder / "progressive.jpg", quality=95, progressive=True)
    photo.save(folder / "sub444.jpg", quality=95, subsampling=0)
    photo.save(folder / "lossless.png")
    photo.convert("LA").save(folder / "grey_alpha.png")
    photo.quantize(64).save(folder / "palette.png")
    if features.check("webp"):  # Pillow-SIMD is built with what this machine has
        photo.save(folder / "lossy.webp", quality=90)
        photo.save(folder / "exif6.webp", quality=90, exif=exif_of(6))
    photo.save(folder / "png_inside.jpg", format="PNG")
    grey = np.asarray(photo.convert("L")).astype(np.uint16) * 257
    Image.fromarray(grey).save(folder / "sixteen_bit.png")
    return sorted(os.listdir(folder))


def test_odd_images_have_the_same_pixels_everywhere(backend: str, tmp_path: Path) -> None:
    names = save_variants(tmp_path)
    images = scan(tmp_path)
    assert [os.path.basename(image.path) for image in images.images] == names
    ours = first_batches(candidate(backend, fewest(backend), len(names)), workload(), images, 1)[0].images
    reference = first_batches(candidate(PILLOW, 0, len(names)), workload(), images, 1)[0].images
    order = next(iter(EndlessOrder(len(names), len(names), workload().seed)))
    worst = {
        names[sample_index]: round(float((mine - theirs).abs().mean()), 3)
        for sample_index, mine, theirs in zip(order, ours, reference, strict=True)
    }
    assert {name: value for name, value in worst.items() if value > 0.2} == {}


def test_a_file_that_does_not_decode_is_named(backend: str, tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(without_tables(jpeg()))
    images = scan(tmp_path)
    assert len(images.images) == 1
    with pytest.raises(Exception, match=r"broken\.jpg"):
        first_batches(candidate(backend, 1, 1), workload(), images, 1)


def test_a_file_that_has_become_a_named_pipe_is_named_and_not_waited_for(backend: str, tmp_path: Path) -> None:
    if BACKENDS[backend].module is None:
        pytest.skip("its library opens the files; a loader that waits is ended after the time limit")
    path = tmp_path / "pipe.jpg"
    path.write_bytes(jpeg())
    images = scan(tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(Exception, match=r"pipe\.jpg.*not a regular file"):
        first_batches(candidate(backend, fewest(backend), 1), workload(), images, 1)


def test_a_trial_distinguishes_a_bad_image_from_a_machine_that_lacks_something(backend: str, tmp_path: Path) -> None:
    try_decode = open_trial(candidate(backend, 1), workload())
    good, bad = tmp_path / "good.jpg", tmp_path / "bad.jpg"
    good.write_bytes(jpeg())
    bad.write_bytes(without_tables(jpeg()))
    of = {os.path.basename(image.path): image for image in scan(tmp_path).images}
    assert try_decode(of["good.jpg"]) is None
    assert try_decode(of["bad.jpg"])
    assert try_decode(of["good.jpg"]) is None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            try_decode(of["good.jpg"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_members_of_a_shard_are_read_as_files_are(backend: str, tmp_path: Path) -> None:
    if not any(loader.reads_shards for loader in loaders_of(BACKENDS[backend])):
        pytest.skip("it is given files")
    with tarfile.open(tmp_path / "photos.tar", "w") as tar:
        for path in sorted(PHOTOS.glob("*/*.jpg")):
            tar.add(path, path.relative_to(PHOTOS))
    shards = open_dataset(str(tmp_path / "photos.tar"), seed=0, limit_bytes=2**30, workers=1)
    for ours, theirs in zip(*(first_batches(candidate(backend, fewest(backend), 4), workload(), found, 2)
                              for found in (shards, scan(PHOTOS))), strict=True):  # fmt: skip
        assert torch.equal(ours.images, theirs.images)
        assert ours.labels.tolist() == theirs.labels.tolist()


def test_closing_leaves_no_process_behind_and_may_be_repeated(backend: str) -> None:
    before = set(tree_pids(os.getpid()))
    loader = open_loader(candidate(backend, 2, 4), workload(), scan(PHOTOS))
    stream = iter(loader)
    next(stream)
    loader.close()
    loader.close()
    del stream
    assert set(tree_pids(os.getpid())) <= before


def test_the_reference_is_what_torchvisions_transforms_make() -> None:
    from torchvision.transforms import functional

    from pipetune.decoders.pillow import load

    path = str(PHOTOS / "things" / "rocket.jpg")
    out = np.empty((3, 224, 224), np.float32)
    load(Photo(path, 1, True, 427, 640), lambda height, width: draw_crop(3, 11, height, width), out.transpose(1, 2, 0))
    ours = torch.from_numpy(out)
    image = Image.open(path).convert("RGB")
    crop = draw_crop(3, 11, image.height, image.width)
    theirs = functional.resized_crop(image, crop.top, crop.left, crop.height, crop.width, [224, 224])
    if crop.flip:
        theirs = functional.hflip(theirs)
    theirs = functional.normalize(functional.to_tensor(theirs), list(MEAN), list(STD))
    assert torch.allclose(ours, theirs, atol=1e-6)
