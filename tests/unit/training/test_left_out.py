"""What a training leaves out, and that it says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="what is tested handles tensors")

import pipetune
from tests.bad_images import jpeg, without_tables
from tests.run_folders import sweep_folder


def fill(root: Path) -> Path:
    for name in ("a/1.jpg", "a/2.jpg", "b/3.jpg"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(jpeg())
    (root / "b" / "4.jpg").write_bytes(without_tables(jpeg()))
    return root


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_run_s_undecodable_images_are_left_out_and_named(is_moved: bool, tmp_path: Path) -> None:
    root = fill(tmp_path / "data")
    data = {"name": "data", "root": str(root), "images": 4, "classes": 2, "undecodable": [str(root / "b" / "4.jpg")]}
    run = sweep_folder(tmp_path / "run", dataset=data)
    if is_moved:
        root = Path(shutil.move(root, tmp_path / "moved"))

    with (
        pytest.warns(UserWarning, match=rf"leaves out 1 file: '{root}/b/4.jpg': did not decode in the sweep"),
        pipetune.open_loader(run, root, image_size=16, batch_size=1, num_workers=0) as loader,
    ):
        labels = [int(label) for _, batch in loader for label in batch]

    assert sorted(labels) == [0, 0, 1]
