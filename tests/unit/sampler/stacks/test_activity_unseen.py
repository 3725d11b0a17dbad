"""What a main thread does in jobs that have no loader or no accelerator that can be seen."""

from __future__ import annotations

import pytest

from pipetune.sampler.stacks import activity as act
from pipetune.sampler.stacks.activity import Frame, computes_here, main_activity
from tests.unit.sampler.stacks.stack_frames import frame, lines

TRAIN = (frame("train", "train.py", 42), frame("<module>", "train.py", 90))
FUTURE = (
    frame("Condition.wait", "threading.py", 327),
    frame("Future.result", "concurrent/futures/_base.py", 451),
)
POOL = (
    frame("Condition.wait", "threading.py", 327),
    frame("IMapIterator.next", "multiprocessing/pool.py", 861),
)


@pytest.mark.parametrize("frames", [FUTURE, POOL])
def test_a_pool_that_the_script_made_is_its_loader(frames: tuple[Frame, ...]) -> None:
    assert main_activity((*frames, *TRAIN)).activity == act.LOADER


def test_handing_work_to_a_pool_is_no_wait() -> None:
    assert main_activity((frame("Pool.apply_async", "multiprocessing/pool.py"), *TRAIN)).activity == act.PYTHON


@pytest.mark.parametrize(
    ("line", "in_python", "activity"),
    [
        ("batch = batches.get()", False, act.LOADER),
        ("batch = batches.get()", True, act.PYTHON),
        ("width = sizes.get(name)", False, act.PYTHON),
    ],
)
def test_a_queue_without_python_in_it_shows_in_the_line(line: str, in_python: bool, activity: str) -> None:
    assert main_activity(TRAIN, lines(train=line), in_python=in_python).activity == activity


@pytest.mark.parametrize(
    "frames",
    [
        (frame("ImageFile.load", "PIL/ImageFile.py"), frame("Image.convert", "PIL/Image.py"), *TRAIN),
        (frame("Image.resize", "PIL/Image.py"), frame("prepare", "train.py"), *TRAIN),
        (frame("decode", "simplejpeg/__init__.py"), *TRAIN),
    ],
)
def test_images_that_the_main_thread_prepares_are_loading_without_workers(frames: tuple[Frame, ...]) -> None:
    assert main_activity(frames).activity == act.LOADER_INLINE


@pytest.mark.parametrize("line", ["image = cv2.imdecode(data, 1)", "image = Image.open(path)", "x = read_image(path)"])
def test_a_call_that_decodes_is_loading_without_workers(line: str) -> None:
    assert main_activity(TRAIN, lines(train=line)).activity == act.LOADER_INLINE


def test_a_picture_that_is_saved_is_not_loaded() -> None:
    frames = (frame("_save", "PIL/PngImagePlugin.py"), frame("Image.save", "PIL/Image.py"), *TRAIN)

    assert main_activity(frames).activity != act.LOADER_INLINE


def test_imports_are_no_training() -> None:
    frames = (
        frame("get_data", "<frozen importlib._bootstrap_external>"),
        frame("<module>", "torch/nn/__init__.py"),
        *TRAIN,
    )

    assert main_activity(frames).activity == act.IMPORT


@pytest.mark.parametrize(
    ("in_python", "activity"), [(True, act.PYTHON), (False, act.DEVICE_WAIT), (None, act.DEVICE_WAIT)]
)
def test_whoever_holds_the_interpreters_lock_waits_for_no_device(in_python: bool | None, activity: str) -> None:
    seen = main_activity(TRAIN, lines(train="values = image.reshape(-1).tolist()"), in_python=in_python)

    assert seen.activity == activity


@pytest.mark.parametrize("line", ["hits += (out == y).sum().item()", "batch = batch.to(device)"])
def test_what_waits_within_an_evaluation_is_no_training_where_no_accelerator_is_seen(line: str) -> None:
    within = main_activity((frame("evaluate", "train.py"), *TRAIN), lines(evaluate=line))
    outside = main_activity(TRAIN, lines(train=line))

    assert (within.activity, within.unseen) == (outside.activity, act.CHECKPOINT)
    assert outside.unseen is None


@pytest.mark.parametrize(
    ("line", "in_python", "unseen"),
    [
        ("loss = (batch.float() / 255 - mean).square().mean()", False, act.MODEL),
        ("loss.backward()", False, act.MODEL),
        ("out = model(x)", False, act.MODEL),
        ("weights.add_(gradient)", False, act.MODEL),
        ("loss.backward()", True, None),
        ("loss.backward()", None, None),
        ("data = zlib.compress(data)", False, None),
    ],
)
def test_native_code_of_a_line_that_computes_with_tensors_may_be_a_step(
    line: str, in_python: bool | None, unseen: str | None
) -> None:
    seen = main_activity(TRAIN, lines(train=line), in_python=in_python)

    assert (seen.activity, seen.unseen) == (act.PYTHON, unseen)


@pytest.mark.parametrize("file", ["tensorflow/python/eager/execute.py", "jax/_src/api.py", "keras/src/trainers/x.py"])
def test_other_frameworks_compute_is_the_models(file: str) -> None:
    assert main_activity((frame("execute", file), *TRAIN)).activity == act.MODEL


def test_flushing_a_file_to_the_disk_saves() -> None:
    assert main_activity(TRAIN, lines(train="os.fsync(file.fileno())")).activity == act.CHECKPOINT


@pytest.mark.parametrize(
    ("file", "here"), [("numpy/core/fromnumeric.py", True), ("transformers/tokenization_utils_fast.py", True),
                       ("torch/nn/functional.py", False), ("train.py", False)]
)  # fmt: skip
def test_some_libraries_compute_on_the_cpu_alone(file: str, here: bool) -> None:
    assert computes_here((frame("f", file), *TRAIN)) is here
