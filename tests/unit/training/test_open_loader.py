"""What is checked before a loader to train with is opened."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="what is tested handles tensors")

import pipetune
from pipetune.candidates.fit import needs_of
from pipetune.errors import PipetuneError
from pipetune.machine.host import Host, describe_host
from pipetune.records.sweep import Candidate
from pipetune.training import open_loader as module
from tests.photo_set import small_photos

CANDIDATE = Candidate(backend="opencv", num_workers=2, prefetch_depth=2, batch_size=8, pin_memory=False)
EDGE = 64


def with_host(monkeypatch: pytest.MonkeyPatch, **changes: int) -> None:
    host: Host = replace(describe_host(), **changes)
    monkeypatch.setattr(module, "describe_host", lambda: host)


def open_(photos: Path, **changes: object) -> None:
    with pipetune.open_loader(CANDIDATE, photos, image_size=EDGE, **changes) as loader:  # type: ignore[arg-type]
        assert sum(1 for _ in loader) == len(loader)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return small_photos(tmp_path / "photos", copies=2)


def test_too_little_memory_is_said_before_the_workers_start(monkeypatch: pytest.MonkeyPatch, photos: Path) -> None:
    with_host(monkeypatch, memory_available_bytes=1 << 20)
    with pytest.raises(PipetuneError, match=r"this loader needs .*, 1.00 MiB are available") as caught:
        open_(photos)
    assert caught.value.hint
    assert "lower num_workers or batch_size" in caught.value.hint


def test_what_a_process_takes_besides_its_batches_this_one_has_already(
    monkeypatch: pytest.MonkeyPatch, photos: Path
) -> None:
    enough = needs_of(CANDIDATE, EDGE, runs_here=True).memory_bytes
    assert 0 < enough < needs_of(CANDIDATE, EDGE).memory_bytes
    with_host(monkeypatch, memory_available_bytes=enough)
    open_(photos)


def test_too_little_shared_memory_is_said_with_the_way_round_it(monkeypatch: pytest.MonkeyPatch, photos: Path) -> None:
    with_host(monkeypatch, shm_total_bytes=1 << 10, shm_free_bytes=1 << 10)
    with pytest.raises(PipetuneError, match=r"this loader .*shm") as caught:
        open_(photos)
    assert "loader='threads'" in (caught.value.hint or "")
    open_(photos, loader="threads")


def test_threads_are_no_way_round_it_for_a_decoder_that_needs_the_interpreter(
    monkeypatch: pytest.MonkeyPatch, photos: Path
) -> None:
    with_host(monkeypatch, shm_total_bytes=1 << 10, shm_free_bytes=1 << 10)
    with pytest.raises(PipetuneError, match=r"this loader .*shm") as caught:
        pipetune.open_loader(replace(CANDIDATE, backend="torchvision"), photos, image_size=EDGE)
    assert "threads" not in (caught.value.hint or "")


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"device": "cuda:99"}, {"seed": -1}], ids=str)
def test_whatever_fails_is_told_to_the_other_ranks(
    options: dict[str, object], monkeypatch: pytest.MonkeyPatch, photos: Path
) -> None:
    told: list[object] = []
    monkeypatch.setattr(module, "agree", lambda images, failure: told.append((images, failure)))
    with pytest.raises(PipetuneError, match=r"out of range|no 'cuda:99'") as caught:
        open_(photos, **options)
    assert told == [(None, caught.value)]


def test_also_what_nobody_has_thought_of(monkeypatch: pytest.MonkeyPatch, photos: Path) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise MemoryError("no more")

    told: list[object] = []
    monkeypatch.setattr(module, "agree", lambda images, failure: told.append(failure))
    monkeypatch.setattr(module, "open_dataset", fail)
    with pytest.raises(MemoryError, match="no more") as caught:
        open_(photos)
    assert told == [caught.value]


@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
def test_each_epoch_may_be_asked_for_by_a_thread_of_its_own(start_method: str, photos: Path) -> None:
    chosen = replace(CANDIDATE, batch_size=4, num_workers=1, start_method=start_method)
    counts: list[int] = []
    with pipetune.open_loader(chosen, photos, image_size=EDGE) as loader:
        for _ in range(2):
            thread = threading.Thread(target=lambda: counts.append(sum(1 for _ in loader)))
            thread.start()
            thread.join()
        assert counts == [len(loader)] * 2
