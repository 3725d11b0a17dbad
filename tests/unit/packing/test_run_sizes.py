"""Several packs of the same images at once, each as if it were packed alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.errors import UsageError
from pipetune.packing import predict, shards
from pipetune.packing.options import PackOptions, Pixels, what_is_done
from pipetune.packing.prepare import PackObserver, groups_of, prepare
from pipetune.packing.run import pack, write_together
from pipetune.packing.shards import wanted
from tests.unit.packing.packs import CROP, files, options, photographs

pytestmark = pytest.mark.usefixtures("jpeg_roi")

SIZES = (
    ("32", Pixels(mode="shorter-edge", edge=32)), ("100", Pixels(mode="shorter-edge", edge=100)), ("as-is", Pixels()),
)  # fmt: skip


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return photographs(tmp_path / "source")


@pytest.fixture(autouse=True)
def several_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pipetune.packing.predict.shards_for", lambda total, images, size: max(1, min(images, round(total / 60_000)))
    )


def packed(chosen: PackOptions, observer: PackObserver | None = None) -> list[tuple[str, int, bool]]:
    runs = pack(chosen, observer or PackObserver(), cores=1.0, crop=CROP)
    return [(one.name, one.result.images, one.result.complete) for one in runs if one.result is not None]


def test_each_is_what_it_would_be_alone(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    real = shards.pack_source
    monkeypatch.setattr(
        shards, "pack_source", lambda position, *rest: (reads.append(position), real(position, *rest))[1]
    )
    monkeypatch.setattr(predict, "try_packing", lambda *args, **asked: None)  # which reads images, too
    chosen = options(source, sizes=SIZES, validation="2-per-class")
    names = [f"{name} {part}" for part in ("train", "validation") for name, _ in SIZES]
    counts = [18] * 3 + [6] * 3
    assert packed(chosen) == [(name, count, True) for name, count in zip(names, counts, strict=True)]
    assert len(reads) == 24, "each image is read once"
    numbers = {len(list((chosen.out / name / "train").glob("*.tar"))) for name, _ in SIZES}
    assert len(numbers) > 1, "of different numbers of shards"
    for name, pixels in SIZES:
        alone = options(source, out=source.parent / "alone" / name, pixels=pixels, validation="2-per-class")
        packed(alone)
        assert files(chosen.out / name) == files(alone.out)


class Stop(Exception):
    """In the middle of a pack."""


class StopsAt(PackObserver):
    def __init__(self, image: int) -> None:
        self.image, self.total = image, 0

    def on_image(self, done: int, total: int, done_bytes: int) -> None:
        self.total = total
        if done == self.image:
            raise Stop


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("image", [1, 11, 20, 24])
def test_what_was_stopped_goes_on_to_the_same_bytes(source: Path, image: int, threads: int) -> None:
    whole = options(source, sizes=SIZES, out=source.parent / "whole")
    packed(whole)
    chosen = options(source, sizes=SIZES, threads=threads)
    with pytest.raises(Stop):
        packed(chosen, StopsAt(image))
    assert not list(chosen.out.rglob("*.tmp"))
    again = StopsAt(-1)
    assert all(complete for *_, complete in packed(replace(chosen, resume=True), again))
    assert again.total <= 24
    assert files(chosen.out) == files(whole.out)


def test_parts_together_are_the_same_packs(source: Path) -> None:
    whole = options(source, sizes=SIZES, out=source.parent / "whole")
    packed(whole)
    chosen = options(source, sizes=SIZES)
    for number in range(2):
        packed(replace(chosen, part=(number, 2)))
    assert all(complete for *_, complete in packed(replace(chosen, resume=True)))
    assert files(chosen.out) == files(whole.out)


def test_one_of_them_was_packed_already(source: Path) -> None:
    chosen = options(source, sizes=SIZES)
    first = replace(chosen, out=chosen.out / "100", pixels=SIZES[1][1], sizes=())
    packed(first)
    before = files(first.out)
    assert all(complete for *_, complete in packed(replace(chosen, resume=True)))
    assert files(first.out) == before


def test_plans_are_of_all_together(source: Path) -> None:
    packings = prepare(options(source, sizes=SIZES), PackObserver(), cores=1.0, keep=False)
    assert {one.plan.together for one in packings} == {3}
    assert len({one.plan.seconds for one in packings}) == 1
    assert [one.plan.done for one in packings] == [{"resized": 24}, {"resized": 24}, {"copied": 24}]
    small, large, copied = (one.plan.total_bytes for one in packings)
    assert small < large < copied


def test_too_little_space_is_told_before_of_all_together(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = options(source, sizes=SIZES)
    (group,) = groups_of(prepare(chosen, PackObserver(), cores=1.0, crop=CROP))
    free = int(1.2 * max(one.plan.total_bytes for one in group))
    monkeypatch.setattr("pipetune.packing.run.shutil.disk_usage", lambda path: type("Usage", (), {"free": free})())
    with pytest.raises(UsageError, match=r"free, and what is missing takes about"):
        write_together(group, chosen, PackObserver())


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"sizes": SIZES}, {}),
        ({}, {"sizes": SIZES}),
        ({}, {"validation": "1-per-class"}),
        ({"sizes": SIZES}, {"sizes": SIZES[:1]}),
    ],
    ids=["one after several", "several after one", "divided after whole", "fewer"],
)
def test_packs_of_other_options_are_not_mixed(source: Path, first: dict[str, Any], then: dict[str, Any]) -> None:
    packed(options(source, **first))
    with pytest.raises(UsageError, match="has a pack in it that these options do not make"):
        packed(options(source, resume=True, **then))


def test_what_is_wanted_is_in_order_and_complete(source: Path) -> None:
    packs = [one.pack for one in prepare(options(source, sizes=SIZES), PackObserver(), cores=1.0, keep=False)]
    missing = [[shard for shard in range(pack.shards) if shard % (number + 2)] for number, pack in enumerate(packs)]
    found = [(position, number) for one in wanted(packs, missing) for position in one.positions for number in one.packs]
    expected = sorted(
        (position, number)
        for number, (pack, shards_) in enumerate(zip(packs, missing, strict=True))
        for shard in shards_
        for position in pack.positions(shard)
    )
    assert found == expected
    assert wanted(packs, [[], [], []]) == []


def asked(**changes: Any) -> tuple[Pixels, tuple[tuple[str, Pixels], ...]]:
    nothing: dict[str, Any] = {
        "sizes": None, "shorter_edge": None, "longer_edge": None, "lossless": False, "as_is": False, "quality": None,
        "subsampling": None, "upright": False, "enlarge": False, "raw": False,
    }  # fmt: skip
    return what_is_done(**{**nothing, **changes})


def test_sizes_from_their_text() -> None:
    assert asked(shorter_edge=32) == (SIZES[0][1], ())
    assert asked(sizes="32, 100,as-is") == (Pixels(), SIZES)
    _, found = asked(sizes="32,as-is,lossless", quality=80, enlarge=True)
    assert found == (
        ("32", Pixels(mode="shorter-edge", edge=32, quality=80, enlarge=True)), ("as-is", Pixels()),
        ("lossless", Pixels(mode="lossless")),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"sizes": "32,32"}, "--sizes names '32' twice"),
        ({"sizes": "32,large"}, "'large' is none"),
        ({"sizes": ""}, "'' is none"),
        ({"sizes": "2"}, "--shorter-edge 2"),
        ({"sizes": ",".join(map(str, range(32, 41)))}, "--sizes names 9 packs"),
        ({"sizes": "32", "shorter_edge": 64}, "--shorter-edge and --sizes contradict"),
        ({"sizes": "32", "lossless": True}, "--lossless and --sizes contradict"),
        ({"sizes": "32,as-is", "raw": True}, "--format raw stores pixels of one size, and as-is in --sizes"),
        ({"sizes": "as-is,lossless", "quality": 80}, "--quality is for images that are made smaller"),
        ({"sizes": "as-is", "enlarge": True}, "--enlarge is for images"),
        ({"sizes": "32,032"}, "--sizes names '32' twice"),
    ],
    ids=str,
)  # fmt: skip
def test_sizes_that_make_no_sense(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        asked(**changes)
