"""Starting loader workers in a process that has threads."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

import pipetune
from tests.photo_set import small_photos

#: As CPython 3.12 to 3.14 say it in ``warn_about_fork_with_threads`` (Modules/posixmodule.c).
WARNING = "This process (pid=1) is multi-threaded, use of fork() may lead to deadlocks in the child."


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[warnings.WarningMessage]]:
    """Warnings of a Python that warns of each fork."""
    fork = os.fork

    def fork_and_warn() -> int:
        pid = fork()
        if pid:
            warnings.warn(WARNING, DeprecationWarning, stacklevel=2)
        return pid

    monkeypatch.setattr(os, "fork", fork_and_warn)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        yield shown


@pytest.mark.parametrize("reuse_buffers", [False, True])
def test_a_loader_forks_without_a_warning(
    warned: list[warnings.WarningMessage], tmp_path: Path, reuse_buffers: bool
) -> None:
    candidate = pipetune.Candidate(
        backend="opencv",
        num_workers=1,
        prefetch_depth=2,
        batch_size=2,
        start_method="fork",
        reuse_buffers=reuse_buffers,
    )
    with pipetune.open_loader(
        candidate, small_photos(tmp_path / "photos", copies=1), image_size=16, device="cpu"
    ) as loader:
        assert [len(list(loader)) for _ in range(2)] == [2, 2]
    assert [str(one.message) for one in warned if "fork" in str(one.message)] == []


def test_others_are_warned_as_before(warned: list[warnings.WarningMessage]) -> None:
    list(DataLoader(range(2), num_workers=1, multiprocessing_context="fork"))
    assert WARNING in [str(one.message) for one in warned]  # Python 3.12 has its own besides
