"""The real command: a training is measured before and after, packs of pixels are swept and trained with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pipetune
from tests.integration.commands import failed_in_one_line, python, run, swept

pytest.importorskip("torch", reason="the children measure torch loaders")
pytestmark = pytest.mark.usefixtures("jpeg_roi")

LOADER = ("--device", "emulated:100000", "--candidate", "pillow-w1-p2-b8")


def pack(*words: object) -> list[str]:
    return [*python(), "pack", *map(str, words)]


@pytest.mark.slow
def test_a_training_is_measured_before_and_after(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run(pack(photos, out, "--shorter-edge", "32", "--crop", "32", "--json", tmp_path / "x.json", *LOADER))
    assert done.returncode == 0, done.stderr
    assert "Training with pillow-w1-p2-b8 on EMULATED" in done.stdout
    assert "by what the images packed on trial gain" in done.stdout
    (stored,) = json.loads((tmp_path / "x.json").read_text())["packs"]
    for gain in (stored["plan"]["gain"], stored["result"]["gain"]):
        assert gain["candidate"] == "pillow-w1-p2-b8"
        # Which of them is larger is the machine's affair; that none is taken for the other is a unit test's.
        assert min(gain["before_samples_per_s"], gain["after_samples_per_s"]) > 0
        assert gain["after_ci95"][0] < gain["after_samples_per_s"] < gain["after_ci95"][1]
    kept = json.loads((out / "pack.json").read_text())
    assert kept["result"]["gain"] == stored["result"]["gain"]
    assert not list(out.glob(".pipetune-trial*"))


@pytest.mark.slow
def test_only_planned_it_is_predicted_and_nothing_stays(photos: Path, tmp_path: Path) -> None:
    done = run(pack(photos, tmp_path / "out", "--sizes", "32,as-is", "--plan", *LOADER))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("by what the images packed on trial gain") == 2
    assert "Packing all 2 at the same time takes about" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--device", "emulated:none"), "unknown emulated accelerator 'none'"),
        (("--format", "raw", "--shorter-edge", "32", "--candidate", "opencv-w1-p2-b8"), "opencv-w1-p2-b8 decodes"),
        (("--part", "1/2", "--candidate", "pillow-w1-p2-b8"), "--part writes a part"),
        (("--validation", "0.9", "--candidate", "pillow-w1-p2-b8"), "images to train with are fewer than a batch of 8"),
        (("--model", "resnot50"), "resnot50"),
        (("--candidate", "fast"), "there is no candidate fast"),
        (("--candidate", "pillow-w1-p2-b4000"), "60 images are fewer than a batch of 4000"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_measured_is_said_before(
    words: tuple[str, ...], text: str, photos: Path, tmp_path: Path
) -> None:
    done = run(pack(photos, tmp_path / "out", *words))
    failed_in_one_line(done, 2, text)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_pixels_are_swept_explained_and_trained_with(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run(pack(photos, out, "--format", "raw", "--shorter-edge", "48", "--enlarge"))
    assert done.returncode == 0, done.stderr
    assert "A packed image is not decoded any more." in done.stdout
    result = swept(out, tmp_path / "run", "--backends", "pillow,jpeg-roi,opencv")
    used = {row["candidate"]["backend"] for row in result["outcomes"] if row["role"] == "candidate"}
    assert used <= {"pillow", "jpeg-roi"}
    assert "opencv is left out: it decodes" in " ".join(result["stderr"].split())
    images, labels = next(iter(pipetune.open_loader(tmp_path / "run", dataset=str(out))))
    assert len(images) == len(labels)
    words = ("--candidate", "jpeg-roi-w1-p2-b8", "--device", "emulated:100000", "--blocks", "1", "--seconds", "0.3")
    explained = run([*python(), "explain", "--dataset", str(out), *words, "--out", str(tmp_path / "explained")])
    assert explained.returncode == 0, explained.stderr
    words = ("--backends", "opencv", "--batch-size", "8", "--out", str(tmp_path / "none"))
    refused = run([*python(), "sweep", "--dataset", str(out), *words])
    failed_in_one_line(refused, 2, "opencv is left out: it decodes, and these images are stored as pixels")
