from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipetune.datasets import photo_makers, synthetic_cache
from pipetune.datasets.index import ImageSet
from pipetune.datasets.photo_like import GENERATOR_VERSION
from pipetune.datasets.photo_makers import PhotoJob, make_photos
from pipetune.datasets.synthetic import open_synthetic
from pipetune.datasets.synthetic_cache import cache_root, is_complete
from pipetune.datasets.synthetic_uri import parse_uri
from pipetune.errors import PipetuneError

URI = "synthetic:caltech256?n=12&seed=3&classes=4"
FOLDER = f"caltech256-n12-s3-c4-v{GENERATOR_VERSION}"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of this test."""
    monkeypatch.setenv("PIPETUNE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(photo_makers, "forget_noise", lambda: None)  # half a second to make again
    return tmp_path / "synthetic"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[PhotoJob]:
    """The jobs that were given to the makers."""
    jobs: list[PhotoJob] = []

    def counted(job: PhotoJob, **options: object) -> None:
        jobs.append(job)
        make_photos(job, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(synthetic_cache, "make_photos", counted)
    return jobs


def opened(uri: str = URI, workers: int = 1) -> ImageSet:
    return open_synthetic(uri, workers=workers)


def visible(root: Path) -> list[str]:
    return sorted(name for name in os.listdir(root) if not name.endswith(".lock"))


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIPETUNE_CACHE_DIR", "~/here")
    assert cache_root() == str(tmp_path / "here" / "synthetic")
    monkeypatch.delenv("PIPETUNE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == str(tmp_path / "xdg" / "pipetune" / "synthetic")


@pytest.mark.thorough
def test_a_set_is_made_once(root: Path, made: list[PhotoJob]) -> None:
    first = opened()
    assert (first.name, first.root, first.found_images, len(first.classes)) == (URI, str(root / FOLDER), 12, 4)
    assert [image.label for image in first.images] == sorted(3 * [0, 1, 2, 3])
    assert opened() == opened("synthetic:caltech256?classes=4&seed=3&n=12") == first
    assert len(made) == 1
    assert visible(root) == [FOLDER]
    assert opened("synthetic:caltech256?n=12&seed=4&classes=4").fingerprint != first.fingerprint
    assert len(made) == 2


@pytest.mark.thorough
def test_a_set_is_made_by_processes(root: Path) -> None:
    assert len(opened("synthetic:caltech256?n=100&classes=2", workers=2).images) == 100


def damage(folder: Path, how: str) -> None:
    file = next(folder.rglob("*.jpg"))
    if how == "removed":
        file.unlink()
    elif how == "truncated":
        os.truncate(file, 10)
    elif how == "no marker":
        (folder / "complete.json").unlink()
    elif how == "torn marker":
        (folder / "complete.json").write_text('{"count": 12,')
    elif how == "other marker":
        (folder / "complete.json").write_text("[]")
    else:
        shutil.rmtree(file.parent)


@pytest.mark.parametrize("how", ["removed", "truncated", "no marker", "torn marker", "other marker", "a class gone"])
def test_a_damaged_set_is_made_again(how: str, root: Path, made: list[PhotoJob]) -> None:
    first = opened()
    damage(root / FOLDER, how)
    assert not is_complete(str(root / FOLDER), parse_uri(URI))
    assert opened() == first
    assert len(made) == 2
    assert visible(root) == [FOLDER]


def test_an_interrupt_leaves_nothing(root: Path) -> None:
    def interrupt(stage: str, done: int, total: int | None) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_synthetic(URI, workers=1, progress=interrupt)
    assert visible(root) == []
    assert len(opened().images) == 12


SCRIPT = """
import sys
from pipetune.datasets.synthetic import open_synthetic
found = open_synthetic(sys.argv[1], workers=2)
print(len(found.images), found.fingerprint)
"""


def start(uri: str) -> subprocess.Popen[str]:
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", SCRIPT, uri], env=path, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_leaves_nothing_that_looks_complete(number: signal.Signals, root: Path) -> None:
    uri = "synthetic:caltech256?n=5000&classes=1"
    with start(uri) as process:
        deadline = time.monotonic() + 30
        while not list(root.glob("*.partial-*/*/*.jpg")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
    (left,) = visible(root)
    assert ".partial-" in left
    assert not is_complete(str(root / left), parse_uri(uri))
    opened()  # another set: whoever makes one next clears away
    assert visible(root) == [FOLDER]


def test_a_partial_folder_of_a_living_process_stays(root: Path) -> None:
    theirs = root / "caltech256-n99-s0-c9-v1.partial-0123"
    theirs.mkdir(parents=True)
    with open(root / "caltech256-n99-s0-c9-v1.lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        opened()
        assert theirs.exists()
    opened("synthetic:caltech256?n=2")
    assert not theirs.exists()


@pytest.mark.thorough
def test_two_at_once_both_end_well(root: Path) -> None:
    uri = "synthetic:caltech256?n=100&classes=5"
    processes = [start(uri), start(uri)]
    answers = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert answers[0] == answers[1]
    assert answers[0].startswith("100 ")
    assert len(visible(root)) == 1


def test_one_waits_for_the_other(root: Path, made: list[PhotoJob]) -> None:
    opened()
    kept = root / "kept"
    (root / FOLDER).rename(kept)
    stages: list[str] = []
    with open(root / f"{FOLDER}.lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def finish(stage: str, done: int, total: int | None) -> None:
            stages.append(stage)
            if "waiting" in stage and kept.exists():
                kept.rename(root / FOLDER)
                fcntl.flock(lock, fcntl.LOCK_UN)

        found = open_synthetic(URI, workers=1, progress=finish)
    assert len(found.images) == 12
    assert len(made) == 1
    assert stages[0] == "waiting for another pipetune that makes these images"


def test_without_locks_the_second_uses_the_first_ones(
    root: Path, monkeypatch: pytest.MonkeyPatch, made: list[PhotoJob]
) -> None:
    opened()
    kept = root / "kept"
    (root / FOLDER).rename(kept)
    theirs = root / "caltech256-n99-s0-c9-v1.partial-0123"
    theirs.mkdir()

    def no_locks(file: object, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    def first_is_done(stage: str, done: int, total: int | None) -> None:
        if done and kept.exists():
            kept.rename(root / FOLDER)

    monkeypatch.setattr(fcntl, "flock", no_locks)
    found = open_synthetic(URI, workers=1, progress=first_is_done)
    assert len(found.images) == 12
    assert len(made) == 2
    assert visible(root) == [FOLDER, theirs.name]


def test_a_full_disk_is_seen_beforehand(root: Path, monkeypatch: pytest.MonkeyPatch, made: list[PhotoJob]) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 4096))
    needed = parse_uri(URI).expected_bytes
    with pytest.raises(
        PipetuneError, match=rf"\({needed} bytes\) and 4\.00 KiB \(4096 bytes\) are free in .*smaller n"
    ):
        opened()
    assert made == []
    assert visible(root) == []


def test_a_disk_that_fills_up_is_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(job: PhotoJob, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(synthetic_cache, "make_photos", full)
    with pytest.raises(PipetuneError, match=r"needs about .* are free in") as caught:
        opened()
    assert "PIPETUNE_CACHE_DIR" in str(caught.value)
    assert visible(root) == []


def test_expected_bytes_cover_what_is_used(root: Path) -> None:
    uri = "synthetic:caltech256?n=60"
    # A file system with large blocks may take more than files of so many bytes on one with the usual 4 KiB.
    blocks = sum(-(-file.stat().st_size // 4096) * 4096 for file in Path(opened(uri).root).rglob("*"))
    assert blocks < 1.15 * parse_uri(uri).expected_bytes


def test_a_cache_folder_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("PIPETUNE_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(PipetuneError, match=r"cannot write .*Not a directory; set PIPETUNE_CACHE_DIR"):
        opened()


def test_a_complete_set_needs_no_writing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = opened()

    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "makedirs", refuse)
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert opened() == first


def test_the_marker_says_what_it_belongs_to(root: Path) -> None:
    total = opened().total_bytes
    marker = json.loads((root / FOLDER / "complete.json").read_text())
    assert marker == {"uri": URI, "count": 12, "bytes": total}
