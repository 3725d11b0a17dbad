"""Full shards come to the disk while the next ones are packed."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pipetune.packing.formats import shard_file
from pipetune.packing.manifest import read_head
from pipetune.packing.prepare import PackObserver, prepare
from pipetune.packing.run import write
from pipetune.packing.shard import Ends
from tests.unit.packing.packs import options, photographs

#: A test that waits so long (s) has failed.
LONG = 60.0


class FakeShard:
    """Comes to the disk when it may, or never."""

    def __init__(self, may: threading.Event | None = None, error: OSError | None = None) -> None:
        self.may, self.error = may, error
        self.since: float | None = None

    def end(self, since: float) -> float:
        if self.may is not None:
            assert self.may.wait(LONG)
        if self.error is not None:
            raise self.error
        self.since = since
        return since + 1


def take(ends: Ends, shard: FakeShard, pack: int = 0) -> None:
    ends.take(pack, shard)  # type: ignore[arg-type]


def test_one_is_waited_for_when_the_third_comes() -> None:
    may, ends = threading.Event(), Ends(packs=1)
    shards = [FakeShard(may) for _ in range(3)]
    take(ends, shards[0])
    take(ends, shards[1])  # and nobody has waited
    assert [one.since for one in shards] == [None] * 3
    late = threading.Thread(target=take, args=(ends, shards[2]))
    late.start()
    late.join(0.05)
    assert late.is_alive()
    may.set()
    late.join(LONG)
    ends.wait()
    assert [one.since for one in shards] == [0.0, 1.0, 2.0]
    ends.close()


def test_each_pack_has_its_own_time() -> None:
    ends = Ends(packs=2)
    shards = [FakeShard() for _ in range(4)]
    for number, shard in enumerate(shards):
        take(ends, shard, pack=number % 2)
    ends.wait()
    assert [one.since for one in shards] == [0.0, 0.0, 1.0, 1.0]
    ends.close()


def test_what_the_disk_refuses_is_told_soon_and_the_others_come_to_it() -> None:
    may, ends = threading.Event(), Ends(packs=1)
    full, other, third = FakeShard(may, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))), FakeShard(), FakeShard()
    take(ends, full)
    take(ends, other)
    may.set()
    with pytest.raises(OSError, match="No space left"):
        take(ends, third)
    ends.close()
    assert (other.since, third.since) == (0.0, 1.0)


def test_images_are_packed_while_the_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = options(photographs(tmp_path / "source"))
    monkeypatch.setattr("pipetune.packing.predict.shards_for", lambda total, images, shard_bytes: 4)
    (one,) = prepare(chosen, PackObserver(), cores=1.0)
    second_is_full = threading.Event()

    class Told(PackObserver):
        def on_image(self, done: int, total: int, done_bytes: int) -> None:
            if done == 12:
                second_is_full.set()

    def slow(fd: int, real: Any = os.fsync) -> None:
        assert second_is_full.wait(LONG)
        real(fd)

    monkeypatch.setattr(shard_file.os, "fsync", slow)
    result = write(one, chosen, Told())
    assert (result.complete, result.shards) == (True, 4)


def test_no_second_counts_for_two_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = options(photographs(tmp_path / "source"), part=(0, 1))  # of parts, the heads stay
    monkeypatch.setattr("pipetune.packing.predict.shards_for", lambda total, images, shard_bytes: 6)
    (one,) = prepare(chosen, PackObserver(), cores=1.0)
    began = time.monotonic()
    write(one, chosen, PackObserver())
    took = time.monotonic() - began
    heads = [read_head(chosen.out, shard) for shard in range(6)]
    assert 0 < sum(head.seconds for head in heads if head is not None) <= took
    assert None not in heads
