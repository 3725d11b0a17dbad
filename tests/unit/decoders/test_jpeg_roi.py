from __future__ import annotations

import ctypes
import os
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch", reason="what is tested handles tensors")

from pipetune.datasets.image_scans import MOST_SCANS  # noqa: E402
from pipetune.datasets.index import ImageSet  # noqa: E402
from pipetune.datasets.open_dataset import open_dataset  # noqa: E402
from pipetune.decoders import jpeg_roi, jpeg_roi_fast  # noqa: E402
from pipetune.decoders.contract import (  # noqa: E402
    Array,
    BadImage,
    Files,
    FillFunction,
    LoadFunction,
)
from pipetune.decoders.crop import draw_crop  # noqa: E402
from pipetune.decoders.jpeg_roi_library import CFiles, require_library  # noqa: E402
from pipetune.decoders.layout import Layout  # noqa: E402
from pipetune.errors import MissingPackageError  # noqa: E402
from pipetune.install import load_jpeg_roi  # noqa: E402
from pipetune.install.find import Compiled  # noqa: E402
from pipetune.loaders.photos import Photos  # noqa: E402
from tests.unit.datasets.images import with_scans  # noqa: E402

pytestmark = pytest.mark.usefixtures("jpeg_roi")

SIZE = 24
LAYOUTS = [Layout(size=SIZE, uint8=uint8, channels_last=last) for uint8 in (False, True) for last in (False, True)]


def test_its_crops_are_the_ones_that_python_draws() -> None:
    empty = np.zeros(0, np.int64)
    files = CFiles.of(Files(np.zeros(1, np.uint8), empty, np.zeros(0, np.uint8), None, np.zeros((0, 2), np.int32)))
    draw = require_library().pipetune_jpeg_roi_draw
    drawn = (ctypes.c_int * 5)()
    numbers = np.random.default_rng(0)
    found = 0
    for seed in (0, 7, 2**63 + 11):
        for sample_index in numbers.integers(0, 2**40, 3000).tolist():
            height = int(2 ** numbers.uniform(0, 13))
            width = max(1, int(height * numbers.uniform(0.4, 2.5)))
            if not draw(ctypes.byref(files), seed, sample_index, height, width, drawn):
                continue  # left to Python
            found += 1
            assert tuple(drawn) == draw_crop(seed, sample_index, height, width), (seed, sample_index, height, width)
    assert found > 7000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 images: among the JPEGs a PNG, one that is to be rotated, one with four colours and a grey one."""
    folder = tmp_path_factory.mktemp("photos") / "a"
    folder.mkdir()
    numbers = np.random.default_rng(1)
    for number in range(20):
        height, width = numbers.integers(40, 120, 2).tolist()
        noise = numbers.integers(0, 256, (6, 6, 3)).astype(np.uint8)
        image = Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)
        if number == 5:
            image.save(folder / "05.png")
            continue
        exif = Image.Exif()
        if number == 9:
            exif[0x0112] = 6
        image.convert({12: "CMYK", 15: "L"}.get(number, "RGB")).save(
            folder / f"{number:02}.jpg", quality=92, subsampling=number % 3, exif=exif
        )
    return folder.parent


def index(path: Path) -> ImageSet:
    return open_dataset(str(path), seed=0, limit_images=10**6, limit_bytes=2**40, workers=1, progress=None)


BACKENDS = pytest.mark.parametrize(
    ("load", "fill_some"),
    [(jpeg_roi.load, jpeg_roi.fill_some), (jpeg_roi_fast.load, jpeg_roi_fast.fill_some)],
    ids=["jpeg-roi", "jpeg-roi-fast"],
)


def counted(fill_some: FillFunction, counts: list[int]) -> FillFunction:
    def fill(files: Files, sample_indices: object, seed: int, samples: Array) -> int:
        counts.append(fill_some(files, sample_indices, seed, samples))  # type: ignore[arg-type]
        return counts[-1]

    return fill


@BACKENDS
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_several_at_once_are_the_same_as_one_by_one(
    folder: Path, layout: Layout, load: LoadFunction, fill_some: FillFunction
) -> None:
    images = index(folder)
    counts: list[int] = []
    sample_indices = [*range(40), 10**12 + 3]
    one, other = (np.zeros(layout.shape(len(sample_indices)), layout.dtype) for _ in range(2))
    Photos(images, load, layout, 3).fill(sample_indices, one)
    Photos(images, load, layout, 3, counted(fill_some, counts)).fill(sample_indices, other)
    assert np.array_equal(one, other)
    assert one.std() > 0.2
    # The PNG, the rotated one and the one with four colours are left to the other way, twice each.
    assert sum(counts) == len(sample_indices) - 6


@BACKENDS
def test_members_of_tar_shards(folder: Path, tmp_path: Path, load: LoadFunction, fill_some: FillFunction) -> None:
    files = sorted(path for path in (folder / "a").iterdir() if path.suffix == ".jpg")
    for number, part in enumerate((files[:7], files[7:])):
        with tarfile.open(tmp_path / f"{number}.tar", "w") as tar:
            for path in part:
                tar.add(path, path.name)
                (tmp_path / "label").write_text("0")
                tar.add(tmp_path / "label", f"{path.stem}.cls")
    (tmp_path / "label").unlink()
    images = index(tmp_path)
    assert images.in_shards
    counts: list[int] = []
    layout = LAYOUTS[0]
    one, other = (np.zeros(layout.shape(19), layout.dtype) for _ in range(2))
    Photos(images, load, layout, 0).fill(range(19), one)
    Photos(images, load, layout, 0, counted(fill_some, counts)).fill(range(19), other)
    assert np.array_equal(one, other)
    assert sum(counts) == 17


@BACKENDS
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:300]),
        lambda path: path.write_bytes(b"no JPEG any more"),
    ],
    ids=["gone", "empty", "cut off", "overwritten"],
)
def test_a_bad_file_is_named_and_the_ones_before_it_are_there(
    folder: Path, tmp_path: Path, damage: Callable[[Path], None], load: LoadFunction, fill_some: FillFunction
) -> None:
    names = [f"{number:02}.jpg" for number in range(4)]
    (tmp_path / "a").mkdir()
    for name in names:
        (tmp_path / "a" / name).write_bytes((folder / "a" / name).read_bytes())
    images = index(tmp_path)
    damage(tmp_path / "a" / names[2])
    layout = LAYOUTS[1]
    batch = np.zeros(layout.shape(4), layout.dtype)
    photos = pickle.loads(pickle.dumps(Photos(images, load, layout, 0, fill_some)))
    with pytest.raises(BadImage, match=r"a/02\.jpg"):
        photos.fill(range(4), batch)
    assert batch[:2].std() > 0.2
    assert not batch[3].any()


def test_more_tickets_than_places_are_refused(folder: Path) -> None:
    layout = LAYOUTS[0]
    photos = Photos(index(folder), jpeg_roi.load, layout, 0, jpeg_roi.fill_some)
    with pytest.raises(IndexError, match="4 samples for 2 places"):
        photos.fill(range(4), np.zeros(layout.shape(2), layout.dtype))


def test_a_library_of_another_machine_is_built_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jpeg_roi.so").write_bytes(b"no library")
    found = Compiled(library="2.1.5", path=str(tmp_path / "jpeg_roi.so"))
    monkeypatch.setattr(load_jpeg_roi, "find_jpeg_roi", lambda: found)
    with pytest.raises(MissingPackageError, match=r"does not load: .*; run: pipetune doctor --install jpeg-roi"):
        require_library.__wrapped__()


@BACKENDS
def test_it_stops_when_it_is_asked_to(folder: Path, load: LoadFunction, fill_some: FillFunction) -> None:
    layout = LAYOUTS[1]
    batch = np.zeros(layout.shape(32), layout.dtype)
    answers = iter([False, True])
    Photos(index(folder), load, layout, 0, fill_some).fill(range(32), batch, lambda: next(answers))
    assert not batch[9:].any()


@BACKENDS
def test_too_many_scans_are_an_error_and_no_work_for_another_decoder(
    tmp_path: Path, load: LoadFunction, fill_some: FillFunction
) -> None:
    (tmp_path / "bomb.jpg").write_bytes(with_scans((64, 64), MOST_SCANS))
    out = np.zeros(LAYOUTS[0].shape(1), LAYOUTS[0].dtype)
    with pytest.raises(BadImage, match=r"bomb\.jpg.*more than 100 scans"):
        Photos(index(tmp_path), load, LAYOUTS[0], 0, fill_some).fill([0], out)
    (tmp_path / "bomb.jpg").write_bytes(with_scans((64, 64), MOST_SCANS - 20))
    counts: list[int] = []
    Photos(index(tmp_path), load, LAYOUTS[0], 0, counted(fill_some, counts)).fill([0], out)
    assert counts == [1]


_MEMORY = """
import sys
from pathlib import Path
import numpy as np
from pipetune.datasets.open_dataset import open_dataset
from pipetune.decoders import jpeg_roi
from pipetune.decoders.layout import Layout
from pipetune.loaders.photos import Photos

folder = Path(sys.argv[1])
images = open_dataset(str(folder), seed=0, limit_bytes=2**40, workers=1)
layout = Layout(size=24, uint8=True, channels_last=True)
out = np.zeros(layout.shape(1), layout.dtype)
photos = Photos(images, jpeg_roi.load, layout, 0, jpeg_roi.fill_some)

def held():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) >> 10

photos.fill([1], out)
print(held())
with (folder / "a.jpg").open("ab") as file:
    file.write(bytes(50 << 20))
for number in (0, 1):
    photos.fill([number], out)
    print(held())
"""


def test_memory_for_a_large_file_is_not_kept_for_small_ones(tmp_path: Path) -> None:
    """A JPEG may have any number of bytes behind its end. In a process that has freed no other memory."""
    for name in "ab":
        Image.new("RGB", (64, 64)).save(tmp_path / f"{name}.jpg")
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY, str(tmp_path)], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    before, large, after = (int(line) for line in done.stdout.split())
    assert large > before + 40, "the file was read"
    assert after < before + 10


@BACKENDS
def test_a_named_pipe_is_not_waited_for(tmp_path: Path, load: LoadFunction, fill_some: FillFunction) -> None:
    Image.new("RGB", (64, 64)).save(tmp_path / "a.jpg")
    images = index(tmp_path)
    (tmp_path / "a.jpg").unlink()
    os.mkfifo(tmp_path / "a.jpg")
    out = np.zeros(LAYOUTS[0].shape(1), LAYOUTS[0].dtype)
    with pytest.raises(BadImage, match="not a regular file"):
        Photos(images, load, LAYOUTS[0], 0, fill_some).fill([0], out)
