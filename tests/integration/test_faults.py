"""Every fault of the table in ``docs/guides/faults.md``, with the real command or a real child: files and backends.

The machine, NVML and disks are in ``test_faults_machine.py``. Each test asserts the message, the exit code, what was
kept, and that nobody is left running. Faults that need root, a writable control group or a mount of their own are
skipped with the reason where the machine does not allow them.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from pipetune.datasets.index import write_index
from pipetune.measure.harness import Conditions, find_bad_images
from tests.bad_images import PHOTO, broken_png, jpeg, without_tables
from tests.integration import commands, limits
from tests.photo_set import PHOTOS, candidate, enlarge, scan, small_photos, workload
from tests.unit.datasets.images import with_scans

pytest.importorskip("torch", reason="the children measure torch loaders")
pytestmark = pytest.mark.usefixtures("nobody_is_left")

BACKENDS = "pillow,opencv,torchvision,dali"


# --- other people's files ---------------------------------------------------------------------------------------------


def test_no_such_directory(tmp_path: Path) -> None:
    done = commands.run(commands.sweep_command(tmp_path / "photoz", tmp_path / "run"))
    commands.failed_in_one_line(done, 2, "no such directory", "photoz", "exists; check the rest of the name")
    assert not (tmp_path / "run").exists()


def test_no_images(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "notes.txt").write_text("x")
    done = commands.run(commands.sweep_command(tmp_path / "data", tmp_path / "run"))
    commands.failed_in_one_line(done, 2, "no images in", "1 other file;", "synthetic:caltech256")


def test_fewer_images_than_a_batch(tmp_path: Path) -> None:
    done = commands.run(commands.sweep_command(PHOTOS, tmp_path / "run", "--batch-size", "64"))
    commands.failed_in_one_line(done, 2, "4 images are fewer than a batch of 64", "--batch-size 4")


def exif(orientation: int) -> bytes:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


#: Only decoding shows what is wrong with them.
CORRUPT = {
    "corrupt0.jpg": lambda: without_tables(jpeg()),
    "corrupt1.jpg": lambda: without_tables(jpeg(progressive=True)),
    "corrupt.png": broken_png,
}


def sixteen_bit() -> bytes:
    import numpy as np

    grey = np.asarray(Image.open(PHOTO).convert("L")).astype(np.uint16) * 257
    buffer = io.BytesIO()
    Image.fromarray(grey).save(buffer, "PNG")
    return buffer.getvalue()


USABLE = {
    "progressive.jpg": lambda: jpeg(progressive=True),
    "cmyk.jpg": lambda: jpeg(mode="CMYK"),
    "grey.jpg": lambda: jpeg(mode="L"),
    "sixteen bit.png": sixteen_bit,
    "rotated.jpg": lambda: jpeg(exif=exif(6)),
    "png inside.jpg": lambda: jpeg(format="PNG"),
    "two\nlines.jpg": jpeg,
    "-dash.jpg": jpeg,
    "<script>alert(1)<.jpg": jpeg,
    "[bold]not markup.jpg": jpeg,
    "ä😀.jpg": jpeg,
    os.fsdecode(b"\xff\xfe.jpg"): jpeg,
}
BAD = {
    "empty.jpg": (lambda: b"", "empty file"),
    "text.jpg": (lambda: b"not an image at all", "not a JPEG, PNG or WebP"),
    "truncated.jpg": (lambda: jpeg(quality=95)[:9000], "cut off after 9000 bytes"),
    "truncated.png": (lambda: jpeg(format="PNG")[:9000], "cut off after 9000 bytes"),
    "scans.jpg": (lambda: with_scans((4000, 4000), 9000), "9,010 scans, more than 100"),
}


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that a folder of images may hold, and some photographs."""
    root = small_photos(tmp_path_factory.mktemp("zoo") / "set", copies=5)
    for name, make in USABLE.items():
        (root / "people" / name).write_bytes(make())
    for name, (make, _) in BAD.items():
        (root / "people" / name).write_bytes(make())
    (root / "people" / "dangling.jpg").symlink_to(root / "nowhere.jpg")
    for name, data in CORRUPT.items():
        (root / "people" / name).write_bytes(data())
    return root


@pytest.mark.slow  # every backend; those of one are in the contract tests
def test_odd_images_are_read_and_bad_ones_skipped_counted_and_named_alike_by_every_backend(
    zoo: Path, tmp_path: Path
) -> None:
    others = BACKENDS.removeprefix("pillow,")  # which is the default, measured in any case
    result = commands.swept(zoo, tmp_path / "run", "--backends", others, "--workers", "1", "--grid")
    assert {failure["kind"] for failure in commands.failures(result).values()} <= {"bad_image"}
    measured = {row["candidate"]["backend"] for row in result["outcomes"] if "failure" not in row}
    assert measured == set(BACKENDS.split(","))
    skipped = {Path(item["path"]).name: item["reason"] for item in result["dataset"]["skipped_files"]}
    assert set(skipped) == {*BAD, *CORRUPT, "dangling.jpg"}
    assert all(reason in skipped[name] for name, (_, reason) in BAD.items())
    assert skipped["dangling.jpg"] == "a dangling link"
    assert result["dataset"]["skipped"] == len(skipped)
    assert result["dataset"]["images"] == 20 + len(USABLE) + len(CORRUPT)  # others stand in for the corrupt ones
    assert "9 files were skipped, the first: " in result["stderr"]


@pytest.mark.parametrize("backend", BACKENDS.split(","))
def test_every_backend_finds_the_corrupt_images_or_leaves_it_to_the_default_one(backend: str, tmp_path: Path) -> None:
    """torchvision 0.29 dies of SIGSEGV in libpng's error handler, so it is not asked about a PNG."""
    root = enlarge(tmp_path / "data", copies=2)
    (root / "people" / "corrupt.jpg").write_bytes(without_tables(jpeg()))
    if backend != "torchvision":
        (root / "people" / "corrupt.png").write_bytes(broken_png())
    images = scan(root)
    write_index(str(tmp_path / "index.json"), images)
    conditions = Conditions(
        workload=workload(index_path=str(tmp_path / "index.json"), image_size=64),
        paths=[image.path for image in images.images], cores=frozenset(os.sched_getaffinity(0)),
    )  # fmt: skip
    found = find_bad_images(candidate(backend, 1), conditions)
    expected = {n for n, image in enumerate(images.images) if "corrupt" in image.path}
    assert set(found) == expected
    assert all(found.values())


def test_nothing_but_corrupt_images(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in range(8):
        (tmp_path / "data" / f"{number}.jpg").write_bytes(without_tables(jpeg()))
    done = commands.run(commands.sweep_command(tmp_path / "data", tmp_path / "run"))
    assert done.returncode == 1
    assert "none of the 8 images can be decoded" in done.stdout
    assert "Traceback" not in done.stderr


def test_unreadable_directories_and_files(tmp_path: Path) -> None:
    root = enlarge(tmp_path / "data", copies=2)
    for name in ("secret/a.jpg", "people/locked.jpg"):
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(PHOTO, root / name)
    (root / "people" / "locked.jpg").chmod(0)
    (root / "secret").chmod(0)
    command = commands.sweep_command(root, tmp_path / "run", "--workers", "0", "--json", "-")
    try:
        done = commands.run(limits.without_privileges(command))
    finally:
        (root / "secret").chmod(0o700)
    assert done.returncode == 0, done.stderr
    dataset = commands.result_of(done)["dataset"]
    skipped = {Path(item["path"]).name: item["reason"] for item in dataset["skipped_files"]}
    assert skipped == {"secret": "cannot list the directory: Permission denied", "locked.jpg": "Permission denied"}
    assert dataset["images"] == 8


@pytest.mark.slow
def test_very_many_files(tmp_path: Path) -> None:
    """Ten thousand here; benchmarks/overhead/many_files.py has the million."""
    root = tmp_path / "data"
    for number in range(30):
        (root / f"{number:02}").mkdir(parents=True)
    shutil.copy(PHOTO, root / "00" / "seed.jpg")
    for number in range(10_000):
        (root / f"{number % 30:02}" / f"{number}.jpg").symlink_to(root / "00" / "seed.jpg")
    result = commands.swept(root, tmp_path / "run", "--workers", "0")
    assert result["dataset"]["found_images"] == 10_001
    assert result["dataset"]["classes"] == 30
    assert commands.failures(result) == {}


# --- backends ---------------------------------------------------------------------------------------------------------

#: Stands in for OpenCV: the first child that imports it meets the first misfortune, the second the second one.
UNLUCKY = """
import os, sys
here = os.path.dirname(__file__)
number = len(os.listdir(here + "/seen"))
open(f"{here}/seen/{number}", "w").close()
name = os.environ["TEST_MISFORTUNES"].split(",")[number]
if name == "not_installed":
    raise ImportError("libGL.so.1: cannot open shared object file")
if name == "signal":
    os.kill(os.getpid(), 11)
if name == "hangs":
    import time
    time.sleep(1000)
if name == "floods":
    sys.stderr.write("x" * 3_000_000)
    sys.exit(3)
if name == "gpu_memory":
    import torch
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
if name == "memory":
    with open(os.environ["TEST_GROUP"] + "/cgroup.procs", "w") as group:
        group.write(str(os.getpid()))
    held = []
    while True:
        held.append(os.urandom(1 << 20) * 16)
sys.path.remove(here)
del sys.modules["cv2"]
import cv2
if name == "descriptors":
    import resource
    used = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 3, used + 3))
if name == "shared_memory":
    room = os.statvfs("/dev/shm")
    with open("/dev/shm/filler", "wb") as filler:
        filler.write(bytes(max(0, room.f_bavail * room.f_frsize - 100_000)))
"""


def with_misfortunes(tmp_path: Path, *names: str) -> dict[str, str]:
    """The environment in which the children of the OpenCV backend have these misfortunes, one after the other."""
    (tmp_path / "fake" / "seen").mkdir(parents=True)
    (tmp_path / "fake" / "cv2.py").write_text(UNLUCKY)
    return {"PYTHONPATH": str(tmp_path / "fake"), "TEST_MISFORTUNES": ",".join(names)}


def test_backends_that_fail_are_records_and_the_others_are_measured(half: Path, tmp_path: Path) -> None:
    """Each in the order of the grid: not installed, a signal, flooding, no memory on the GPU, descriptors."""
    names = ("not_installed", "signal", "floods", "gpu_memory", "descriptors")
    options = ["--backends", "opencv", "--workers", "1,2,3,4,5", "--grid"]
    result = commands.gone_on(half, tmp_path / "run", *options, **with_misfortunes(tmp_path, *names))
    failed = [row["failure"] for row in result["outcomes"] if "failure" in row]
    assert [(failure["kind"], expected in f"{failure['message']}; {failure['hint']}") for failure, expected in zip(
        failed,
        ("pip install 'pipetune[opencv]'", "was ended by SIGSEGV", "exit code 3", "--batch-size", "ulimit -n"),
        strict=True,
    )] == [(kind, True) for kind in (
        "not_installed", "crashed", "crashed", "out_of_gpu_memory", "out_of_files",
    )]  # fmt: skip
    assert all(len(failure["stderr_tail"]) < 10_000 for failure in failed)
    assert result["baseline"]["samples_per_s"] > 0
    stored = [row["failure"]["kind"] for row in commands.outcomes_in(tmp_path / "run") if row["failure"]]
    assert stored == [failure["kind"] for failure in failed]
    assert result["stderr"].count(": failed in phase ") == len(names)


def test_a_backend_that_hangs_is_ended_and_the_next_one_is_tried(half: Path, tmp_path: Path) -> None:
    """In the second half of a sweep: a limit as short as this is none for the children that measure something."""
    out = tmp_path / "run"
    options = ["--backends", "opencv", "--workers", "1,2", "--grid", "--timeout", "2s"]
    result = commands.gone_on(half, out, *options, **with_misfortunes(tmp_path, "hangs", "hangs"))
    failed = commands.failures(result)
    assert set(failed) == {"opencv-w1-p2-b4", "opencv-w2-p2-b4"}
    for failure in failed.values():
        assert failure["kind"] == "hung"
        assert "--timeout" in f"{failure['message']}; {failure['hint']}"
        assert len(failure["stderr_tail"]) < 10_000
    assert result["baseline"]["samples_per_s"] > 0
    assert [row["failure"]["kind"] for row in commands.outcomes_in(out) if row["failure"]] == ["hung", "hung"]
    assert result["stderr"].count(": failed in phase ") == 2


def test_a_backend_that_is_killed_for_want_of_memory(half: Path, tmp_path: Path) -> None:
    with limits.memory_group(600 << 20) as group:
        environment = {**with_misfortunes(tmp_path, "memory"), "TEST_GROUP": str(group)}
        result = commands.gone_on(half, tmp_path / "run", "--backends", "opencv", "--workers", "0", **environment)
    failure = commands.failures(result)["opencv-w0-p0-b4"]
    assert failure["kind"] == "out_of_memory", "the kernel counts whom it kills"
    assert "SIGKILL" in failure["message"]
    assert "--workers" in failure["hint"]
    assert result["baseline"]["samples_per_s"] > 0


def test_a_backend_that_runs_out_of_shared_memory(half: Path, tmp_path: Path) -> None:
    shutil.copytree(half, tmp_path / "run")
    options = ["--backends", "opencv", "--workers", "2", "--json", "-"]
    command = [*commands.python(), "sweep", "--resume", str(tmp_path / "run"), *options]
    done = commands.run(
        limits.with_mount(command, "/dev/shm", "size=128m"), **with_misfortunes(tmp_path, "shared_memory")
    )
    assert done.returncode == 0, done.stderr
    failure = commands.failures(commands.result_of(done))["opencv-w2-p2-b4"]
    assert failure["kind"] == "out_of_shared_memory"
    assert "--shm-size" in failure["hint"]


def test_a_wrong_pillow_is_a_failure_and_not_a_rate(half: Path, tmp_path: Path) -> None:
    """A side directory in which somebody has put the real Pillow."""
    import PIL

    side = tmp_path / "data" / "pipetune" / "side"
    out = subprocess.run(
        [sys.executable, "-c", "from pipetune.install.find import *; print(side_directory('pillow-simd'))"],
        capture_output=True, text=True, check=True, env={**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")},
    ).stdout.strip()  # fmt: skip
    assert Path(out).parent == side
    shutil.copytree(Path(PIL.__file__).parent, Path(out) / "PIL")
    for libraries in Path(PIL.__file__).parent.parent.glob("[Pp]illow.libs"):
        shutil.copytree(libraries, Path(out) / libraries.name)
    version = Path(out) / "PIL" / "_version.py"
    # It says so, and then it is not.
    version.write_text(version.read_text().replace("__version__ =", '__version__ = "12.1.1.post0"\n__version__ =', 1))
    result = commands.gone_on(
        half, tmp_path / "run", "--backends", "pillow-simd", "--workers", "0", XDG_DATA_HOME=str(tmp_path / "data")
    )
    failure = commands.failures(result)["pillow-simd-w0-p0-b4"]
    assert failure["kind"] == "wrong_library"
    assert f"asked for Pillow-SIMD, but this process got Pillow {PIL.__version__}" in failure["message"]
    assert "pipetune doctor" in failure["hint"]
