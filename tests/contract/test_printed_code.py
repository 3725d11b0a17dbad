"""The code that a sweep prints loads the images, labels and pixels that were measured, whatever lies in the folder."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the code is for torch")
Image = pytest.importorskip("PIL.Image", reason="the reference decodes with Pillow")

from pipetune.datasets.image_notes import list_image_notes  # noqa: E402
from pipetune.datasets.index import ImageSet, replace_images  # noqa: E402
from pipetune.datasets.open_dataset import open_dataset  # noqa: E402
from pipetune.datasets.pillow_rgb import to_rgb  # noqa: E402
from pipetune.records.sweep import Candidate  # noqa: E402
from pipetune.registry import BACKENDS, min_workers  # noqa: E402
from pipetune.report.code import code_for  # noqa: E402
from pipetune.sweeping.summaries import summary_of  # noqa: E402
from tests.bad_images import without_tables  # noqa: E402
from tests.contract.printed_code import STEP, describe, encoded  # noqa: E402
from tests.contract.test_backends import require  # noqa: E402
from tests.odd_images import EXIF, XMP, entry, short, tiff  # noqa: E402
from tests.photo_set import candidate  # noqa: E402
from tests.unit.datasets.images import segment, with_segments  # noqa: E402

#: Of each template one, and one that always takes ``open_loader``. DALI last: its threads do not survive a fork.
TEMPLATES = ("pillow", "opencv", "torchvision", "torchcodec", "jpeg-roi", "dali")
HEIC = b"\0\0\0\x18ftypheic" + bytes(200)


def fill(root: Path, files: dict[str, bytes]) -> None:
    """Four plain images in two classes, and these."""
    plain = {f"{name}/{number}.jpg": encoded(number) for name, number in (("a", 1), ("a", 2), ("b", 3), ("b", 4))}
    for name, data in (plain | files).items():
        path = Path(os.fsdecode(os.fsencode(root) + b"/" + os.fsencode(name)))
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(data)


def grey16(number: int) -> bytes:
    import io

    out = io.BytesIO()
    Image.fromarray(np.full((96, 128), number * STEP * 256 + 90, np.uint16)).save(out, "PNG")
    return out.getvalue()


def animated() -> bytes:
    from tests.contract.printed_code import picture

    return encoded(5, "WEBP", save_all=True, append_images=[picture(9)], duration=50, quality=95)


def turned(block: bytes, form: str = "JPEG", number: int = 5) -> bytes:
    return encoded(number, form, exif=EXIF + block if form == "JPEG" else block)


SIX = tiff("<", short("<", 6))
THREE = tiff("<", short("<", 3))
LONG = tiff("<", entry("<", struct.pack("<I", 6), 4))
BIG_LONG = tiff(">", entry(">", struct.pack(">I", 6), 4))


def case(files: dict[str, bytes]) -> Callable[[Path], None]:
    return lambda root: fill(root, files)


def flat(files: dict[str, bytes]) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        root.mkdir(parents=True)
        for number in (1, 2, 3):
            (root / f"{number}.jpg").write_bytes(encoded(number))
        for name, data in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)

    return make


def linked_in_a_circle(root: Path) -> None:
    fill(root, {})
    (root / "a" / "up").symlink_to(root)


CASES: dict[str, Callable[[Path], None]] = {
    "plain": case({}),
    "capitals": case({"b/5.JPG": encoded(5), "a/6.JPEG": encoded(6), "B/7.Png": encoded(7, "PNG")}),
    "nested": case({"a/deep/5.jpg": encoded(5), "c/deep/er/6.jpg": encoded(6)}),
    "heic_called_jpg": case({"a/IMG_1.jpg": HEIC}),
    "cut_off": case({"a/5.jpg": encoded(5)[:-300]}),
    "other_endings": case(
        {"a/5.bmp": encoded(5, "BMP"), "a/6.tif": encoded(6, "TIFF"), "b/7.ppm": encoded(7, "PPM"),
         "b/8.gif": encoded(8, "GIF")}
    ),
    "empty_class": case({"aa/": b""}),
    "class_of_texts": case({"aa/readme.txt": b"text"}),
    "hidden_folder": case({".ipynb_checkpoints/": b""}),
    "macos": case({"a/._1.jpg": b"\0\5\x16\7" + bytes(90), "__MACOSX/a/._1.jpg": b"\0\5\x16\7" + bytes(90)}),
    "beside": case({"5.jpg": encoded(5)}),
    "grey16": case({"a/5.png": grey16(5), "b/6.png": grey16(6)}),
    "palette": case({"a/5.png": encoded(5, "PNG"), "a/6.webp": encoded(6, "WEBP", quality=95)}),
    "turned": case({"a/5.jpg": turned(SIX), "b/6.jpg": turned(THREE, number=6)}),
    "turned_png": case({"a/5.png": turned(SIX, "PNG")}),
    "turned_webp": case({"a/5.webp": turned(SIX, "WEBP")}),
    "long_orientation": case({"a/5.jpg": turned(LONG), "b/6.jpg": turned(BIG_LONG, number=6)}),
    "behind_xmp": case({"a/5.jpg": with_segments(encoded(5), segment(0xE1, XMP), segment(0xE1, EXIF + SIX))}),
    "two_exif": case({"a/5.jpg": with_segments(encoded(5), segment(0xE1, EXIF + SIX), segment(0xE1, EXIF + THREE))}),
    "animated": case({"a/5.webp": animated()}),
    "not_utf8": case({"a/\udcff.jpg": encoded(5)}),
    "circle": linked_in_a_circle,
    "dangling": lambda root: (fill(root, {}), (root / "a" / "x.jpg").symlink_to("nowhere"))[0],
    "undecodable": case({"a/5.jpg": without_tables(encoded(5))}),
    "one_class": lambda root: (fill(root, {}), os.rename(root / "b", root.parent / "moved"))[0],
    "splits": lambda root: (fill(root / "train", {}), fill(root / "val", {"c/7.jpg": encoded(7)}))[0],
    "flat": flat({}),
    "flat_with_metadata": flat({"metadata.csv": b"file_name,label\n1.jpg,3\n", "notes/readme.txt": b"text"}),
    "flat_with_others": flat({"4.bmp": encoded(4, "BMP"), "5.jpg": HEIC, "6.png": encoded(6, "PNG")}),
}  # fmt: skip


def measured(root: Path) -> ImageSet:
    """The images as a sweep ends with them: what does not decode was replaced."""
    images = open_dataset(str(root), seed=0, limit_bytes=1 << 40, workers=1)
    bad = {
        position: "does not decode"
        for position, image in enumerate(images.images)
        if (data := Path(image.path).read_bytes())[:2] == b"\xff\xd8" and b"\xff\xdb" not in data
    }
    return replace_images(images, bad) if bad else images


def expected(images: ImageSet) -> dict[str, int]:
    seen: Counter[str] = Counter()
    for image in {image.path: image for image in images.images}.values():
        pixels = to_rgb(Image.open(image.path), image.orientation)
        seen[describe(np.asarray(pixels).transpose(2, 0, 1), image.label)] += 1
    return dict(sorted(seen.items()))


def code(images: ImageSet, chosen: Candidate) -> str:
    data = summary_of(images, "")
    return code_for(
        chosen, root=data["root"], image_size=32, flat=data["classes"] <= 1, on_gpu=False, run_folder="/runs/one",
        plain=data["plain"], nested=data["nested"], empty_classes=bool(data["empty_classes"]),
        leave_out=data["undecodable"],
    )  # fmt: skip


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ImageSet]:
    folder = tmp_path_factory.mktemp("cases")
    for name, make in CASES.items():
        make(folder / name / "data")
    return {name: measured(folder / name / "data") for name in CASES}


@pytest.mark.parametrize(
    "backend", [TEMPLATES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in TEMPLATES[1:])]
)
def test_printed_code_loads_what_was_measured(
    backend: str, sets: dict[str, ImageSet], request: pytest.FixtureRequest
) -> None:
    require(request, backend)
    chosen = candidate(backend, min_workers(BACKENDS[backend]), batch_size=1)
    codes = {name: code(images, chosen) for name, images in sets.items()}
    done = subprocess.run(
        [sys.executable, "-m", "tests.contract.printed_code"], input=json.dumps(codes), capture_output=True, text=True,
        check=False, timeout=200, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen == {name: expected(images) for name, images in sets.items()}


def test_a_plain_folder_gets_plain_code(sets: dict[str, ImageSet]) -> None:
    plain = {name for name, images in sets.items() if images.plain}
    assert plain == {
        "plain", "capitals", "nested", "palette", "turned", "one_class", "splits", "flat", "flat_with_metadata",
    }  # fmt: skip
    assert "ImageFolder(ROOT" in code(sets["plain"], candidate("pillow", 0))
    assert "open_loader" in code(sets["nested"], candidate("dali", 1))


def test_what_is_not_as_the_user_may_think_is_told(sets: dict[str, ImageSet]) -> None:
    told = {name: " | ".join(list_image_notes(images)) for name, images in sets.items()}
    assert told["plain"] == ""
    assert "3 images, no labels found: all are class 0" in told["flat_with_metadata"]
    assert "1 class folder has no images: " in told["empty_class"]
    assert "the folder 'train' is used, as the training split, and not 'val'" in told["splits"]
    assert "macOS metadata" in told["macos"]
    assert ".bmp images are not read" in told["other_endings"]
