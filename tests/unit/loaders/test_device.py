"""The loader ``device`` around a decoder that stands for one: what is given to it, what is left to the CPU."""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipetune.decoders.contract import BadImage, Encoded, StoredWindow
from pipetune.decoders.layout import Layout
from pipetune.errors import PipetuneError
from pipetune.records.explanation import COLLATE, DECODE, HAND_OVER, TRANSFORM
from pipetune.records.sweep import Candidate
from tests.bad_images import jpeg, without_tables
from tests.photo_set import PHOTOS, candidate, scan, workload

torch = pytest.importorskip("torch", reason="what is tested handles tensors")
Image = pytest.importorskip("PIL.Image", reason="the files are made with Pillow")

from pipetune.decoders import nvjpeg  # noqa: E402
from pipetune.loaders import device_batch  # noqa: E402
from pipetune.loaders.device_batch import BatchMaker  # noqa: E402
from pipetune.loaders.open_loader import open_loader  # noqa: E402
from pipetune.loaders.photos import Photos  # noqa: E402
from pipetune.loaders.windows import WindowedOrder  # noqa: E402

CPU = torch.device("cpu")
CHOSEN = candidate("nvjpeg", 1)


class Decoder:
    """nvJPEG's place on the CPU: keeps what it was given, and refuses the images that it is told to."""

    def __init__(self, refuses: Sequence[int] = ()) -> None:
        self.calls: list[list[Encoded]] = []
        self._decode = nvjpeg.open_device_decoder(CHOSEN, CPU)
        self._refuses = refuses

    def __call__(self, encoded: Sequence[Encoded]) -> list[Any]:
        self.calls.append(list(encoded))
        return [None if place in self._refuses else window for place, window in enumerate(self._decode(encoded))]


def maker(root: Path, decoder: Decoder, size: int = 32) -> tuple[BatchMaker, Photos]:
    layout = Layout(size=size, uint8=True)
    photos = Photos(scan(root), nvjpeg.load, layout, seed=5)
    return BatchMaker(photos, decoder, layout, CPU), photos


def task(photos: Photos, count: int) -> Any:
    return next(iter(WindowedOrder([list(range(count))], photos.sizes, photos.seed)))


def on_cpu(photos: Photos, count: int, size: int = 32) -> np.ndarray:
    """Those samples, decoded on the CPU alone."""
    out = np.empty((count, size, size, 3), np.uint8)
    for sample_index in range(count):
        photos.decode(sample_index, out[sample_index])
    return out.transpose(0, 3, 1, 2)


def odd_images(root: Path) -> Path:
    photo = Image.open(sorted(PHOTOS.glob("*/*.jpg"))[0]).convert("RGB").resize((96, 64))
    exif = Image.Exif()
    exif[0x0112] = 6
    photo.save(root / "0.jpg")
    photo.save(root / "1-turned.jpg", exif=exif)
    photo.save(root / "2-progressive.jpg", progressive=True)
    photo.convert("L").save(root / "3-grey.jpg")
    photo.convert("CMYK").save(root / "4-cmyk.jpg")
    photo.save(root / "5.png")
    photo.save(root / "6.jpg", quality=95)
    return root


def test_the_device_gets_sequential_colour_jpegs_and_the_cpu_the_rest(tmp_path: Path) -> None:
    decoder = Decoder()
    make, photos = maker(odd_images(tmp_path), decoder)
    batch = make(task(photos, 7))
    (given,) = decoder.calls
    assert [(one.height, one.width) for one in given] == [(64, 96), (64, 96), (64, 96)]
    assert [bytes(one.data[:2]) for one in given] == [b"\xff\xd8"] * 3
    difference = np.abs(batch.images.numpy().astype(int) - on_cpu(photos, 7))
    assert difference.max() <= 1
    assert difference[2:6].max() == 0  # the very pixels of the CPU's decoder
    assert batch.labels.tolist() == [0] * 7


def test_what_the_device_refuses_the_cpu_decodes_from_then_on(tmp_path: Path) -> None:
    decoder = Decoder(refuses=[1])
    make, photos = maker(odd_images(tmp_path), decoder)
    for _ in range(2):
        assert np.abs(make(task(photos, 7)).images.numpy().astype(int) - on_cpu(photos, 7)).max() <= 1
    assert [len(given) for given in decoder.calls] == [3, 2]


def test_one_bad_image_costs_a_list_of_nvjpegs_only_itself(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(without_tables(jpeg()) if number == 1 else jpeg())
    decoder = Decoder()
    make, photos = maker(tmp_path, decoder)
    with pytest.raises(BadImage, match=r"1\.jpg"):
        make(task(photos, 3))
    windows = nvjpeg.open_device_decoder(CHOSEN, CPU)(decoder.calls[0])
    assert [window is None for window in windows] == [False, True, False]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("out of memory"),
        RuntimeError("Error while decoding JPEG images: CUDA out of memory"),
        RuntimeError("Error while decoding JPEG images: Failed to decode jpeg stream: 5"),
    ],
)
def test_nvjpeg_does_not_take_a_lack_of_memory_for_a_bad_image(
    error: RuntimeError, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = nvjpeg.open_device_decoder(CHOSEN, CPU)

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(nvjpeg, "decode_jpeg", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        decode([Encoded(np.zeros(9, np.uint8), 1, 1, StoredWindow(0, 0, 1, 1))])


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("decode_jpegs_cuda: torchvision not compiled with nvJPEG support", "a build without CUDA"),
        ("Error while decoding JPEG images: Failed to decode batch: 6", "nvjpeg decodes no JPEG on cpu"),
    ],
)
def test_a_decoder_that_decodes_nothing_is_an_error_and_no_slow_loader(
    reason: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError(reason)

    monkeypatch.setattr(nvjpeg, "decode_jpeg", fail)
    with pytest.raises(PipetuneError, match=message):
        open_loader(CHOSEN, workload(), scan(PHOTOS))


def test_an_image_of_another_size_than_in_the_index_is_left_to_the_cpu(tmp_path: Path) -> None:
    path = tmp_path / "0.jpg"
    Image.new("RGB", (64, 48), (10, 200, 30)).save(path)
    decoder = Decoder()
    make, photos = maker(tmp_path, decoder)
    Image.new("RGB", (32, 24), (10, 200, 30)).save(path)
    batch = make(task(photos, 1))
    assert len(decoder.calls) == 1
    assert np.abs(batch.images.numpy().astype(int) - on_cpu(photos, 1)).max() <= 1


def test_large_photographs_are_decoded_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        Image.new("RGB", (64, 48), (50 * number, 0, 0)).save(tmp_path / f"{number}.jpg")
    monkeypatch.setattr(device_batch, "MAX_DECODED_BYTES", 2 * 3 * 64 * 48)
    decoder = Decoder()
    make, photos = maker(tmp_path, decoder)
    reds = make(task(photos, 5)).images[:, 0].float().mean(dim=(1, 2)).tolist()
    assert [len(given) for given in decoder.calls] == [2, 2, 1]
    assert reds == pytest.approx([0, 50, 100, 150, 200], abs=2)


def test_a_loader_that_leaves_most_to_the_cpu_says_so(tmp_path: Path) -> None:
    for number in range(4):
        Image.new("RGB", (16, 16), (number, 0, 0)).save(tmp_path / f"{number}.png")
    make, photos = maker(tmp_path, Decoder(), size=8)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2 * device_batch._MIN_JUDGED // 4):
            make(task(photos, 4))
    (said,) = [str(one.message) for one in told if "the CPU decoded" in str(one.message)]
    assert said.startswith(f"the CPU decoded {device_batch._MIN_JUDGED} of {device_batch._MIN_JUDGED} images")


def test_a_device_that_refuses_images_later_is_seen_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_batch, "_MIN_JUDGED", 8)
    for number in range(8):
        Image.new("RGB", (16, 16), (number, 0, 0)).save(tmp_path / f"{number}.jpg")
    decoder = Decoder()
    make, photos = maker(tmp_path, decoder, size=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        make(task(photos, 8))
    decoder._refuses = range(8)
    with pytest.warns(UserWarning, match="the CPU decoded 8 of 8 images"):
        make(task(photos, 8))


def test_a_batch_goes_on_while_another_is_decoded(tmp_path: Path) -> None:
    Image.new("RGB", (16, 16)).save(tmp_path / "0.jpg")
    make, _ = maker(tmp_path, Decoder(), size=8)
    counting = threading.Thread(target=make._count, args=(1, 0))
    with make._lock:  # as a thread holds it that decodes a whole batch
        counting.start()
        counting.join(5)
        assert not counting.is_alive()


def test_prefetched_batches_are_those_in_work_and_the_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    real = BatchMaker.__call__

    def counted(self: BatchMaker, samples: Any, *rest: Any) -> Any:
        made.append(len(samples[0]))
        return real(self, samples, *rest)

    monkeypatch.setattr(BatchMaker, "__call__", counted)
    loader: Any = open_loader(candidate("nvjpeg", 2, 2, prefetch_depth=3), workload(image_size=16), scan(PHOTOS))
    stream = iter(loader)
    next(stream)
    pool = loader._threads
    assert (pool._workers, pool._ahead) == (2, 5)
    loader.close()
    assert 1 <= len(made) <= 6


@pytest.mark.parametrize("name", ["nvjpeg", "nvimagecodec"])
@pytest.mark.parametrize("changes", [{"transfer": "uint8"}, {"channels_last": True}, {"in_order": False}])
def test_settings(name: str, changes: dict[str, Any]) -> None:
    if name == "nvimagecodec":
        pytest.importorskip("nvidia.nvimgcodec", reason="nvImageCodec is not installed")
    chosen: Candidate = replace(candidate(name, 1, 4), **changes)
    plain = candidate(name, 1, 4)
    batches = []
    for one in (chosen, plain):
        loader = open_loader(one, workload(image_size=32), scan(PHOTOS))
        (batch,) = itertools.islice(iter(loader), 1)
        loader.close()
        batches.append(batch)
    ours, theirs = batches
    assert ours.images.dtype == (torch.uint8 if chosen.transfer == "uint8" else torch.float32)
    assert ours.images.is_contiguous(memory_format=torch.channels_last) is chosen.channels_last
    if chosen.transfer == "float32":
        assert torch.allclose(ours.images, theirs.images, atol=1e-5)


def test_without_reading_it_makes_the_same_batches_of_files_that_are_gone(tmp_path: Path) -> None:
    """As ``explain`` measures it: what comes before decoding is left out."""
    for path in sorted(PHOTOS.glob("*/*.jpg")):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    images = scan(tmp_path)
    whole, held = (
        open_loader(CHOSEN, workload(image_size=32), images, stages)
        for stages in ((), (DECODE, TRANSFORM, COLLATE, HAND_OVER))
    )
    (expected,) = itertools.islice(iter(whole), 1)
    whole.close()
    for path in tmp_path.iterdir():
        path.unlink()
    (batch,) = itertools.islice(iter(held), 1)
    held.close()
    assert torch.equal(batch.images, expected.images)
