"""The loader to train with: order, coverage, resuming, ranks, and what it leaves behind."""

from __future__ import annotations

import itertools
import os
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="what is tested handles tensors")

import pipetune  # noqa: E402
from pipetune.errors import UsageError  # noqa: E402
from pipetune.machine.proc import tree_pids  # noqa: E402
from pipetune.records.sweep import Candidate  # noqa: E402
from pipetune.training.loader import TrainingLoader  # noqa: E402
from tests import ROOT  # noqa: E402
from tests.bad_images import jpeg, without_tables  # noqa: E402
from tests.integration.commands import wait_until  # noqa: E402
from tests.photo_set import small_photos  # noqa: E402

KINDS: dict[str, dict[str, Any]] = {
    "inline": {"num_workers": 0},
    "processes": {"num_workers": 2},
    "ending": {"num_workers": 2, "persistent_workers": False},
    "ring": {"num_workers": 2, "reuse_buffers": True},
    "threads": {"num_workers": 2, "loader": "threads"},
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_photos(tmp_path_factory.mktemp("training") / "photos", copies=4)


@pytest.fixture(autouse=True)
def _nothing_stays_behind() -> Iterator[None]:
    processes, threads = set(tree_pids(os.getpid())), set(threading.enumerate())
    yield
    assert set(tree_pids(os.getpid())) <= processes
    # torch's queues end their threads by themselves, a moment later.
    wait_until(lambda: set(threading.enumerate()) <= threads)


def open_(photos: Path, kind: str = "threads", **options: Any) -> TrainingLoader:
    chosen = Candidate(
        backend="opencv", prefetch_depth=2 if KINDS[kind]["num_workers"] else 0, batch_size=4,
        in_order=options.pop("in_order", True), **KINDS[kind],
    )  # fmt: skip
    return pipetune.open_loader(chosen, photos, image_size=32, **options)


def seen(epoch: Any) -> list[tuple[list[int], float]]:
    return [(labels.tolist(), round(float(images.double().sum()), 3)) for images, labels in epoch]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_epochs_for_any_kind_and_number_of_workers(photos: Path, kind: str) -> None:
    with open_(photos, "inline") as reference, open_(photos, kind) as loader:
        first, second = seen(reference), seen(reference)
        assert len(first) == len(reference) == len(loader)
        assert first != second
        assert [seen(loader), seen(loader)] == [first, second]


def test_classes_and_labels_are_those_of_the_folders(photos: Path) -> None:
    with open_(photos, "inline", drop_last=False) as loader:
        names = sorted(path.name for path in photos.iterdir())
        assert loader.classes == tuple(names)
        assert loader.class_to_idx == {name: number for number, name in enumerate(names)}
        labels = [label for _, labels in loader for label in labels.tolist()]
        counts = [len(list((photos / name).iterdir())) for name in names]
        assert [labels.count(number) for number in range(len(names))] == counts
        assert len(loader.dataset) == sum(counts)


@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_on_in_the_middle_of_an_epoch(photos: Path, kind: str) -> None:
    with open_(photos, kind) as loader:
        epochs = [seen(loader), seen(loader), seen(loader)]
    with open_(photos, kind) as loader:
        seen(loader)
        for number, _ in enumerate(loader):
            if number == 2:
                break
        state = loader.state_dict()
    assert (state["epoch"], state["batch"]) == (1, 3)
    with open_(photos, kind) as loader:
        loader.load_state_dict(state)
        assert seen(loader) == epochs[1][3:]
        assert seen(loader) == epochs[2]
        assert loader.state_dict()["epoch"] == 2


def test_a_state_at_the_end_of_an_epoch_goes_on_with_the_next(photos: Path) -> None:
    with open_(photos, "inline") as loader:
        epochs = [seen(loader), seen(loader)]
    with open_(photos, "inline") as loader:
        seen(loader)
        state = loader.state_dict()
        other = open_(photos, "inline")
        other.load_state_dict(state)
        assert seen(other) == epochs[1]


def test_a_state_of_another_loader_is_refused(photos: Path) -> None:
    with open_(photos, "inline", seed=1) as one:
        state = one.state_dict()
    with open_(photos, "inline", seed=2) as other, pytest.raises(UsageError, match="seed 1, this one has 2"):
        other.load_state_dict(state)


def test_a_state_belongs_to_one_data_set(photos: Path, tmp_path: Path) -> None:
    other = small_photos(tmp_path / "other", copies=4)
    renamed = sorted(path for path in other.iterdir() if path.is_dir())[0]
    renamed.rename(renamed.with_name("zzz"))  # the same number of images, with other labels
    with open_(photos, "inline") as loader:
        state = loader.state_dict()
    with open_(other, "inline") as loader:
        with pytest.raises(UsageError, match="fingerprint"):
            loader.load_state_dict(state)
        loader.load_state_dict({name: value for name, value in state.items() if name != "fingerprint"})


def test_within_an_epoch_without_an_order_a_state_says_that_it_is_not_exact(photos: Path) -> None:
    with open_(photos, in_order=False) as loader:
        for number, _ in enumerate(loader):
            if number == 1:
                break
        with pytest.warns(UserWarning, match="save at the end of an epoch"):
            loader.state_dict()
    with open_(photos, in_order=False) as loader, warnings.catch_warnings():
        warnings.simplefilter("error")
        seen(loader)
        loader.state_dict()


def test_a_loop_that_breaks_off_has_had_its_epoch(photos: Path) -> None:
    with open_(photos) as loader:
        epochs = [seen(loader), seen(loader)]
    with open_(photos) as loader:
        for _ in loader:
            break
        assert seen(loader) == epochs[1]


def test_an_iterator_that_is_never_used_begins_no_epoch(photos: Path) -> None:
    with open_(photos) as loader:
        epochs = [seen(loader), seen(loader)]
    with open_(photos) as loader:
        iter(loader)
        assert seen(loader) == epochs[0]
        for _ in loader:
            break
        state = loader.state_dict()
    with open_(photos) as loader:
        loader.load_state_dict(state)
        iter(loader)
        assert seen(loader) == epochs[1][1:]


def test_set_epoch_is_that_of_the_distributed_sampler(photos: Path) -> None:
    with open_(photos) as loader:
        epochs = [seen(loader), seen(loader), seen(loader)]
        loader.set_epoch(1)
        assert seen(loader) == epochs[1]
        loader.set_epoch(2)
        assert seen(loader) == epochs[2]


def test_ranks_share_the_images(photos: Path) -> None:
    with open_(photos, "inline", drop_last=False) as alone:
        everything = sorted(label for _, labels in alone for label in labels.tolist())
    ranks = []
    for rank in range(2):
        with open_(photos, "inline", rank=rank, world_size=2, drop_last=False) as loader:
            ranks += [label for _, labels in loader for label in labels.tolist()]
            assert len(loader) == -(-len(everything) // 2 // 4)
    assert sorted(ranks) == everything


def test_the_ranks_of_torchrun_are_taken(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with open_(photos, "inline") as loader, open_(photos, "inline", rank=1, world_size=2) as ranked:
        assert seen(loader) == seen(ranked)


def test_batches_that_come_as_they_get_ready_stay_within_their_epoch(photos: Path) -> None:
    with open_(photos, "inline") as ordered, open_(photos, "threads", in_order=False) as loader:
        for _ in range(3):
            assert sorted(seen(loader)) == sorted(seen(ordered))


def test_bytes_are_normalised_by_the_training_loop(photos: Path) -> None:
    with open_(photos, "inline") as floats, open_(photos, "inline", transfer="uint8") as bytes_:
        (images, _), (small, _) = next(iter(floats)), next(iter(bytes_))
        assert small.dtype == torch.uint8
        assert torch.allclose(bytes_.normalise(small), images, atol=1e-4)
        assert floats.normalise(images) is images


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_file_is_named_and_the_loader_can_still_be_used(photos: Path, tmp_path: Path, kind: str) -> None:
    small = small_photos(tmp_path / "photos", copies=1)
    folder = next(small.iterdir())
    (folder / "bad.jpg").write_bytes(without_tables(jpeg()))
    with open_(small, kind) as loader:
        with pytest.raises(Exception, match=r"bad\.jpg"):
            list(itertools.chain.from_iterable(loader for _ in range(30)))
        (folder / "bad.jpg").write_bytes(jpeg())
        assert len(list(loader)) == len(loader)


def test_what_is_left_out_is_said(photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "a"
    folder.mkdir(parents=True)
    for number, photo in enumerate(sorted(photos.rglob("*.jpg"))[:8]):
        (folder / f"{number}.jpg").write_bytes(photo.read_bytes())
    (folder / "cut.jpg").write_bytes(b"no image")
    with pytest.warns(UserWarning, match=r"leaves out 1 file: .*cut\.jpg"), open_(tmp_path / "data") as loader:
        assert loader.classes == ("a",)


def test_data_without_labels_are_called_so(photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for number, photo in enumerate(sorted(photos.rglob("*.jpg"))[:8]):
        (folder / f"{number}.jpg").write_bytes(photo.read_bytes())
    with pytest.warns(UserWarning, match="8 images, no labels found: all are class 0"), open_(folder) as loader:
        assert loader.classes == ("data",)


def test_an_epoch_that_was_left_is_not_gone_on_with(photos: Path) -> None:
    with open_(photos) as loader:
        first = iter(loader)
        next(first)
        next(iter(loader))
        with pytest.raises(RuntimeError, match="one at a time"):
            next(first)


def test_a_closed_loader_says_so(photos: Path) -> None:
    loader = open_(photos)
    next(iter(loader))
    loader.close()
    loader.close()
    with pytest.raises(ValueError, match="closed"):
        iter(loader)


def test_numbers_may_be_numpys(photos: Path) -> None:
    with open_(photos, seed=np.int64(3), batch_size=np.int32(2)) as one, open_(photos, seed=3, batch_size=2) as other:
        assert one.state_dict() == other.state_dict()
        assert type(one.candidate.batch_size) is int
        assert seen(one) == seen(other)


def test_a_loader_that_the_decoder_does_not_have_is_refused(photos: Path) -> None:
    chosen = Candidate(backend="torchvision", num_workers=1, prefetch_depth=2, batch_size=4)
    with pytest.raises(UsageError, match="torchvision has no loader 'threads'; omit it"):
        pipetune.open_loader(chosen, photos, image_size=32, loader="threads")


def test_the_sweep_of_a_script_has_no_data_set_to_open() -> None:
    with pytest.raises(UsageError, match="tuned a script"):
        pipetune.open_loader(ROOT / "benchmarks" / "results" / "examples" / "script")


@pytest.mark.parametrize("options", [{}, {"in_order": False}, {"persistent_workers": False}], ids=str)
def test_an_epoch_that_is_counted_and_not_asked_to_its_end_is_followed_by_a_whole_one(
    photos: Path, options: dict[str, Any]
) -> None:
    """As Lightning takes them."""
    chosen = Candidate(backend="opencv", num_workers=2, prefetch_depth=2, batch_size=4, **options)
    with pipetune.open_loader(chosen, photos, image_size=32) as loader:
        counts = [sum(1 for _ in itertools.islice(loader, len(loader))) for _ in range(3)]
        assert counts == [len(loader)] * 3


def test_choices_that_cannot_be_opened() -> None:
    with pytest.raises(UsageError, match="no data set was named"):
        pipetune.open_loader(Candidate(backend="opencv", num_workers=0, prefetch_depth=0, batch_size=4))


def test_an_allocator_that_this_process_does_not_have_is_reported(photos: Path) -> None:
    chosen = Candidate(backend="opencv", num_workers=0, prefetch_depth=0, batch_size=4, allocator="glibc")
    with pytest.warns(UserWarning, match="export MALLOC_MMAP_THRESHOLD_=1073741824"):
        pipetune.open_loader(chosen, photos).close()


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_candidate_that_was_measured(photos: Path, kind: str) -> None:
    with open_(photos, kind) as loader:
        measured = {name: getattr(loader.candidate, name) for name in KINDS[kind]}
        assert measured == KINDS[kind]


@pytest.mark.parametrize(
    ("kind", "changes", "expected"),
    [
        ("processes", {"reuse_buffers": True}, {"reuse_buffers": True, "loader": "torch"}),
        ("ring", {"loader": "threads"}, {"reuse_buffers": False, "loader": "threads"}),  # threads always do
        ("threads", {"num_workers": 0}, {"reuse_buffers": True, "loader": "torch", "prefetch_depth": 0}),
        ("inline", {"num_workers": 1}, {"reuse_buffers": False, "prefetch_depth": 2}),
        ("ending", {"persistent_workers": True}, {"persistent_workers": True}),
    ],
)
def test_what_the_caller_changes(photos: Path, kind: str, changes: dict[str, Any], expected: dict[str, Any]) -> None:
    with open_(photos, kind, **changes) as loader:
        assert {name: getattr(loader.candidate, name) for name in expected} == expected
        assert len(seen(loader)) == len(loader)


def test_workers_that_end_with_the_epoch_do(photos: Path) -> None:
    before = set(tree_pids(os.getpid()))
    with open_(photos, "ending") as loader:
        stream = iter(loader)
        next(stream)
        assert len(set(tree_pids(os.getpid())) - before) >= 2
        assert len(list(stream)) == len(loader) - 1
        wait_until(lambda: set(tree_pids(os.getpid())) <= before)
