"""A sweep that goes on where it stopped, and one that meets images nobody can decode."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.datasets.index import read_index, write_index
from pipetune.errors import PipetuneError
from pipetune.measure.failures import hung
from pipetune.measure.fork_servers import ForkServers
from pipetune.records.sweep import Failure, Outcome
from pipetune.sweeping.sweep_plan import Plan
from tests.fakes import outcome
from tests.photo_set import workload
from tests.unit.datasets.test_index import image, image_set
from tests.unit.sweeping.bench import PLAN, Bench, run


def stopped_after(count: int, **by_key: Any) -> list[Outcome]:
    """What a sweep had saved when it was interrupted after so many outcomes."""
    return run(Bench(**by_key))[1][:count]


@pytest.mark.parametrize("count", range(1, 7))
def test_a_resumed_sweep_measures_only_what_is_missing(count: int) -> None:
    _, whole, _ = run()
    bench = Bench()
    known = stopped_after(count)
    added = list(bench.sweep(PLAN, lambda *_: None, known=known))
    assert [out.candidate for out in (*known, *added)] == [out.candidate for out in whole]
    assert len(bench.asked) == len(whole) - len(known)
    assert {asked[3] for asked in bench.asked} <= {1250.0}  # measured against the ceiling of the first part


FORKED = replace(PLAN, conditions=replace(PLAN.conditions, servers=ForkServers()))  # none is started here


@pytest.mark.parametrize("count", [1, 3, 5])
@pytest.mark.parametrize(("first", "then"), [(FORKED, PLAN), (PLAN, FORKED)], ids=["forks first", "forks then"])
def test_what_was_measured_in_forks_is_known_to_a_sweep_without_and_the_other_way(
    first: Plan, then: Plan, count: int
) -> None:
    _, whole, _ = run(plan=first)
    known, bench = whole[:count], Bench()
    added = list(bench.sweep(then, lambda *_: None, known=known))
    assert [out.candidate for out in (*known, *added)] == [out.candidate for out in whole]
    assert {out.forked for out in known if out.role == "ceiling"} == {first is FORKED}
    assert any(bench.forked) == (then is FORKED)


def test_a_repeat_that_was_due_is_made_up_for() -> None:
    slowed = lambda _: outcome(rate=300.0, machine_speed_after=120.0)  # noqa: E731
    key = "opencv-w1-p2-b64"
    known = stopped_after(6, **{key: slowed})
    place = next(place for place, out in enumerate(known) if out.candidate.key == key)
    bench = Bench()
    added = list(bench.sweep(PLAN, lambda *_: None, known=known[: place + 1]))
    assert bench.asked[0][:3] == (key, "candidate", 2)
    assert [out.candidate.key for out in added].count(key) == 1


def test_what_failed_before_is_tried_again() -> None:
    full = Failure(kind="out_of_shared_memory", phase="warmup", message="full", hint="more")
    known = stopped_after(9, **{"opencv-w1-p2-b64": lambda _: outcome(failure=full)})
    assert any(out.failure for out in known)
    added = list(Bench().sweep(PLAN, lambda *_: None, known=known))
    assert next(out.candidate.key for out in added if out.measurement) == "opencv-w1-p2-b64"


BAD = Failure(kind="bad_image", phase="timed", message="cannot decode image 'b.jpg'", hint="repair it")


def with_index(tmp_path: Path, count: int = 3, *, shard: str | None = None) -> tuple[Plan, str]:
    files = [replace(image(str(tmp_path / f"{name}.jpg")), shard=shard) for name in "abcdef"[:count]]
    path = str(tmp_path / "index.json")
    write_index(path, image_set(*files, root=str(tmp_path)))
    conditions = replace(PLAN.conditions, workload=workload(index_path=path), paths=[file.path for file in files])
    return replace(PLAN, conditions=conditions), path


@pytest.mark.parametrize("failure", [BAD, hung("first_batch", 8, ""), hung("open", 8, "")], ids=lambda one: one.kind)
def test_a_bad_image_is_replaced_for_everybody_and_the_candidate_measured_again(
    tmp_path: Path, failure: Failure
) -> None:
    plan, path = with_index(tmp_path)
    fails = iter([True])
    found = iter([{1: "broken data"}])
    bench = Bench(
        lambda *_, **__: next(found, {}),
        **{"opencv-w1-p2-b64": lambda _: outcome(failure=failure) if next(fails, False) else outcome()},
    )
    _, saved, _ = run(bench, plan)
    seen = bench.files
    mine = [out for out in saved if out.candidate.key == "opencv-w1-p2-b64" and out.role != "ceiling" and not out.block]
    assert [out.failure is None for out in mine] == [False, True]
    stored = read_index(path)
    assert [Path(file.path).stem for file in stored.images] == ["a", "c", "c"]
    assert stored.skipped[0] == (str(tmp_path / "b.jpg"), "broken data")
    assert seen[0] == ["a", "b", "c"]
    assert seen[-1] == ["a", "c"]  # files, each once


def test_a_backend_that_finds_no_bad_image_is_believed_once(tmp_path: Path) -> None:
    plan, _ = with_index(tmp_path)
    asked = []
    bench = Bench(
        lambda candidate, *_, **__: asked.append(candidate.backend) or {},
        **{f"opencv-w{n}-p2-b64": lambda _: outcome(failure=BAD) for n in (1, 2)},
    )
    run(bench, replace(plan, grid=True))
    assert asked == ["pillow", "opencv"]


@pytest.mark.parametrize("shard", [None, "photos.tar"])
def test_images_that_one_backend_alone_refuses_in_numbers_are_that_backends_fault(
    tmp_path: Path, shard: str | None
) -> None:
    plan, path = with_index(tmp_path, 6, shard=shard)  # the members of a shard count one by one
    refused = {"pillow": {}, "opencv": {1: "no such format", 2: "no such format"}}
    bench = Bench(
        lambda candidate, *_, **__: refused[candidate.backend],
        **{"opencv-w1-p2-b64": lambda _: outcome(failure=BAD)},
    )
    _, saved, _ = run(bench, plan)
    assert sum(out.failure is not None for out in saved) == 1
    assert read_index(path).skipped_count == image_set().skipped_count


def test_with_nothing_but_bad_images_the_sweep_ends(tmp_path: Path) -> None:
    plan, _ = with_index(tmp_path)
    bench = Bench(lambda *_, **__: {0: "x", 1: "x", 2: "x"}, ceiling=lambda _: outcome(failure=BAD))
    with pytest.raises(PipetuneError, match="none of the 3 images can be decoded"):
        run(bench, plan)
