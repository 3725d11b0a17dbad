from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.records.sweep import AcceleratorSpec
from pipetune.registry import BACKENDS
from pipetune.report.code import call_of, code_for, for_training, settings_for
from tests.photo_set import candidate

ROOT = '/data/it\'s "quoted"\\and\nbroken'
RUN = "/runs/caltech's\n"


@pytest.mark.parametrize("backend", sorted(BACKENDS))
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("on_gpu", [False, True])
def test_the_code_is_python_whatever_the_folder_is_called(backend: str, flat: bool, on_gpu: bool) -> None:
    tree = ast.parse(
        code_for(candidate(backend, 2), root=ROOT, image_size=96, flat=flat, on_gpu=on_gpu, run_folder=RUN)
    )
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert ROOT in texts
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    assert "loader" in names


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_no_placeholder_is_left(backend: str) -> None:
    code = code_for(candidate(backend, 2), root="/d", image_size=96, flat=False, on_gpu=False, run_folder=RUN)
    assert "{{" not in code
    assert "{%" not in code
    assert "96" in code


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_each_of_several_ranks_reads_its_own_part(backend: str) -> None:
    """A plain DataLoader would shuffle all images in each of them, and DALI decode on the first GPU."""
    code = code_for(candidate(backend, 2), root="/d", image_size=96, flat=False, on_gpu=True, run_folder=RUN, ranks=8)
    assert "pipetune.open_loader(candidate" in code
    assert "in each of 8 ranks" in code


@pytest.mark.parametrize(
    ("backend", "slower"), [("opencv", True), ("pillow", True), ("jpeg-roi", False), ("dali", False)]
)
def test_plain_code_slower_than_what_was_measured_has_a_remark(backend: str, slower: bool) -> None:
    code = code_for(candidate(backend, 2), root="/d", image_size=96, flat=False, on_gpu=False, run_folder=RUN)
    assert ("than the loader that was measured, which is:" in code) == slower
    assert (f"loader = pipetune.open_loader({RUN!r})" in code) == slower


def test_dali_decodes_where_the_accelerator_is() -> None:
    on_cpu, on_gpu = (
        code_for(candidate("dali", 3), root="/d", image_size=96, flat=False, on_gpu=gpu, run_folder=RUN)
        for gpu in (False, True)
    )
    assert "num_threads=3, device_id=None" in on_cpu
    assert 'device="cpu"' in on_cpu
    assert "num_threads=3, device_id=0" in on_gpu
    assert 'device="mixed"' in on_gpu


def test_settings_say_only_what_applies() -> None:
    pinned = replace(candidate("opencv", 2, 64), pin_memory=True)
    assert settings_for(pinned).endswith("persistent_workers=True, pin_memory=True")
    assert settings_for(candidate("pillow", 0, 64)) == "batch_size=64, num_workers=0"
    assert settings_for(candidate("dali", 3, 64)) == "num_threads=3, prefetch_queue_depth=2"


def test_settings_name_all_that_was_set() -> None:
    assert settings_for(replace(candidate("opencv", 0, 64), allocator="glibc", reuse_buffers=True)) == (
        "batch_size=64, num_workers=0, reuse_buffers=True, allocator=glibc"
    )
    assert settings_for(replace(candidate("dali", 3, 64), transfer="uint8")).endswith(", transfer=uint8")


def test_of_a_loader_of_ones_own_only_what_it_takes_is_named() -> None:
    own = replace(candidate("pillow", 2, 64), backend="own")
    assert settings_for(own, "own:make_loader(num_workers)") == "num_workers=2"
    assert settings_for(own, "own:make(batch_size, num_workers)") == "batch_size=64, num_workers=2"


def test_the_call_of_a_loader_of_ones_own_is_the_one_that_was_made() -> None:
    own = replace(candidate("pillow", 2, 64), backend="own")
    assert call_of("own:make(batch_size, num_workers)", own) == "make(batch_size=64, num_workers=2)"
    without = replace(own, num_workers=0, prefetch_depth=0)
    assert call_of("own:make(num_workers, prefetch_factor)", without) == "make(num_workers=0, prefetch_factor=None)"


@pytest.mark.parametrize("name", ["a b", "", "lambda", "pkg.mod:1", "pkg.mod:f;g", "f\nimport os"])
def test_a_name_that_is_none_is_not_called(name: str) -> None:
    own = replace(candidate("pillow", 2, 64), backend="own", loader="user")
    assert call_of(f"own:{name}(batch_size, num_workers)", own).startswith("make_loader(")
    code = code_for(own, root=f"own:{name}(num_workers)", image_size=96, flat=False, on_gpu=False, run_folder=RUN)
    assert code.strip() == "loader = make_loader(num_workers=2)"
    assert call_of("own:x(), __import__('os').system('id'); y(num_workers)", own) == "x()"


def test_a_name_with_its_module_is_called() -> None:
    own = replace(candidate("pillow", 2, 64), backend="own", loader="user")
    assert call_of("own:pkg.mod:make(batch_size, num_workers)", own) == "pkg.mod.make(batch_size=64, num_workers=2)"


EVIL = "'); __import__('os').system('id')\n# \"\"\""


@pytest.mark.parametrize("backend", ["pillow", "opencv", "torchvision", "jpeg-roi", "dali"])
def test_texts_of_a_run_stay_texts(backend: str) -> None:
    chosen = replace(candidate(backend, 2), start_method=EVIL, transfer=EVIL, allocator=EVIL)
    code = code_for(chosen, root=EVIL, image_size=96, flat=True, on_gpu=True, run_folder=EVIL)
    called = {ast.unparse(node.func) for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)}
    assert not any("import" in name or "system" in name for name in called)
    assert "\n" not in settings_for(chosen)


def test_a_number_that_is_none_is_refused() -> None:
    for wrong in ("224)\nimport os  # ", None, True):
        with pytest.raises(TypeError, match="a number was expected"):
            code_for(candidate("pillow", 2), root="/d", image_size=wrong, flat=True, on_gpu=True, run_folder=RUN)
    with pytest.raises(TypeError, match="a number was expected"):
        settings_for(replace(candidate("dali", 2), prefetch_depth="2, x"))


def test_pillows_code_turns_images_and_passes_over_damaged_exif(tmp_path: Path) -> None:
    from PIL import Image

    code = code_for(candidate("pillow", 2), root="/d", image_size=96, flat=False, on_gpu=False, run_folder=RUN)
    scope: dict[str, Any] = {"Image": Image, "transform": lambda image: image}
    exec(code[code.index("TURNS = ") : code.index("dataset = ")], scope)
    turned = Image.Exif()
    turned[0x0112] = 6
    kinds = (("turned", turned, (4, 6)), ("damaged", b"neither II nor MM", (6, 4)), ("plain", b"", (6, 4)))
    for name, exif, size in kinds:
        Image.new("RGB", (6, 4)).save(tmp_path / f"{name}.png", exif=exif)
        assert scope["load"](tmp_path / f"{name}.png").size == size


def test_shards_are_opened_by_pipetune() -> None:
    code = code_for(
        candidate("pillow", 2), root="/d/0.tar", image_size=96, flat=False, on_gpu=False, run_folder=RUN, shards=True
    )
    assert "pipetune.open_loader(candidate, ROOT, image_size=96)" in code
    assert "ImageFolder" not in code


@pytest.mark.parametrize(("kind", "pinned"), [("cuda", True), ("emulated", True), ("cpu", False)])
def test_batches_that_will_go_to_a_gpu_are_page_locked(kind: str, pinned: bool) -> None:
    for backend in ("opencv", "pillow", "torchvision", "jpeg-roi"):
        chosen = for_training(candidate(backend, 2), AcceleratorSpec(kind=kind, name=kind))
        code = code_for(chosen, root="/d", image_size=96, flat=False, on_gpu=False, run_folder=RUN)
        assert ("pin_memory=True" in code) == pinned
        assert ("pin_memory=True" in settings_for(chosen)) == pinned


def test_page_locking_a_loader_of_ones_own_is_left_to_it() -> None:
    own = replace(candidate("pillow", 2), backend="own", loader="user")
    assert for_training(own, AcceleratorSpec(kind="emulated", name="GPU")) == own


def test_what_dali_decoded_on_a_gpu_is_held_until_its_step_has_ended() -> None:
    on_cpu, on_gpu = (
        code_for(candidate("dali", 3), root="/d", image_size=96, flat=False, on_gpu=gpu, run_folder=RUN)
        for gpu in (False, True)
    )
    assert "for images, labels in held(loader):" in on_gpu  # tests/cuda runs it
    assert "torch" not in on_cpu.replace("plugin.pytorch", "")


@pytest.mark.parametrize("place", ["worker", "device"])
@pytest.mark.parametrize("backend", ["pillow", "opencv", "dali"])
def test_code_augments_as_was_measured(backend: str, place: str) -> None:
    chosen = replace(candidate(backend, 2), transforms_on=place)
    code = code_for(
        chosen, root="/d", image_size=96, flat=False, on_gpu=False, run_folder=RUN, augment="randaugment"
    )  # fmt: skip
    compile(code, "code", "exec")
    assert "augment='randaugment'" in code
    assert "images, labels = loader.to_training(images, labels)" in code
    assert ("transforms_on='device'" in code) == (place == "device")
