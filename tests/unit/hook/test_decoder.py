"""Only the crops decoded, under a script's own ``ImageFolder``, compared with the script's own way on real photographs.

In processes of their own, because jpeg-roi is looked for where ``XDG_DATA_HOME`` says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipetune.hook import decoder
from tests import ROOT
from tests.photo_set import PHOTOS

pytest.importorskip("torchvision", reason="its ImageFolder is what is decoded for")
pytestmark = pytest.mark.thorough

PROGRAM = """
import json, random, sys
import torch
from torchvision import datasets, transforms as T
from torchvision.transforms import v2
from pipetune.hook.decoder import NotPossibleError, swap_for
def tried(transform, more, dataset):
    data = datasets.ImageFolder(sys.argv[1], eval(transform))
    exec(more)
    before = torch.get_rng_state(), random.getstate()
    try:
        swap = swap_for(eval(dataset))
    except NotPossibleError as error:
        return {"refused": str(error)}
    same = torch.equal(before[0], torch.get_rng_state()) and before[1] == random.getstate()
    kinds = [type(data.transform).__name__]
    swap.put_in()
    kinds.append(type(data.transform).__name__)
    sample = data[0]
    swap.take_out()
    kinds.append(type(data.transform).__name__)
    return {"psnr_db": swap.psnr_db, "same_state": same, "kinds": kinds, "label": sample[1],
            "shape": list(sample[0].shape)}
print(json.dumps([tried(*case) for case in json.loads(sys.argv[2])]))
"""
#: Transform, what is changed of ``data`` afterwards, and the data set that is asked about.
Case = tuple[str, str, str]


def run(home: str | Path, *cases: Case) -> list[dict[str, Any]]:
    """What comes of the cases; in one process, because importing torch takes longer than all of them."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(PHOTOS), json.dumps(cases)], cwd=ROOT, capture_output=True, text=True,
        check=False, env={**os.environ, "XDG_DATA_HOME": str(home)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


CROP = "T.RandomResizedCrop(64)"
SIMPLE = f"T.Compose([{CROP}, T.ToTensor()])"


def test_pixels_are_near_and_labels_and_random_numbers_the_same(jpeg_roi_home: Path) -> None:
    transforms = (
        f"T.Compose([{CROP}, T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3)])",
        f"T.Compose([{CROP}, T.ColorJitter(0.4, 0.4), T.PILToTensor()])",
        "v2.Compose([v2.RandomResizedCrop(64, antialias=True), v2.RandomHorizontalFlip(), v2.PILToTensor()])",
    )
    for found in run(jpeg_roi_home, *((transform, "", "data") for transform in transforms)):
        assert found["psnr_db"] >= 45
        assert found["same_state"], "the comparison draws nothing of the script's"
        assert found["kinds"] == ["Compose", "RegionTransform", "Compose"]
        assert (found["label"], found["shape"]) == (0, [3, 64, 64])


def test_the_comparison_seeds_the_cpus_generator_alone() -> None:
    """torch.manual_seed seeds those of all GPUs, too: every rank would draw the same there from then on."""
    torch = pytest.importorskip("torch", reason="its generator is drawn from")
    seeded: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "manual_seed", seeded.append)
        patch.setattr(torch.cuda, "manual_seed_all", seeded.append)
        decoder._drawn(torch, [7], 0, 3)
    assert seeded == []
    assert torch.default_generator.initial_seed() == 3


def test_a_folder_inside_of_a_subset_is_found(jpeg_roi_home: Path) -> None:
    subset = "torch.utils.data.ConcatDataset([torch.utils.data.Subset(data, [0, 1])])"
    assert run(jpeg_roi_home, (SIMPLE, "", subset))[0]["psnr_db"] >= 45


REFUSED: tuple[tuple[Case, str], ...] = (
    (("T.Compose([T.Resize(64), T.CenterCrop(64), T.ToTensor()])", "", "data"), "RandomResizedCrop"),
    (("T.ToTensor()", "", "data"), "RandomResizedCrop"),
    ((SIMPLE, "data.loader = lambda path: None", "data"), "loader function"),
    (("T.Compose([T.RandomResizedCrop((64, 32)), T.ToTensor()])", "", "data"), "not square"),
    (("T.Compose([T.RandomResizedCrop(64, interpolation=T.InterpolationMode.BICUBIC), T.ToTensor()])", "", "data"),
     "not bilinear"),
    (("T.Compose([T.RandomResizedCrop(64, antialias=False), T.ToTensor()])", "", "data"), "not antialiased"),
    ((SIMPLE, "data.rng = random.Random(0)", "data"), "random generators of its own (rng)"),
    ((SIMPLE, "data.transform.transforms[1].drawn_by = torch.Generator()", "data"), "of its own (drawn_by)"),
    ((SIMPLE, "", "[1, 2]"), "no torchvision ImageFolder"),
)  # fmt: skip


def test_what_is_not_recognised_is_left_alone(jpeg_roi_home: Path) -> None:
    found = run(jpeg_roi_home, *(case for case, _ in REFUSED))
    for one, (_, said) in zip(found, REFUSED, strict=True):
        assert said in one["refused"]


def test_without_the_library_it_is_not_possible(tmp_path: Path) -> None:
    assert "jpeg-roi" in run(tmp_path, (SIMPLE, "", "data"))[0]["refused"]
