"""The real command: what it measures of real loaders, what it says to bad input, what is kept when it is stopped."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest

import pipetune
from pipetune.datasets.index import read_index
from pipetune.report.schemas import explain_schema
from tests.bad_images import without_tables
from tests.integration.commands import Done, outcomes_in, python, run, start, wait_until
from tests.photo_set import enlarge

pytest.importorskip("torch", reason="the children measure torch loaders")

#: Short enough for a test; what is measured is checked for what it is of, and not for how much it is.
SHORT = ("--seconds", "0.5", "--blocks", "1", "--image-size", "32", "--stages", "warm", "--device", "emulated:400")

LOADER = """
import torch
from torch.utils.data import DataLoader, IterableDataset
from torchvision import datasets, transforms

def images():
    shape = transforms.Compose([transforms.Resize((32, 32)), transforms.ToTensor()])
    return DataLoader(datasets.ImageFolder({photos!r}, shape), batch_size=4, num_workers=1)

class Endless(IterableDataset):
    def __iter__(self):
        for _ in range(2000):
            yield torch.zeros(3, 32, 32), 0

def stream():
    return DataLoader(Endless(), batch_size=4, num_workers=1)
"""


def explain(*words: object, cwd: Path) -> Done:
    path = f"{cwd}:{os.environ.get('PYTHONPATH', '')}"
    return run([*python(), "explain", *map(str, words)], cwd=cwd, PYTHONPATH=path, COLUMNS="160")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return enlarge(tmp_path_factory.mktemp("photos"), copies=20)


def result_in(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "result.json").read_text())
    return found


@pytest.mark.slow
def test_each_stage_of_a_loader_is_measured(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = explain("--dataset", photos, "--candidate", "pillow-w1-p2-b4", *SHORT, "--out", out, "--json",
                   tmp_path / "x.json", "--html", tmp_path / "x.html", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    stored = result_in(out)
    jsonschema.validate(stored, explain_schema())
    assert json.loads((tmp_path / "x.json").read_text()) == stored
    explained = stored["explanation"]
    assert [cost["stages"] for cost in explained["stages"]] == [
        ["fetch"], ["decode"], ["transform"], ["collate"], ["hand_over"],
    ]  # fmt: skip
    measured = {row["part"] for row in outcomes_in(out)}
    assert measured == {part["name"] for part in explained["parts"]}
    assert {"accelerator", "loop", "with_accelerator", "reading"} <= measured
    text = " ".join(done.stdout.split())
    for words in ("reading files", "decoding", "cropping, resizing and normalising", "all stages", "run folder:"):
        assert words in text
    page = (tmp_path / "x.html").read_text()
    assert "<svg" in page
    assert "What was measured" in page or "All that was measured" in page
    shown = run([*python(), "report", str(out)], cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert explained["sentence"] in " ".join(shown.stdout.split())
    for option in ("--markdown", "--csv"):
        assert run([*python(), "report", str(out), option], cwd=tmp_path).returncode == 0
    compared = run([*python(), "compare", str(out), str(out)], cwd=tmp_path)
    assert compared.returncode == 0, compared.stderr


@pytest.mark.slow
def test_the_candidate_of_a_sweep(photos: Path, tmp_path: Path) -> None:
    swept = pipetune.sweep(
        photos, device="emulated:400", backends=["pillow", "opencv"], workers=[1], image_size=32, batch_size=4,
        seconds=0.3, vary="none", effort="quick", out=tmp_path / "sweep", progress=False,
    )  # fmt: skip
    found = pipetune.explain(swept, candidate="default", stages="warm", seconds=0.3, blocks=1, out=tmp_path / "e",
                             progress=False)  # fmt: skip
    assert found.candidate.backend == "pillow"
    assert pipetune.load(tmp_path / "e").kind == "explain"
    assert pipetune.load(tmp_path / "e").frame()["part"].tolist()
    done = explain(tmp_path / "sweep", "--candidate", "opencv-w9-p2-b4", cwd=tmp_path)
    assert done.returncode == 2
    assert "has no candidate opencv-w9-p2-b4; there are: recommended, default" in done.stderr
    done = explain(tmp_path / "sweep", "--device", "emulated:100", cwd=tmp_path)
    assert done.returncode == 2
    assert "--device emulated:100 has no effect" in done.stderr
    done = explain(tmp_path / "e", cwd=tmp_path)
    assert done.returncode == 2
    assert "is a run of pipetune explain, not of pipetune sweep" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("name", "stages"), [("images", 5), ("stream", 1)])
def test_a_loader_of_the_users_own(photos: Path, tmp_path: Path, name: str, stages: int) -> None:
    (tmp_path / "mine.py").write_text(LOADER.format(photos=str(photos)))
    out = tmp_path / "run"
    short = [*SHORT[:4], "--stages", "warm", "--device", "emulated:400"]
    done = explain("--loader", f"mine:{name}", *short, "--out", out, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    explained = result_in(out)["explanation"]
    assert len(explained["stages"]) == stages
    assert any("cannot be divided" in note for note in explained["notes"]) is (stages == 1)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["opencv-w1-p2-b4-reuse-u8", "opencv-w1-p2-b4-thread", "opencv-w0-p0-b4"])
def test_other_ways_to_make_batches(photos: Path, tmp_path: Path, key: str) -> None:
    pytest.importorskip("cv2", reason="the decoder is OpenCV's")
    out = tmp_path / "run"
    done = explain("--dataset", photos, "--candidate", key, *SHORT, "--out", out, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    stages = [cost["stages"] for cost in result_in(out)["explanation"]["stages"]]
    assert (["collate"] in stages) is (key == "opencv-w0-p0-b4")


@pytest.mark.slow
def test_several_ranks(photos: Path, tmp_path: Path) -> None:
    swept = pipetune.sweep(
        photos, device="2x300", backends=["pillow"], workers=[1], image_size=32, batch_size=4, seconds=0.3,
        vary="none", effort="quick", out=tmp_path / "sweep", progress=False,
    )  # fmt: skip
    found = pipetune.explain(swept, stages="warm", seconds=0.3, blocks=1, out=tmp_path / "e", progress=False)
    accelerators = found.part("accelerator")
    assert accelerators is not None
    assert accelerators.samples_per_s == pytest.approx(600, rel=0.1)


@pytest.mark.slow
def test_an_image_that_does_not_decode_is_replaced(photos: Path, tmp_path: Path) -> None:
    bad = enlarge(tmp_path / "photos", copies=20)
    victim = sorted(bad.rglob("*.jpg"))[0]
    data = victim.read_bytes()
    victim.unlink()
    victim.write_bytes(without_tables(data))
    out = tmp_path / "run"
    done = explain("--dataset", bad, "--candidate", "pillow-w1-p2-b4", *SHORT, "--out", out, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    subset = read_index(str(out / "subset.json"))
    assert str(victim) not in [image.path for image in subset.images]
    assert len(subset.images) == 80


@pytest.mark.slow
def test_what_was_measured_is_kept_when_it_is_interrupted(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    going = start([*python(), "explain", "--dataset", str(photos), "--candidate", "pillow-w1-p2-b4", "--seconds", "1",
                   "--image-size", "32", "--device", "emulated:400", "--out", str(out)], cwd=tmp_path)  # fmt: skip
    wait_until(lambda: len(outcomes_in(out)) >= 4, seconds=120)
    children = psutil.Process(going.pid).children(recursive=True)
    going.send_signal(signal.SIGINT)
    printed, _ = going.communicate(timeout=120)
    assert going.returncode == 130
    assert "INTERRUPTED" in printed
    assert len(outcomes_in(out)) >= 4
    assert result_in(out)["status"] == "interrupted"
    wait_until(lambda: not any(child.is_running() and child.status() != "zombie" for child in children), seconds=20)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "none is named"),
        (("run", "--dataset", "x"), "run and x are named"),
        (("nowhere",), "there is no folder nowhere"),
        (("--dataset", "PHOTOS", "--candidate", "pilow-w1-p2-b4"), "there is no candidate pilow-w1-p2-b4"),
        (("--dataset", "PHOTOS", "--candidate", "pillow"), "there is no candidate pillow"),
        (("--dataset", "PHOTOS", "--candidate", "pillow-w1-p2-b9999"), "fewer than a batch of 9999"),
        (("--dataset", "PHOTOS", "--seconds", "0"), "--seconds 0 is out of range"),
        (("--dataset", "PHOTOS", "--blocks", "0"), "--blocks 0 is out of range"),
        (("--dataset", "PHOTOS", "--stages", "some"), "--stages 'some' is unknown"),
        (("--dataset", "PHOTOS", "--cache", "hot"), "--cache 'hot' is unknown"),
        (("--dataset", "PHOTOS", "--cache", "cold", "--stages", "warm"), "--stages warm leaves out"),
        (("--loader", "no_such:loader"), "no_such"),
        (("--loader", "a:b", "--candidate", "pillow-w1-p2-b4"), "has its own settings"),
        (("--dataset", "nowhere"), "nowhere"),
    ],
)
def test_bad_input_is_named_in_one_line(photos: Path, tmp_path: Path, words: tuple[str, ...], expected: str) -> None:
    done = explain(*(str(photos) if word == "PHOTOS" else word for word in words), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
