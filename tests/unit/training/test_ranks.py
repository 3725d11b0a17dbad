from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="ranks are torch's")

from pipetune.errors import PipetuneError, UsageError
from pipetune.training import ranks
from pipetune.training.ranks import _said, agree, place_of
from tests import ROOT
from tests.photo_set import small_photos

PROGRAM = """
import os, sys
import torch.distributed as dist
import pipetune
from pipetune.errors import PipetuneError
from pipetune.records.sweep import Candidate
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=int(sys.argv[2]), world_size=2)
candidate = Candidate(backend="pillow", num_workers=0, prefetch_depth=0, batch_size=4)
try:
    with pipetune.open_loader(candidate, sys.argv[3], image_size=int(sys.argv[4])) as loader:
        print(len(loader))
except PipetuneError as error:
    print(error)
dist.destroy_process_group()
"""


def on_two_ranks(folder: Path, *roots: Path, edges: tuple[int, int] = (32, 32)) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder), str(rank), str(root), str(edge)], env=environment,
            text=True, stdout=subprocess.PIPE,
        )
        for rank, (root, edge) in enumerate(zip(roots, edges, strict=True))
    ]  # fmt: skip
    return [rank.communicate(timeout=60)[0].strip() for rank in ranks]


@pytest.mark.thorough
def test_ranks_that_see_the_same_images_share_them(tmp_path: Path) -> None:
    photos = small_photos(tmp_path / "photos", copies=4)
    assert on_two_ranks(tmp_path, photos, photos) == ["2", "2"]


@pytest.mark.thorough
def test_a_rank_that_sees_fewer_is_found_out_by_all(tmp_path: Path) -> None:
    one, other = (small_photos(tmp_path / name, copies=4) for name in ("one", "other"))
    next(other.rglob("*.jpg")).unlink()
    for said in on_two_ranks(tmp_path, one, other):
        assert "ranks see other images: rank 0 has 16 in 2 classes, rank 1 has 15 in 2" in said


@pytest.mark.thorough
def test_a_rank_that_fails_keeps_no_other_waiting(tmp_path: Path) -> None:
    photos = small_photos(tmp_path / "photos", copies=4)
    first, second = on_two_ranks(tmp_path, photos, tmp_path / "nowhere")
    assert first.startswith("rank 1: no such directory")
    assert second.startswith("no such directory")
    said = on_two_ranks(tmp_path / "photos", photos, photos, edges=(32, 0))
    assert said == [f"{before}image_size 0 is out of range; use at least 1" for before in ("rank 1: ", "")]


def test_alone_there_is_nothing_to_compare() -> None:
    agree(None, None)
    with pytest.raises(PipetuneError, match="broken"):
        agree(None, PipetuneError("broken"))
    with pytest.raises(MemoryError, match="no more"):
        agree(None, MemoryError("no more"))


def test_the_reason_of_another_rank_and_its_hint_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    said = [_said(UsageError("batch_size 0 is out of range", hint="use at least 1")), _said(MemoryError("no more"))]
    for reason, expected in zip(said, ("batch_size 0 is out of range; use at least 1", "MemoryError: no more"),
                                strict=True):  # fmt: skip
        monkeypatch.setattr(ranks, "_of_all_ranks", lambda own, reason=reason: [(None, reason)])
        with pytest.raises(PipetuneError) as caught:
            agree(None, None)
        assert str(caught.value) == f"rank 0: {expected}"


def test_the_place_is_as_given_or_as_torchrun_has_set_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "")  # of a launcher that knows none
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert place_of(None, None) == (0, 1)
    assert place_of(2, 4) == (2, 4)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert place_of(None, None) == (3, 4)
    monkeypatch.setenv("RANK", "three")
    with pytest.raises(UsageError, match="RANK='three'"):
        place_of(None, None)
    with pytest.raises(UsageError, match="belong together"):
        place_of(1, None)
    with pytest.raises(UsageError, match="does not exist"):
        place_of(4, 4)
