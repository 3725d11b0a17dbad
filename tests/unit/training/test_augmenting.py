"""Images are augmented alike by every loader, any number of workers, and by the device where it is left to that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="what is tested handles tensors")
pytest.importorskip("torchvision", reason="operations are torchvision's")

import pipetune  # noqa: E402
from pipetune.augmentation.recipes import BASIC, MIXUP, RANDAUGMENT, RECIPES, TRIVIALAUGMENT  # noqa: E402
from pipetune.errors import UsageError  # noqa: E402
from pipetune.records.sweep import Candidate  # noqa: E402
from pipetune.training.loader import TrainingLoader  # noqa: E402
from tests.photo_set import small_photos  # noqa: E402

KINDS: dict[str, dict[str, Any]] = {
    "inline": {"num_workers": 0},
    "in place": {"num_workers": 0, "reuse_buffers": True},
    "one process": {"num_workers": 1},
    "processes": {"num_workers": 2},
    "spawned": {"num_workers": 1, "start_method": "spawn"},
    "ring": {"num_workers": 2, "reuse_buffers": True},
    "ring, pixel by pixel": {"num_workers": 2, "reuse_buffers": True, "channels_last": True},
    "threads": {"num_workers": 2, "loader": "threads"},
}
SIZE = 32


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_photos(tmp_path_factory.mktemp("augmenting") / "photos", copies=4)


def open_(photos: Path, kind: str = "threads", *, augment: str, **options: Any) -> TrainingLoader:
    settings = {**KINDS[kind], **{name: options.pop(name) for name in ("transfer", "in_order") if name in options}}
    depth = 2 if settings["num_workers"] else 0
    chosen = Candidate(backend="opencv", prefetch_depth=depth, batch_size=4, **settings)
    return pipetune.open_loader(chosen, photos, image_size=SIZE, augment=augment, device="cpu", **options)


def read_epoch(loader: TrainingLoader) -> list[tuple[torch.Tensor, torch.Tensor]]:
    with loader:
        return [loader.to_training(images.clone(), labels.clone()) for images, labels in loader]


def same(one: list[Any], other: list[Any], levels: float = 0.0) -> bool:
    """Whether the batches are alike; images may differ by so many grey levels in the mean (the least STD is 0.224)."""
    within = levels / 255 / 0.224
    return len(one) == len(other) and all(
        torch.equal(a[1], b[1]) and float((a[0] - b[0]).abs().mean()) <= within + 1e-6
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize(
    "kind",
    # A spawned worker imports torch anew for each of its eight epochs.
    [pytest.param(kind, marks=[pytest.mark.slow] * (kind == "spawned")) for kind in KINDS if kind != "inline"],
)
def test_every_loader_augments_alike(photos: Path, kind: str) -> None:
    for augment in (TRIVIALAUGMENT, MIXUP) if kind == "spawned" else RECIPES:
        expected = read_epoch(open_(photos, "inline", augment=augment))
        assert same(read_epoch(open_(photos, kind, augment=augment)), expected), augment
        # Bytes of mixed images are rounded.
        as_bytes = read_epoch(open_(photos, kind, augment=augment, transfer="uint8"))
        assert same(as_bytes, expected, levels=0.5 if augment == MIXUP else 0.0), augment
        plain = read_epoch(open_(photos, "inline", augment=BASIC))
        assert same(plain, expected) == (augment == BASIC)


@pytest.mark.parametrize("augment", [name for name in RECIPES if name != BASIC])
@pytest.mark.parametrize("transfer", ["float32", "uint8"])
def test_the_device_does_what_a_worker_does(photos: Path, augment: str, transfer: str) -> None:
    expected = read_epoch(open_(photos, augment=augment))
    found = read_epoch(open_(photos, augment=augment, transfer=transfer, transforms_on="device"))
    # A blend adds up in another order there, which an operation after it may amplify.
    assert same(found, expected, levels=0.1)


def test_a_resumed_epoch_is_augmented_as_it_would_have_been(photos: Path) -> None:
    for place in ("worker", "device"):
        with open_(photos, augment=RANDAUGMENT, transforms_on=place) as loader:
            list(loader)  # an epoch in which nothing is asked of the device
            expected = [loader.to_training(*batch) for batch in loader]
        with open_(photos, augment=RANDAUGMENT, transforms_on=place) as loader:
            list(loader)
            for _, batch in zip(range(2), loader, strict=False):
                loader.to_training(*batch)
            state = loader.state_dict()
        with open_(photos, augment=RANDAUGMENT, transforms_on=place) as loader:
            loader.load_state_dict({name: value for name, value in state.items() if name != "augment"})
            loader.load_state_dict(state)
            assert same([loader.to_training(*batch) for batch in loader], expected[2:])


def test_a_state_is_of_one_recipe(photos: Path) -> None:
    with open_(photos, augment=RANDAUGMENT) as loader:
        state = loader.state_dict()
    with open_(photos, augment=BASIC) as loader, pytest.raises(UsageError, match="augment 'randaugment'"):
        loader.load_state_dict(state)


def test_normalise_refuses_what_it_would_leave_out(photos: Path) -> None:
    with open_(photos, augment=RANDAUGMENT, transforms_on="device") as loader:
        images, labels = next(iter(loader))
        with pytest.raises(UsageError, match="normalise") as refused:
            loader.normalise(images)
        assert "loader.to_training(images, labels)" in str(refused.value.hint)
        assert loader.to_training(images[:3], labels[:3])[0].shape == (3, 3, SIZE, SIZE)


def test_arrays_are_augmented_where_they_are_loaded(photos: Path) -> None:
    expected = read_epoch(open_(photos, augment=RANDAUGMENT))
    chosen = Candidate(
        backend="opencv", num_workers=2, prefetch_depth=2, batch_size=4, transfer="uint8", transforms_on="device"
    )
    with pipetune.open_loader(chosen, photos, image_size=SIZE, augment=RANDAUGMENT, arrays="numpy") as loader:
        for (images, labels), (wanted, classes) in zip(loader, expected, strict=True):
            pixels = torch.from_numpy(np.array(loader.to_training(images, labels)[0])).permute(0, 3, 1, 2)
            assert torch.allclose(pixels, wanted, atol=1e-5)
            assert (labels == classes.numpy()).all()


@pytest.mark.parametrize(("options", "words"), [({"augment": "cutmix"}, "'cutmix'"), ({"transforms_on": "gpu"}, "gpu")])
def test_what_there_is_not_is_named(photos: Path, options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        open_(photos, **{"augment": RANDAUGMENT, **options})


def test_arrays_are_not_left_to_a_device(photos: Path) -> None:
    with pytest.raises(UsageError, match="transforms_on 'device' is for batches of torch; omit it"):
        pipetune.open_loader(
            Candidate(backend="opencv", num_workers=2, prefetch_depth=2, batch_size=4), photos, image_size=SIZE,
            augment=RANDAUGMENT, arrays="numpy", transforms_on="device",
        )  # fmt: skip


def test_a_place_that_a_loader_cannot_augment_in_is_refused(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipetune.training.open_loader.installed_version", lambda backend: "1")
    dali = Candidate(backend="dali-cpu", num_workers=2, prefetch_depth=2, batch_size=4)
    with pytest.raises(UsageError, match=r"dali-cpu makes whole batches, .*; use transforms_on='device'"):
        pipetune.open_loader(dali, photos, image_size=SIZE, augment=RANDAUGMENT, transforms_on="worker", device="cpu")
