"""The real command: packs, what it says to bad input and when it is stopped, and sweeps and trainings over packs."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

import pipetune
from tests.integration.commands import failed_in_one_line, python, run, start, swept, wait_until

pytest.importorskip("torch", reason="the children measure torch loaders")
pytestmark = pytest.mark.usefixtures("jpeg_roi")


def pack(*words: object) -> list[str]:
    return [*python(), "pack", *map(str, words)]


@pytest.mark.slow
def test_a_pack_is_planned_written_and_swept(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run(pack(photos, out, "--shorter-edge", "64", "--json", tmp_path / "x.json"))
    assert done.returncode == 0, done.stderr
    for words in ("60 images of 2 classes", "Packing takes about", "are resized", "60 images in 1 shard"):
        assert words in done.stdout
    (stored,) = json.loads((tmp_path / "x.json").read_text())["packs"]
    assert stored["result"]["images"] == 60
    assert stored["folder"] == str(out)
    assert stored["plan"]["fidelity"]["crops"] > 0
    result = swept(out, tmp_path / "run")
    assert result["dataset"]["images"] == 60
    loader = pipetune.open_loader(tmp_path / "run", dataset=str(out))
    images, labels = next(iter(loader))
    assert len(images) == len(labels)
    assert set(labels.tolist()) <= {0, 1}


def test_from_a_notebook(photos: Path, tmp_path: Path) -> None:
    (planned,) = pipetune.pack(photos, tmp_path / "out", shorter_edge=64, plan=True, progress=False)
    assert planned.result is None
    assert not (tmp_path / "out").exists()
    packs = pipetune.pack(photos, tmp_path / "out", validation=0.2, progress=False)
    assert [(one.name, one.result.images) for one in packs if one.result is not None] == [
        ("train", 48), ("validation", 12),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        (("nowhere", "out"), ("no such folder: 'nowhere'",)),
        (("SRC", "SRC/inner"), ("lies in", "name a folder beside it")),
        (("SRC", "out", "--format", "zip"), ("--format 'zip'",)),
        (("SRC", "out", "--format", "webdatset"), ("did you mean webdataset?",)),
        (("SRC", "out", "--shorter-edge", "256", "--as-is"), ("contradict",)),
        (("SRC", "out", "--quality", "80"), ("--quality", "--shorter-edge 256")),
        (("SRC", "out", "--shard-size", "many"), ("--shard-size 'many'",)),
        (("SRC", "out", "--shard-size", "4GB", "--format", "mds"), ("more than a shard of mds holds",)),
        (("SRC", "out", "--validation", "2"), ("--validation '2'",)),
        (("SRC", "out", "--validation", "30-per-class"), ("leaves none to train with",)),
        (("SRC", "out", "--min-per-class", "1000"), ("leaves no class",)),
        (("SRC", "out", "--part", "9/8"), ("--part '9/8'",)),
        (("SRC", "out", "--plan", "--resume"), ("--plan",)),
        (("SRC", "out", "--crop", "0"), ("--crop 0",)),
        (("SRC", "out", "--json", "none/x.json"), ("the folder none does not exist",)),
    ],
    ids=" ".join,
)  # fmt: skip
def test_bad_input_is_one_line(words: tuple[str, ...], texts: tuple[str, ...], photos: Path, tmp_path: Path) -> None:
    done = run(pack(*(word.replace("SRC", str(photos)) for word in words)), cwd=tmp_path)
    failed_in_one_line(done, 2, *texts)
    assert not (tmp_path / "out").exists()


def test_strict_is_a_failure_where_an_image_cannot_be_packed(photos: Path, tmp_path: Path) -> None:
    for number, path in enumerate(sorted(photos.rglob("*.jpg"))[::6]):
        copy = tmp_path / "source" / path.parent.name / f"{number}.jpg"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    (copy.parent / "bad.jpg").write_bytes(b"no image")
    done = run(pack(tmp_path / "source", tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert "1 image was not packed" in done.stdout
    done = run(pack(tmp_path / "source", tmp_path / "strict", "--strict"))
    assert done.returncode == 1
    assert (tmp_path / "strict" / "manifest.jsonl").exists()


@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow), (signal.SIGTERM, 143)]
)
def test_it_is_stopped_and_goes_on(number: signal.Signals, code: int, photos: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    for copy in range(60):
        for path in photos.rglob("*.jpg"):
            place = source / path.parent.name / f"{copy}-{path.name}"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(path.resolve())
    out = tmp_path / "out"
    words = (source, out, "--shorter-edge", "48", "--shard-size", "1MB", "--threads", "1")
    running = start(pack(*words))
    wait_until(lambda: list((out / ".pipetune-parts").glob("*.jsonl")))
    running.send_signal(number)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == code
    assert errors.strip().splitlines()[-1].endswith("--resume goes on")
    assert not list(out.glob("*.tmp"))
    done = run(pack(*words, "--resume"))
    assert done.returncode == 0, done.stderr
    assert f"{60 * 60:,} images in" in done.stdout
