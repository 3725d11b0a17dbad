"""Every fault of the README's reliability table, with the real command or a real child process.

Each asserts what is said, the exit code, what was kept, and that nobody is left running. Faults that need root, a
writable control group or a mount of their own are skipped with the reason where the machine does not allow them.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image

from pipetune.datasets.index import write_index
from pipetune.measure.harness import Setting, find_bad_images, measure
from tests import fake_nvml
from tests.bad_images import PHOTO, broken_png, jpeg, without_tables
from tests.integration import commands, limits
from tests.photo_set import PHOTOS, candidate, enlarge, scan, small_photos, workload

pytest.importorskip("torch", reason="the children measure torch loaders")

BACKENDS = "pillow,opencv,torchvision,dali"


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_photos(tmp_path_factory.mktemp("photos") / "set", copies=15)


@pytest.fixture(autouse=True)
def _nobody_is_left() -> Iterator[None]:
    yield
    left = [process for process in psutil.Process().children(recursive=True) if "pipetune" in " ".join(_words(process))]
    assert left == []


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def told_in_one_line(done: subprocess.CompletedProcess[str], code: int, *texts: str) -> str:
    """The error: one line with what is wrong and what to try; no traceback anywhere."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    line = done.stderr.strip().splitlines()[-1]
    for text in texts:
        assert text in line
    return line


def sweep(root: Path | str, out: Path, *options: str, **environment: str) -> dict[str, Any]:
    """A sweep that comes to its end, its JSON checked for a measured default."""
    done = commands.run(commands.sweep_command(root, out, *options, "--json", "-"), **environment)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    result = commands.result_of(done)
    result["stderr"] = done.stderr
    return result


def failures(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["key"]: row["failure"] for row in result["outcomes"] if "failure" in row}


# --- other people's files ---------------------------------------------------------------------------------------------


def test_no_such_directory(tmp_path: Path) -> None:
    done = commands.run(commands.sweep_command(tmp_path / "photoz", tmp_path / "run"))
    told_in_one_line(done, 2, "no such directory", "photoz", "exists; check the rest of the name")
    assert not (tmp_path / "run").exists()


def test_no_images(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "notes.txt").write_text("x")
    done = commands.run(commands.sweep_command(tmp_path / "data", tmp_path / "run"))
    told_in_one_line(done, 2, "no images in", "1 other files", "synthetic:caltech256")


def test_fewer_images_than_a_batch(tmp_path: Path) -> None:
    done = commands.run(commands.sweep_command(PHOTOS, tmp_path / "run", "--batch-size", "64"))
    told_in_one_line(done, 2, "4 images are fewer than a batch of 64", "--batch-size 4")


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
    "text.jpg": (lambda: b"not an image at all", "no JPEG, PNG or WebP inside"),
    "truncated.jpg": (lambda: jpeg(quality=95)[:9000], "cut off after 9000 bytes"),
    "truncated.png": (lambda: jpeg(format="PNG")[:9000], "cut off after 9000 bytes"),
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


def test_odd_images_are_read_and_bad_ones_skipped_counted_and_named_alike_by_every_backend(
    zoo: Path, tmp_path: Path
) -> None:
    result = sweep(zoo, tmp_path / "run", "--backends", BACKENDS, "--workers", "1", "--grid")
    assert {failure["kind"] for failure in failures(result).values()} <= {"bad_image"}
    measured = {row["candidate"]["backend"] for row in result["outcomes"] if "failure" not in row}
    assert measured == set(BACKENDS.split(","))
    skipped = {Path(item["path"]).name: item["reason"] for item in result["dataset"]["skipped_files"]}
    assert set(skipped) == {*BAD, *CORRUPT, "dangling.jpg"}
    assert all(reason in skipped[name] for name, (_, reason) in BAD.items())
    assert skipped["dangling.jpg"] == "a dangling link"
    assert result["dataset"]["skipped"] == len(skipped)
    assert result["dataset"]["images"] == 20 + len(USABLE) + len(CORRUPT)  # others stand in for the corrupt ones
    assert "8 files were skipped, the first: " in result["stderr"]


@pytest.mark.parametrize("backend", BACKENDS.split(","))
def test_every_backend_finds_the_corrupt_images_or_leaves_it_to_the_default_one(backend: str, tmp_path: Path) -> None:
    """torchvision 0.29 dies of SIGSEGV in libpng's error handler, so it is not asked about a PNG."""
    root = enlarge(tmp_path / "data", copies=2)
    (root / "people" / "corrupt.jpg").write_bytes(without_tables(jpeg()))
    if backend != "torchvision":
        (root / "people" / "corrupt.png").write_bytes(broken_png())
    images = scan(root)
    write_index(str(tmp_path / "index.json"), images)
    setting = Setting(
        workload=workload(index_path=str(tmp_path / "index.json"), image_size=64),
        paths=[image.path for image in images.images], cores=frozenset(os.sched_getaffinity(0)),
    )  # fmt: skip
    outcome, _ = measure(candidate(backend, 1), "candidate", setting)
    assert outcome.failure is not None
    assert outcome.failure.kind == "bad_image"
    assert "corrupt." in outcome.failure.message
    found = find_bad_images(candidate(backend, 1), setting)
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


def test_very_many_files(tmp_path: Path) -> None:
    """Thirty thousand here; benchmarks/many_files.py has the million."""
    root = tmp_path / "data"
    for number in range(30):
        (root / f"{number:02}").mkdir(parents=True)
    os.link(PHOTO, root / "00" / "seed.jpg") if PHOTO.stat().st_dev == root.stat().st_dev else shutil.copy(
        PHOTO, root / "00" / "seed.jpg"
    )
    for number in range(30_000):
        (root / f"{number % 30:02}" / f"{number}.jpg").symlink_to(root / "00" / "seed.jpg")
    result = sweep(root, tmp_path / "run", "--workers", "0")
    assert result["dataset"]["found_images"] == 30_001
    assert result["dataset"]["classes"] == 30
    assert failures(result) == {}


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


def test_backends_that_fail_are_records_and_the_others_are_measured(photos: Path, tmp_path: Path) -> None:
    """Each in the order of the grid: not installed, a signal, hanging, flooding, no memory on the GPU, descriptors."""
    names = ("not_installed", "signal", "hangs", "floods", "gpu_memory", "descriptors")
    options = ["--backends", "opencv", "--workers", "1,2,3", "--prefetch", "2,3", "--grid", "--timeout", "15s"]
    result = sweep(photos, tmp_path / "run", *options, **with_misfortunes(tmp_path, *names))
    failed = [row["failure"] for row in result["outcomes"] if "failure" in row]
    assert [(failure["kind"], told in f"{failure['message']}; {failure['hint']}") for failure, told in zip(
        failed,
        ("pip install 'pipetune[opencv]'", "died of SIGSEGV", "--timeout", "exit code 3", "--batch-size", "ulimit -n"),
        strict=True,
    )] == [(kind, True) for kind in (
        "not_installed", "crashed", "hung", "crashed", "out_of_gpu_memory", "out_of_files",
    )]  # fmt: skip
    assert all(len(failure["stderr_tail"]) < 10_000 for failure in failed)
    assert result["baseline"]["samples_per_s"] > 0
    stored = [row["failure"]["kind"] for row in commands.outcomes_in(tmp_path / "run") if row["failure"]]
    assert stored == [failure["kind"] for failure in failed]
    assert result["stderr"].count(" failed (") == len(names)


def test_a_backend_that_is_killed_for_want_of_memory(photos: Path, tmp_path: Path) -> None:
    with limits.memory_group(600 << 20) as group:
        environment = {**with_misfortunes(tmp_path, "memory"), "TEST_GROUP": str(group)}
        result = sweep(photos, tmp_path / "run", "--backends", "opencv", "--workers", "0", **environment)
    failure = failures(result)["opencv-w0-p0-b4"]
    assert failure["kind"] == "killed"
    assert "SIGKILL" in failure["message"]
    assert "--workers" in failure["hint"]
    assert result["baseline"]["samples_per_s"] > 0


def test_a_backend_that_runs_out_of_shared_memory(photos: Path, tmp_path: Path) -> None:
    command = commands.sweep_command(
        photos, tmp_path / "run", "--backends", "opencv", "--workers", "2", "--image-size", "224", "--json", "-"
    )
    done = commands.run(
        limits.with_mount(command, "/dev/shm", "size=128m"), **with_misfortunes(tmp_path, "shared_memory")
    )
    assert done.returncode == 0, done.stderr
    failure = failures(commands.result_of(done))["opencv-w2-p2-b4"]
    assert failure["kind"] == "out_of_shared_memory"
    assert "--shm-size" in failure["hint"]


def test_a_wrong_pillow_is_a_failure_and_not_a_rate(photos: Path, tmp_path: Path) -> None:
    """A side directory in which somebody has put the real Pillow."""
    import PIL

    side = tmp_path / "data" / "pipetune" / "side"
    out = subprocess.run(
        [sys.executable, "-c", "from pipetune.side import side_directory; print(side_directory('pillow-simd'))"],
        capture_output=True, text=True, check=True, env={**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")},
    ).stdout.strip()  # fmt: skip
    assert Path(out).parent == side
    shutil.copytree(Path(PIL.__file__).parent, Path(out) / "PIL")
    for libraries in Path(PIL.__file__).parent.parent.glob("[Pp]illow.libs"):
        shutil.copytree(libraries, Path(out) / libraries.name)
    version = Path(out) / "PIL" / "_version.py"
    # It says so, and then it is not.
    version.write_text(version.read_text().replace("__version__ =", '__version__ = "12.1.1.post0"\n__version__ =', 1))
    result = sweep(
        photos, tmp_path / "run", "--backends", "pillow-simd", "--workers", "0", XDG_DATA_HOME=str(tmp_path / "data")
    )
    failure = failures(result)["pillow-simd-w0-p0-b4"]
    assert failure["kind"] == "wrong_library"
    assert f"asked for Pillow-SIMD, but this process got Pillow {PIL.__version__}" in failure["message"]
    assert "pipetune doctor" in failure["hint"]


# --- the machine ------------------------------------------------------------------------------------------------------


def test_a_cpu_quota_below_the_visible_cores(photos: Path, tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this machine has one core")
    with limits.cpu_group(0.8) as group:
        command = commands.sweep_command(photos, tmp_path / "run", "--backends", "opencv", "--json", "-")
        command = [part for part in command if part not in ("--workers", "0,1")]  # the default, from the cores
        done = commands.run(limits.inside(command, group))
    assert done.returncode == 0, done.stderr
    result = commands.result_of(done)
    assert result["host"]["cpu_quota_cores"] == pytest.approx(0.8)
    assert result["host"]["cores_usable"] == pytest.approx(0.8)
    assert {row["candidate"]["num_workers"] for row in result["outcomes"]} <= {0, 1, 2}
    assert "a CPU quota allows 0.8 of the" in done.stderr
    assert "OMP_NUM_THREADS=1" in done.stderr
    assert all(row["cores_used"] < 1.1 for row in result["outcomes"])


def test_a_shared_memory_of_64_megabytes_is_seen_before_the_start(photos: Path, tmp_path: Path) -> None:
    command = commands.sweep_command(
        photos, tmp_path / "run", "--backends", "opencv", "--workers", "1,4", "--batch-size", "16", "--image-size",
        "224", "--json", "-",
    )  # fmt: skip
    done = commands.run(limits.with_mount(command, "/dev/shm", "size=64m"))
    assert done.returncode == 0, done.stderr
    result = commands.result_of(done)
    (skipped,) = result["does_not_fit"]
    assert skipped["key"] == "opencv-w4-p2-b16"
    assert skipped["failure"]["kind"] == "lacks_shared_memory"
    assert "4 workers x prefetch 2 + 1 = 9 batches of 9.19 MiB" in skipped["failure"]["message"]
    assert "/dev/shm has 64.0 MiB free" in skipped["failure"]["message"]
    assert "docker run --shm-size=1g" in skipped["failure"]["hint"]
    assert "opencv-w4-p2-b16 skipped: needs" in done.stderr
    assert failures(result) == {}
    assert {row["key"] for row in result["outcomes"]} == {"opencv-w1-p2-b16", "pillow-w0-p0-b16"}


def test_a_low_limit_of_open_files_is_seen_before_the_start(photos: Path, tmp_path: Path) -> None:
    command = commands.sweep_command(photos, tmp_path / "run", "--workers", "0,16", "--json", "-")
    done = commands.run(["sh", "-c", 'ulimit -n 60; exec "$@"', "sh", *command])
    assert done.returncode == 0, done.stderr
    (skipped,) = commands.result_of(done)["does_not_fit"]
    assert skipped["key"] == "pillow-w16-p2-b4"
    assert "the limit is 60" in skipped["failure"]["message"]


def test_a_model_and_a_backend_that_do_not_exist(photos: Path, tmp_path: Path) -> None:
    done = commands.run(commands.sweep_command(photos, tmp_path / "run", "--model", "resnet5O"))
    told_in_one_line(done, 2, "torchvision has no classifier named 'resnet5O'; did you mean resnet50")
    done = commands.run(commands.sweep_command(photos, tmp_path / "run2", "--backends", "torchvison"))
    told_in_one_line(done, 2, "unknown backend 'torchvison'", "did you mean torchvision")


# --- NVML -------------------------------------------------------------------------------------------------------------

#: Measures a candidate whose parent believes in a GPU, whatever the child trains on.
GPU_PARENT = """
import json, sys
from dataclasses import replace
from pipetune.measure import harness, wire
from pipetune.accelerator.named import emulated_spec
from pipetune.records import AcceleratorSpec, to_dict
from tests.photo_set import candidate, scan, workload
from pipetune.datasets.index import write_index

images = scan(sys.argv[1])
write_index(sys.argv[2], images)
child = workload(accelerator=emulated_spec("300"), index_path=sys.argv[2], image_size=64, seconds=1.5)
encode = wire.encode_request
wire.encode_request = lambda c, w, role: encode(c, child, role)
gpu = AcceleratorSpec(kind="cuda", name="CUDA device 0", device_index=0)
setting = harness.Setting(workload=replace(child, accelerator=gpu), paths=[], cores=frozenset({0}))
outcome, _ = harness.measure(candidate("pillow", 0), "candidate", setting)
print(json.dumps(to_dict(outcome)))
"""


@pytest.mark.parametrize(
    ("scenario", "util", "told"),
    [
        (fake_nvml.HEALTHY, True, None),
        (fake_nvml.HEALTHY + "nvmlDeviceGetSamples 10=50 20=50 !15\n", False, "GPU readings ended"),
        (fake_nvml.HEALTHY + "nvmlInit !4\n", False, "no GPU readings: NVML refuses this user"),
        (None, False, "no GPU readings: the NVIDIA driver's library libnvidia-ml.so.1 is not here"),
    ],
    ids=["healthy", "lost", "refusing", "missing"],
)
def test_nvml_ends_the_gpu_columns_and_not_the_run(
    scenario: str | None, util: bool, told: str | None, photos: Path, tmp_path: Path, nvml_library: Path
) -> None:
    library = nvml_library if scenario is not None else tmp_path
    environment = fake_nvml.environment(library, scenario or "", folder=tmp_path)
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", GPU_PARENT, str(photos), str(tmp_path / "index.json")], capture_output=True, text=True,
        check=False, timeout=100, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)["measurement"]
    assert measured["samples_per_s"] > 0
    assert (measured["gpu_util_pct"] is not None) == util
    said = " ".join(measured["warnings"])
    assert told is None or told in said


def test_a_gpu_that_torch_cannot_use_is_explained(photos: Path, tmp_path: Path, nvml_library: Path) -> None:
    environment = fake_nvml.environment(nvml_library, fake_nvml.HEALTHY, folder=tmp_path)
    command = commands.sweep_command(photos, tmp_path / "run", "--device", "cuda:0")
    done = commands.run(command, **environment)
    told_in_one_line(done, 2, "no 'cuda:0'", "0 CUDA devices", "--device emulated")


# --- disks and folders ------------------------------------------------------------------------------------------------


def test_a_full_disk_ends_the_sweep_with_what_was_measured(photos: Path, tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    command = commands.sweep_command(
        photos, place / "run", "--workers", "0,1,2", "--backends", "pillow,opencv", "--grid"
    )
    keep = ["sh", "-c", f'"$@"; code=$?; cp -r {place}/run {tmp_path}/kept; exit $code', "sh", *command]
    done = commands.run(limits.with_mount(keep, str(place), "size=100k"))
    assert done.returncode == 1, done.stderr
    assert "No space left on device" in done.stdout + done.stderr
    assert "free some space or write elsewhere (--out DIR, --json FILE)" in (done.stdout + done.stderr).replace(
        "\n", " "
    )
    assert "candidate" in done.stdout  # the ranking of what there was
    assert "Traceback" not in done.stderr
    for row in commands.outcomes_in(tmp_path / "kept"):
        assert row["measurement"]


def test_a_read_only_disk_is_told_before_anything_is_measured(photos: Path, tmp_path: Path) -> None:
    place = tmp_path / "fixed"
    place.mkdir()
    command = commands.sweep_command(photos, place / "run")
    done = commands.run(limits.with_mount(command, str(place), "size=1m,ro"))
    told_in_one_line(done, 1, "cannot create", "Read-only file system", "--out DIR")


def test_two_sweeps_on_one_folder(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = commands.start(commands.sweep_command(photos, out, "--seconds", "3"))
    try:
        commands.wait_until((out / "run.json").exists)
        second = commands.run(commands.sweep_command(photos, out))
        told_in_one_line(second, 2, f"in use by process {first.pid}", "--out DIR")
        third = commands.run([*commands.python(), "sweep", "--resume", str(out)])
        told_in_one_line(third, 2, f"in use by process {first.pid}")
    finally:
        first.terminate()
        first.communicate(timeout=60)
