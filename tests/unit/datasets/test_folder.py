from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from pipetune.datasets.folder import scan_folder, throttle
from pipetune.datasets.image_header import Header
from pipetune.datasets.index import ImageSet
from pipetune.datasets.usable_image import read_usable
from pipetune.errors import UsageError
from tests.unit.datasets.images import encode, exif

JPEG = encode()


def put(file: Path | bytes, data: bytes = JPEG) -> None:
    path = os.fsdecode(file)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as out:
        out.write(data)


def scan(root: Path, *, limit_images: int = 1000, limit_bytes: int = 2**30, seed: int = 0) -> ImageSet:
    return scan_folder(str(root), limit_images=limit_images, limit_bytes=limit_bytes, seed=seed)


def names(image_set: ImageSet) -> list[str]:
    return [os.path.relpath(image.path, image_set.root) for image in image_set.images]


def reasons(image_set: ImageSet) -> dict[str, str]:
    return {os.path.relpath(path, image_set.root): reason for path, reason in image_set.skipped}


def test_class_folders_are_labelled_as_torchvision_does(tmp_path: Path) -> None:
    for name in ("b/2.jpg", "b/1.JPEG", "a/deep/er/3.png", "a/4.webp", "B/5.jpg"):
        put(tmp_path / name)
    (tmp_path / "empty").mkdir()
    put(tmp_path / "texts" / "a.txt", b"text")
    found = scan(tmp_path)
    assert found.classes == ("B", "a", "b")
    assert [(name, image.label) for name, image in zip(names(found), found.images, strict=True)] == [
        ("B/5.jpg", 0), ("a/4.webp", 1), ("a/deep/er/3.png", 1), ("b/1.JPEG", 2), ("b/2.jpg", 2),
    ]  # fmt: skip
    assert (found.found_images, found.skipped_count) == (5, 0)
    assert found.name == tmp_path.name


def test_labels_match_torchvision(tmp_path: Path) -> None:
    torchvision = pytest.importorskip("torchvision", reason="what is tested is compared with torchvision")
    for name in ("n02/x.jpg", "n01/y/z.jpg", "n01/a.jpg", "N03/b.jpg", "10/c.jpg", "9/d.jpg"):
        put(tmp_path / name)
    theirs = torchvision.datasets.ImageFolder(str(tmp_path))
    ours = scan(tmp_path)
    assert list(ours.classes) == theirs.classes
    assert {(image.path, image.label) for image in ours.images} == set(theirs.samples)


def test_a_flat_folder_is_one_class(tmp_path: Path) -> None:
    put(tmp_path / "2.jpg", encode(size=(64, 48), exif=b"Exif\0\0" + exif(6)))
    put(tmp_path / "1.jpg", encode("PNG", mode="L"))
    found = scan(tmp_path)
    assert (found.classes, names(found)) == ((tmp_path.name,), ["1.jpg", "2.jpg"])
    first, second = found.images
    assert (first.format, first.label, first.progressive) == ("png", 0, False)
    assert (second.format, second.orientation, second.upright_size) == ("jpeg", 6, (48, 64))
    assert second.size_bytes == (tmp_path / "2.jpg").stat().st_size


def test_images_beside_class_folders_are_named(tmp_path: Path) -> None:
    put(tmp_path / "a" / "1.jpg")
    put(tmp_path / "2.jpg")
    found = scan(tmp_path)
    assert names(found) == ["a/1.jpg"]
    assert reasons(found) == {"2.jpg": "is not in a class folder, so it has no class"}


def test_odd_names_survive(tmp_path: Path) -> None:
    odd = [
        b"new\nline",
        b"\xff\xfe",
        b" spaces ",
        b"<script>alert(1)</script"[:-1],
        b"a\\b",
        "ä😀".encode(),
        b"-rf",
        b"%s{}",
    ]
    for name in odd:
        put(os.fsencode(tmp_path) + b"/" + name.replace(b"/", b"") + b"/" + name.replace(b"/", b"") + b".jpg")
    found = scan(tmp_path)
    assert found.skipped_count == 0
    assert {os.fsencode(os.path.basename(image.path)) for image in found.images} == {
        name.replace(b"/", b"") + b".jpg" for name in odd
    }
    assert len(found.classes) == len(odd)


def test_broken_files_are_skipped_with_a_reason(tmp_path: Path) -> None:
    put(tmp_path / "a" / "good.jpg")
    put(tmp_path / "a" / "zero.jpg", b"")
    put(tmp_path / "a" / "text.jpg", b"hello, world")
    put(tmp_path / "a" / "short.jpg", JPEG[:90])
    put(tmp_path / "a" / "deep.png", encode("PNG", mode="I;16"))
    put(tmp_path / "a" / "cmyk.jpg", encode(mode="CMYK"))
    put(tmp_path / "a" / "anim.gif", b"GIF89a")
    put(tmp_path / "a" / "notes.txt", b"no image")
    (tmp_path / "a" / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (tmp_path / "a" / "dir.jpg").mkdir()
    os.mkfifo(tmp_path / "a" / "pipe.jpg")
    found = scan(tmp_path)
    assert names(found) == ["a/cmyk.jpg", "a/deep.png", "a/good.jpg"]
    assert reasons(found) == {
        "a/zero.jpg": "empty file",
        "a/text.jpg": "not a JPEG, PNG or WebP: begins with b'hello, w'",
        "a/short.jpg": "cut off after 90 bytes, before the image's size",
        "a/anim.gif": ".gif images are not read",
        "a/gone.jpg": "a dangling link",
        "a/pipe.jpg": "not a regular file",
    }
    assert (found.skipped_count, found.found_images) == (6, 6)


def test_links_are_followed_and_circles_end(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere" / "1.jpg")
    root = tmp_path / "root"
    put(root / "a" / "2.jpg")
    (root / "b").symlink_to(tmp_path / "elsewhere")
    (root / "a" / "up").symlink_to(root)
    (root / "a" / "self").symlink_to(root / "a")
    (root / "loop").symlink_to(root / "loop")
    (root / "a" / "3.jpg").symlink_to(tmp_path / "elsewhere" / "1.jpg")
    found = scan(root)
    assert names(found) == ["a/2.jpg", "a/3.jpg", "b/1.jpg"]
    assert reasons(found) == {
        **dict.fromkeys(["a/self", "a/up"], "a link to a directory that was already read"),
        "loop": "cannot be accessed: Too many levels of symbolic links",
    }


def test_a_crowd_of_crossing_links_ends(tmp_path: Path) -> None:
    for one in range(12):
        put(tmp_path / "class" / f"d{one}" / "x.jpg")
        for other in range(12):
            (tmp_path / "class" / f"d{one}" / f"to{other}").symlink_to(tmp_path / "class" / f"d{other}")
    assert scan(tmp_path).found_images == 12


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("depth", "name", "reason"),
    [(1050, "d", "a dangling link"), (25, 200 * "d", "cannot list the directory: File name too long")],
)
def test_deep_trees_do_not_overflow(depth: int, name: str, reason: str, tmp_path: Path) -> None:
    put(tmp_path / "a" / "1.jpg")
    fd = os.open(tmp_path / "a", os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=fd)
        fd, above = os.open(name, os.O_RDONLY, dir_fd=fd), fd
        os.close(above)
    os.symlink("nowhere", "2.jpg", dir_fd=fd)
    os.close(fd)
    found = scan(tmp_path)
    subprocess.run(["rm", "-rf", str(tmp_path / "a")], check=True)  # shutil.rmtree is recursive
    assert names(found) == ["a/1.jpg"]
    assert list(reasons(found).values()) == [reason]


def test_unreadable_things_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "a" / "1.jpg")
    put(tmp_path / "a" / "2.jpg")
    put(tmp_path / "a" / "secret" / "3.jpg")
    real_scandir, real_open = os.scandir, os.open

    def scandir(path: str) -> object:
        if path.endswith("secret"):
            raise PermissionError(13, "Permission denied", path)
        return real_scandir(path)

    def open_file(path: str, flags: int) -> int:
        if path.endswith("2.jpg"):
            raise PermissionError(13, "Permission denied", path)
        return real_open(path, flags)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(os, "open", open_file)
    found = scan(tmp_path)
    assert names(found) == ["a/1.jpg"]
    assert reasons(found) == {
        "a/secret": "cannot list the directory: Permission denied",
        "a/2.jpg": "Permission denied",
    }


@pytest.mark.usefixtures("no_right_to_read_everything")
def test_real_permissions(tmp_path: Path) -> None:
    put(tmp_path / "a" / "1.jpg")
    put(tmp_path / "a" / "2.jpg")
    os.chmod(tmp_path / "a" / "2.jpg", 0)
    assert reasons(scan(tmp_path)) == {"a/2.jpg": "Permission denied"}


def test_kept_names_are_limited_and_all_are_counted(tmp_path: Path) -> None:
    for number in range(250):
        put(tmp_path / "a" / f"{number}.jpg", b"")
    put(tmp_path / "a" / "good.jpg")
    found = scan(tmp_path)
    assert (len(found.skipped), found.skipped_count) == (200, 250)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of 300, 90 and 10 images."""
    root = tmp_path_factory.mktemp("large")
    for name, count in (("a", 300), ("b", 90), ("c", 10)):
        for number in range(count):
            put(root / name / f"{number:03}.jpg")
    return root


def test_a_subset_is_spread_over_the_classes(large: Path) -> None:
    found = scan(large, limit_images=40)
    counts = Counter(image.label for image in found.images)
    assert (found.found_images, len(found.images)) == (400, 40)
    assert counts[0] in (29, 30, 31)
    assert counts[1] in (8, 9, 10)
    assert counts[2] in (0, 1, 2)
    assert found.classes == ("a", "b", "c")


def test_a_subset_follows_the_seed(large: Path) -> None:
    first = scan(large, limit_images=40)
    assert first == scan(large, limit_images=40)
    assert names(first) != names(scan(large, limit_images=40, seed=1))
    assert names(first) == sorted(names(first))


def test_bytes_limit_the_subset(large: Path) -> None:
    found = scan(large, limit_bytes=100 * len(JPEG) + 5)
    assert (len(found.images), found.found_images) == (100, 400)
    assert Counter(image.label for image in found.images)[1] in (21, 22, 23, 24)
    both = scan(large, limit_images=300, limit_bytes=100 * len(JPEG))
    assert len(both.images) == 100
    assert len(scan(large, limit_bytes=1).images) == 1


def test_broken_images_of_a_subset_are_replaced(tmp_path: Path) -> None:
    for number in range(60):
        put(tmp_path / "a" / f"{number}.jpg", JPEG if number % 2 else b"")
    found = scan(tmp_path, limit_images=20)
    assert len(found.images) == 20
    assert found.skipped_count > 5


def test_only_the_subset_is_opened(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def counted(path: str, *arguments: int, **more: bool) -> Header:
        opened.append(path)
        return read_usable(path, *arguments, **more)

    monkeypatch.setattr("pipetune.datasets.folder.read_usable", counted)
    scan(large, limit_images=25)
    assert len(opened) == 25


def refusal(root: Path | str) -> str:
    with pytest.raises(UsageError) as caught:
        scan_folder(str(root), limit_bytes=2**30, seed=0)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_refusals_name_the_value_and_the_next_step(tmp_path: Path) -> None:
    put(tmp_path / "file.jpg")
    (tmp_path / "empty").mkdir()
    put(tmp_path / "texts" / "a" / "1.txt", b"")
    put(tmp_path / "texts" / "2.csv", b"")
    put(tmp_path / "broken" / "1.jpg", b"")
    missing = refusal(tmp_path / "nope" / "deeper")
    assert f"no such directory: '{tmp_path}/nope/deeper'; '{tmp_path}' exists" in missing
    assert "is one image" in refusal(tmp_path / "file.jpg")
    assert "0 other files" in refusal(tmp_path / "empty")
    texts = refusal(tmp_path / "texts")
    assert "2 other files" in texts
    assert ".jpg .jpeg .png .webp" in texts
    assert "synthetic:caltech256" in texts
    assert "1 skipped (the first: " in refusal(tmp_path / "broken")
    assert "empty file" in refusal(tmp_path / "broken")
    (tmp_path / "new\nline").mkdir()
    assert "new\\nline" in refusal(tmp_path / "new\nline")
    assert "\\udcff" in refusal(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    with pytest.raises(UsageError, match="a limit of 0 leaves no images"):
        scan(tmp_path, limit_images=0)


def test_progress_reports_stages_in_order(large: Path) -> None:
    calls: list[tuple[str, int, int | None]] = []
    scan_folder(str(large), limit_bytes=2**30, seed=0, progress=lambda *call: calls.append(call))
    stages = list(dict.fromkeys(stage for stage, _, _ in calls))
    assert stages == ["finding images", "reading sizes", "reading headers"]
    assert calls[-1] == ("reading headers", 400, 400)
    assert len(calls) < 30


def test_throttle_keeps_first_and_last(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("pipetune.datasets.folder.time.monotonic", lambda: now[0])
    calls: list[tuple[str, int, int | None]] = []
    report = throttle(lambda *call: calls.append(call))
    for number in range(1, 101):
        report("a", number, 100)
        now[0] += 0.01
    report("b", 1, None)
    assert calls[0] == ("a", 1, 100)
    assert calls[-2:] == [("a", 100, 100), ("b", 1, None)]
    assert 10 <= len(calls) <= 14
