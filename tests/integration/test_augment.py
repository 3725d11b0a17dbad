"""Sweep, explanation and prediction of a loader that augments, with real children: what is done where, and kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pipetune
from pipetune.errors import UsageError
from pipetune.store.folder import load_run
from tests.integration.commands import outcomes_in, python, run, swept
from tests.photo_set import enlarge

pytest.importorskip("torchvision", reason="operations are torchvision's")
pytestmark = pytest.mark.slow

#: An accelerator that takes 1,000 images/s, and 500/s where it augments them as well.
DEVICE = "emulated:1000?augment=1000"
SHORT = ("--seconds", "0.5", "--image-size", "48", "--backends", "opencv", "--workers", "1", "--blocks", "0")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return enlarge(tmp_path_factory.mktemp("photos"), copies=20)


def test_a_sweep_measures_both_places(photos: Path, tmp_path: Path) -> None:
    options = (*SHORT, "--augment", "randaugment", "--device", DEVICE, "--vary", "transforms_on", "--grid")
    result = swept(photos, tmp_path / "run", *options)
    assert result["workload"]["augment"] == "randaugment"
    by_place = {row["candidate"]["transforms_on"]: row for row in result["outcomes"] if row["role"] == "candidate"}
    assert {*by_place} == {"worker", "device"}
    assert result["ceiling_samples_per_s"] > 800, "of a plain step"
    assert by_place["device"]["samples_per_s"] <= 525, "its time is the accelerator's"
    assert by_place["device"]["gpu_util_pct"] > 0
    stored = load_run(tmp_path / "run")
    assert stored.run["workload"]["augment"] == "randaugment"
    again = run([*python(), "sweep", "--resume", str(tmp_path / "run"), "--augment", "mixup"])
    assert again.returncode == 2
    assert "--augment mixup differs from the sweep" in again.stderr
    printed = run([*python(), "report", str(tmp_path / "run")]).stdout
    assert "Each image is augmented after it is cropped and flipped (RandAugment" in printed
    with pipetune.open_loader(tmp_path / "run", photos, batch_size=4, device="cpu") as loader:
        images, labels = loader.to_training(*next(iter(loader)))
        assert loader.augment == "randaugment"
        assert images.shape == (4, 3, 48, 48)
        assert len(labels) == 4


@pytest.mark.parametrize("augment", ["trivialaugment", "mixup"])
def test_the_processor_augments_and_trains(photos: Path, tmp_path: Path, augment: str) -> None:
    options = ("--augment", augment, "--device", "cpu", "--model", "squeezenet1_1", "--fix", "transforms_on=device")
    result = swept(photos, tmp_path / "run", *SHORT, *options, "--vary", "none", "--batch-size", "8")
    places = {row["candidate"]["transforms_on"] for row in result["outcomes"] if row["role"] == "candidate"}
    assert places == {"device"}
    assert all(row["samples_per_s"] > 0 for row in result["outcomes"])


def test_an_explanation_has_the_stage_and_answers_what_moving_it_brings(photos: Path, tmp_path: Path) -> None:
    short = {"seconds": 0.4, "blocks": 1, "image_size": 48, "stages": "warm", "progress": False}
    found = pipetune.explain(
        photos, candidate="opencv-w1-p2-b8", augment="randaugment", device=DEVICE, out=tmp_path / "explained", **short
    )
    assert [cost.stages for cost in found.stages][3:5] == [("augment",), ("normalise",)]
    there, alone = found.part("on_device"), found.part("accelerator")
    assert there is not None
    assert alone is not None
    assert there.samples_per_s < 0.6 * alone.samples_per_s
    asked = pipetune.whatif(
        tmp_path / "explained",
        transforms="device",
        check=True,
        seconds=0.5,
        blocks=1,
        out=tmp_path / "checked",
        progress=False,
    )
    (answer,) = asked.answers
    assert answer.prediction is not None, answer.refused
    assert answer.prediction.demand_samples_per_s == pytest.approx(500, rel=0.1)
    measured = [one for one in outcomes_in(tmp_path / "checked") if one["candidate"]["transforms_on"] == "device"]
    assert measured
    assert all(one["measurement"]["samples_per_s"] <= 525 for one in measured)


def test_what_is_not_possible_is_said(photos: Path, tmp_path: Path) -> None:
    result = swept(photos, tmp_path / "run", *SHORT, "--augment", "colorjitter", "--device", "emulated:500")
    assert {row["candidate"]["transforms_on"] for row in result["outcomes"]} == {"worker"}
    notes = json.loads((tmp_path / "run" / "run.json").read_text())["notes"]
    assert any("transforms_on=device is left out" in note for note in notes)
    with pytest.raises(UsageError, match="--augment mixup has no effect on a script"):
        pipetune.sweep(["python", "train.py"], augment="mixup", progress=False)
