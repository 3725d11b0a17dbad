"""What a training gains by a pack: how rates of a sample become a prediction, with a child that is made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipetune.datasets.index import read_index
from pipetune.errors import PipetuneError, UsageError
from pipetune.packing import gain as module
from pipetune.packing.gain import GainOptions, gain_options
from pipetune.packing.options import Pixels
from pipetune.packing.prepare import PackObserver
from pipetune.packing.run import pack
from pipetune.records.sweep import Candidate, Failure, Outcome
from tests.fakes import measurement
from tests.unit.packing.packs import options, photographs

pytestmark = pytest.mark.usefixtures("jpeg_roi")

CHOSEN = GainOptions(device="emulated:100000", candidate="pillow-w1-p2-b8", blocks=2)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return photographs(tmp_path / "source")


class Children:
    """Answers for the children that would be measured: as many images per second as an image's bytes ask for."""

    def __init__(self, failure: Failure | None = None) -> None:
        self.failure = failure
        self.seen: list[tuple[int, float]] = []

    def measure(self, candidate: Candidate, role: str, conditions: Any, **_: object) -> tuple[Outcome, Any]:
        images = read_index(conditions.workload.index_path)
        self.seen.append((len(images.images), images.mean_bytes))
        rate = 1e7 / images.mean_bytes
        found = None if self.failure else measurement(samples_per_s=rate, ci95=(0.95 * rate, 1.05 * rate))
        outcome = Outcome(
            candidate=candidate, role=role, attempt=1, started_unix_s=0.0, wall_s=1.0, measurement=found,
            failure=self.failure,
        )  # fmt: skip
        return outcome, type("Recording", (), {"stopped": None})()


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Children:
    found = Children()
    monkeypatch.setattr(module.harness, "measure", found.measure)
    return found


class Seen(PackObserver):
    def __init__(self) -> None:
        self.told: list[str] = []

    def on_gain(self, run: Any) -> None:
        self.told.append(run.name)

    def on_warning(self, text: str) -> None:
        self.told.append(text)


def test_rates_are_predicted_from_the_sample_and_measured_with_the_whole(source: Path, children: Children) -> None:
    pixels = Pixels(mode="shorter-edge", edge=64)
    (run,) = pack(options(source, pixels=pixels), Seen(), cores=1.0, gain=CHOSEN)
    assert run.plan.gain is not None
    assert run.result is not None
    assert run.result.gain is not None
    for found in (run.plan.gain, run.result.gain):
        assert found.candidate == "pillow-w1-p2-b8"
        assert found.before_samples_per_s == pytest.approx(1e7 * 24 / run.plan.source_bytes)
        assert found.factor > 2
    # All images were sampled, so the prediction is what is measured; the interval allows for the sample.
    assert run.plan.gain.after_samples_per_s == pytest.approx(run.result.gain.after_samples_per_s, rel=0.05)
    low, high = run.plan.gain.after_ci95
    own_low, own_high = run.result.gain.after_ci95
    assert high - low > own_high - own_low
    assert min(count for count, _ in children.seen[:6]) == 24
    assert sorted(count for count, _ in children.seen[:6])[2:] == [264] * 4, "each as often as it takes"
    assert len(children.seen) == 2 * (3 + 2)


def test_of_several_packs_the_sources_are_measured_once(source: Path, children: Children) -> None:
    sizes = (("32", Pixels(mode="shorter-edge", edge=32)), ("as-is", Pixels()))
    observer = Seen()
    small, copied = pack(options(source, sizes=sizes, validation="2-per-class"), observer, cores=1.0, gain=CHOSEN)[:2]
    assert len(children.seen) == 2 * (4 + 3)
    assert observer.told == ["32 train", "as-is train"]
    assert small.plan.gain is not None
    assert copied.plan.gain is not None
    assert small.plan.gain.factor > 4
    assert copied.plan.gain.factor == pytest.approx(1.0, abs=0.02)


def test_what_cannot_be_measured_costs_no_pack(
    source: Path, monkeypatch: pytest.MonkeyPatch, children: Children
) -> None:
    observer = Seen()

    def refuses(*_: object) -> None:
        raise PipetuneError("the training cannot be measured")

    monkeypatch.setattr("pipetune.packing.run.measured_gains", refuses)
    (run,) = pack(options(source), observer, cores=1.0, gain=CHOSEN)
    assert run.result is not None
    assert run.result.complete
    assert run.result.gain is None
    assert observer.told == ["the packs are complete, and a training was not measured: the training cannot be measured"]


def test_a_plan_that_cannot_be_measured_is_a_failure_before_anything_is_written(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = Failure(kind="crashed", phase="open", message="it crashed", hint=None)
    monkeypatch.setattr(module.harness, "measure", Children(failure).measure)
    chosen = options(source)
    with pytest.raises(PipetuneError, match="cannot be measured with pillow-w1-p2-b8: it crashed"):
        pack(chosen, PackObserver(), cores=1.0, gain=CHOSEN)
    assert not list(chosen.out.glob("*.tar"))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"candidate": "pillow-w1-p2-b25"}, "fewer than a batch of 25"),
        ({"candidate": "opencv-w1-p2-b8", "raw": True}, "--candidate opencv-w1-p2-b8 decodes"),
        ({"device": "cuda:99"}, "cuda"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_said_first(changes: dict[str, Any], text: str, source: Path) -> None:
    from dataclasses import replace

    with pytest.raises(UsageError, match=text):
        pack(options(source), PackObserver(), cores=1.0, gain=replace(CHOSEN, **changes))
    assert not (source.parent / "out").exists()


def test_nothing_is_measured_unless_asked_for() -> None:
    nothing: dict[str, Any] = {"model": None, "device": None, "candidate": None, "crop": 224, "raw": False}
    assert gain_options(**nothing) is None
    found = gain_options(**{**nothing, "candidate": "pillow-w1-p2-b8", "crop": 128})
    assert found is not None
    assert (found.key, found.image_size, found.model, found.device) == ("pillow-w1-p2-b8", 128, "resnet50", "auto")


def test_pixels_are_loaded_by_jpeg_roi_unless_said_otherwise() -> None:
    assert str(GainOptions(raw=True).key).startswith("jpeg-roi-w")
    assert GainOptions().key is None
