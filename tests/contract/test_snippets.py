"""The code that a sweep prints runs as it stands and yields what was measured."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.registry import BACKENDS, DEVICE, installed_version, min_workers, native_workers
from pipetune.report.code import code_for, needs_open_loader, settings_for
from tests.contract.test_backends import require
from tests.photo_set import PHOTOS, candidate, enlarge

pytest.importorskip("torch", reason="the code is for torch")

MEASURED = "/runs/one"


#: Added to the pasted code: what the first batch is.
CHECK = """
first = next(iter(loader))
if isinstance(first[0], dict):  # DALI's iterator: one dictionary per device
    first = first[0]["images"], first[0]["labels"].view(-1).long()
images, labels = first
print(tuple(images.shape), images.dtype, tuple(labels.shape), -3 < images.min() < 0 < images.max() < 3)
"""


#: The first images as floats, whatever is handed over.
CHECK_BYTES = """
images, labels = next(iter(loader))
print(tuple(images.shape), images.dtype, int(images.max()) > 100)
"""


#: Runs scripts one after the other, each in a process of its own, forked where torch, which takes seconds to import,
#: has been imported. What each prints, or says when it fails, goes to a file beside it.
RUN = """
import atexit, contextlib, os, runpy, sys, traceback
import torch, torchvision
for path in sys.argv[1:]:
    if (child := os.fork()):
        os.waitpid(child, 0)
        continue
    with open(path + ".out", "w") as out, contextlib.redirect_stdout(out):
        try:
            runpy.run_path(path, run_name="__main__")
        except BaseException:
            traceback.print_exc(file=out)
    atexit._run_exitfuncs()  # ends workers; to take torch apart would need a second more
    os._exit(0)
"""


def run_all(scripts: list[Path]) -> None:
    command = [sys.executable, "-c", RUN, *map(str, scripts)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr


def output_of(script: Path) -> str:
    return Path(f"{script}.out").read_text()


#: Pillow-SIMD's code is Pillow's, and that of these is jpeg-roi's and simplejpeg's with another name in it.
SAME = {"pillow-simd", "jpeg-roi-fast", "opencv-reduced", "simplejpeg-reduced"}
#: DALI last: workers are not to be forked from a process with its threads.
#: Not those that decode on a CUDA device alone.
SNIPPETS = sorted(
    {name for name in {*BACKENDS} - SAME if BACKENDS[name].loader != DEVICE},
    key=lambda name: (native_workers(BACKENDS[name]), name),
)
BYTES = ("opencv", "pillow", "torchcodec", "torchvision")


@pytest.fixture(scope="module")
def scripts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every installed backend's scripts were run."""
    with contextlib.suppress(pytest.skip.Exception):  # it cannot be compiled here
        request.getfixturevalue("jpeg_roi")
    folder = tmp_path_factory.mktemp("scripts")
    root = enlarge(folder / 'it\'s "quoted"', copies=3)
    written = []
    for backend in SNIPPETS:
        if installed_version(BACKENDS[backend]) is None:
            continue
        for name, data, workers, flat in (("folders", root, 2, False), ("flat", root / "people", 0, True)):
            chosen = candidate(backend, max(workers, min_workers(BACKENDS[backend])), batch_size=4)
            code = code_for(chosen, root=str(data), image_size=96, flat=flat, on_gpu=False, run_folder=MEASURED)
            assert max(len(line) for line in code.splitlines() if not line.startswith("ROOT")) <= 120
            written.append(folder / f"{backend} {name}.py")
            written[-1].write_text(code + CHECK)
        if backend in BYTES:
            chosen = replace(candidate(backend, 0, batch_size=4), transfer="uint8", allocator="glibc")
            code = code_for(chosen, root=str(root), image_size=64, flat=False, on_gpu=False, run_folder=MEASURED)
            assert code.startswith("# before the training command: export MALLOC_MMAP_THRESHOLD_=1073741824\n")
            assert "# In the training step, on the accelerator:" in code
            assert "Normalize" not in code
            written.append(folder / f"{backend} bytes.py")
            written[-1].write_text(code + CHECK_BYTES)
    run_all(written)
    return folder


@pytest.mark.parametrize("backend", SNIPPETS)
@pytest.mark.parametrize("data", ["folders", "flat"])
def test_the_code_runs_as_a_script(backend: str, data: str, scripts: Path, request: pytest.FixtureRequest) -> None:
    require(request, backend)
    assert output_of(scripts / f"{backend} {data}.py") == "(4, 3, 96, 96) torch.float32 (4,) tensor(True)\n"


@pytest.mark.parametrize("backend", BYTES)
def test_the_code_that_hands_over_bytes_runs(backend: str, scripts: Path, request: pytest.FixtureRequest) -> None:
    require(request, backend)
    assert output_of(scripts / f"{backend} bytes.py") == "(4, 3, 64, 64) torch.uint8 True\n"


def test_what_a_plain_dataloader_cannot_do_opens_ours(tmp_path: Path) -> None:
    root = enlarge(tmp_path / "photos", copies=3)
    threads = replace(candidate("simplejpeg", 2, batch_size=4), loader="threads", transfer="uint8")
    code = code_for(threads, root=str(root), image_size=64, flat=False, on_gpu=False, run_folder=MEASURED)
    assert needs_open_loader(threads)
    assert needs_open_loader(replace(candidate("pillow", 1), reuse_buffers=True))
    assert not needs_open_loader(candidate("pillow", 1))
    assert not needs_open_loader(candidate("dali", 1))
    script = tmp_path / "script.py"
    script.write_text(code + CHECK_BYTES + "loader.close()\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(4, 3, 64, 64) torch.uint8 True\n"


def test_dali_hands_over_bytes_too() -> None:
    chosen = replace(candidate("dali", 2), transfer="uint8", channels_last=True, hw_decoder_load=0.8)
    code = code_for(chosen, root="/data", image_size=64, flat=False, on_gpu=True, run_folder=MEASURED)
    assert 'dtype=types.UINT8,\n                                      output_layout="HWC")' in code
    assert "hw_decoder_load=0.8," in code
    assert "mean=[" not in code


def test_every_backend_has_a_snippet() -> None:
    for backend in BACKENDS:
        assert code_for(
            candidate(backend, 1), root=str(PHOTOS), image_size=64, flat=False, on_gpu=True, run_folder=MEASURED
        )


def test_settings_in_one_line() -> None:
    assert settings_for(candidate("opencv", 2, 64)) == (
        "batch_size=64, num_workers=2, prefetch_factor=2, persistent_workers=True"
    )
    assert settings_for(candidate("pillow", 0, 64)) == "batch_size=64, num_workers=0"
    assert settings_for(candidate("dali", 3, 64)) == "num_threads=3, prefetch_queue_depth=2"
    other = replace(candidate("opencv", 2, 64), start_method="spawn", in_order=False, persistent_workers=False)
    assert settings_for(other) == (
        "batch_size=64, num_workers=2, prefetch_factor=2, in_order=False, multiprocessing_context='spawn', "
        "persistent_workers=False"
    )
    threads = replace(candidate("opencv", 2, 64), loader="threads", transfer="uint8")
    assert settings_for(threads) == ("batch_size=64, num_workers=2, prefetch_factor=2, loader=threads, transfer=uint8")
