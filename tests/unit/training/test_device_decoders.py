"""Training with a decoder on a device: which device it takes, and the epochs, which are those of every other loader."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="what is tested handles tensors")

import pipetune  # noqa: E402
import pipetune.training.open_loader as opening  # noqa: E402
from pipetune.errors import UsageError  # noqa: E402
from pipetune.records.sweep import Candidate  # noqa: E402
from pipetune.training import choice  # noqa: E402
from pipetune.training.loader import TrainingLoader  # noqa: E402
from tests.photo_set import scan, small_photos  # noqa: E402


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_photos(tmp_path_factory.mktemp("device") / "photos", copies=4)


def opened(photos: Path, backend: str, workers: int, **options: Any) -> TrainingLoader:
    chosen = Candidate(backend=backend, num_workers=workers, prefetch_depth=2 if workers else 0, batch_size=4)
    values = {"image_size": 32, "seed": 3, "shuffle": True, "drop_last": False, "rank": 0, "world_size": 1, **options}
    return TrainingLoader(chosen, scan(photos), device_index=None, **values)


def seen(epoch: Any) -> list[tuple[list[int], Any]]:
    return [(labels.tolist(), images) for images, labels in epoch]


@pytest.mark.parametrize("options", [{}, {"rank": 1, "world_size": 3}, {"shuffle": False}])
def test_epochs_and_pixels_are_those_of_the_other_loaders(photos: Path, options: dict[str, Any]) -> None:
    with opened(photos, "nvjpeg", 2, **options) as ours, opened(photos, "pillow", 0, **options) as theirs:
        for _ in range(2):
            for (labels, images), (expected, reference) in zip(seen(ours), seen(theirs), strict=True):
                assert labels == expected
                assert float((images - reference).abs().mean()) < 0.005


def test_it_resumes_within_an_epoch(photos: Path) -> None:
    with opened(photos, "nvjpeg", 2) as loader:
        whole = [labels for labels, _ in seen(loader)]
        second = [labels for labels, _ in seen(loader)]
        loader.load_state_dict({**loader.state_dict(), "epoch": 1, "batch": 2})
        assert [labels for labels, _ in seen(loader)] == second[2:]
    assert whole != second


@pytest.mark.parametrize("backend", ["nvjpeg", "nvimagecodec"])
def test_it_needs_a_cuda_device(photos: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "installed_version", lambda backend: "1")
    chosen = Candidate(backend=backend, num_workers=2, prefetch_depth=2, batch_size=4)
    with pytest.raises(UsageError, match="decodes on a CUDA device, and there is none"):
        pipetune.open_loader(chosen, photos, device="cpu")
    with pytest.raises(UsageError, match="makes no numpy arrays"):
        pipetune.open_loader(chosen, photos, arrays="numpy")


@pytest.mark.parametrize(
    ("kind", "measured", "backend"),
    [
        ("emulated", "dali", "dali-cpu"),
        ("cpu", "dali", "dali-cpu"),
        ("cuda", "dali", "dali"),
        ("cuda", "dali-cpu", "dali-cpu"),
        ("emulated", "opencv", "opencv"),
    ],
)
def test_dali_decodes_where_it_did_when_it_was_measured(
    kind: str, measured: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = Candidate(backend=measured, num_workers=2, prefetch_depth=2, batch_size=4)
    run = SimpleNamespace(
        path="run",
        recommended_key=candidate.key,
        outcomes=[SimpleNamespace(candidate=candidate)],
        info={"workload": {"accelerator": {"kind": kind}, "dataset": "photos"}},
        result={},
    )
    monkeypatch.setattr(choice, "load", lambda path: run)
    assert choice.choose_candidate("run")[0].backend == backend
    assert choice.choose_candidate(candidate)[0].backend == measured
