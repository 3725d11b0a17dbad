from __future__ import annotations

from dataclasses import replace

from pipetune import search
from pipetune.candidates.space import Space
from pipetune.records.sweep import Outcome
from pipetune.search.left_out import NOT_REACHED
from tests.unit.search.surface import GOAL, KNOBBED, SPACE, run, run_knobbed, stuck


def reasons(outcomes: list[Outcome], space: Space = SPACE) -> dict[str, str]:
    ended = search.is_exhausted(space, outcomes, GOAL)
    groups = search.left_out(space, outcomes, GOAL, ended=ended)
    return {key: group.reason for group in groups for key in group.keys}


def test_every_candidate_of_the_grid_is_measured_or_has_its_reason() -> None:
    for outcomes, space in ((run(), SPACE), (run_knobbed(), KNOBBED), (run(fails=("dali",)), SPACE)):
        measured = {outcome.candidate.key for outcome in outcomes}
        found = reasons(outcomes, space)
        assert not measured & set(found)
        assert measured | set(found) == {c.key for c in (*space.grid(), search.baseline(space))}
        assert NOT_REACHED not in found.values()


def test_the_reasons_are_those_of_the_search() -> None:
    found = reasons(run())
    assert found["opencv-w8-p2-b64"] == "opencv: num_workers=4 is sufficient, and more cost more"
    assert "more CPU time per image than opencv's" in found["pillow-w8-p2-b64"]
    assert reasons(run(fails=("dali",)))["dali-w8-p2-b64"] == "dali: its probe failed (crashed)"
    knobs = reasons(run_knobbed(), KNOBBED)
    assert knobs["opencv-w4-p2-b64-thread-u8-glibc"] == "allocator glibc: did not gain on a probe"
    assert knobs["opencv-w4-p2-b64"] == "loader torch, transfer float32: did not gain on a probe"


def test_a_backend_that_idle_cores_brought_back_is_not_dominated() -> None:
    space, outcomes = stuck(used=3.0)
    found = reasons(outcomes, space)
    assert found["dali-w16-p2-b64"] == "dali: num_workers=4 is sufficient, and more cost more"
    assert "more CPU time per image than opencv's" in found["pillow-w4-p2-b64"]


def test_an_interrupted_search() -> None:
    found = reasons(run()[:2])
    assert set(found.values()) == {NOT_REACHED}


def test_excluded_candidates_are_not_among_them() -> None:
    lacking = frozenset(c for c in SPACE.grid() if c.backend == "dali")
    space = replace(SPACE, excluded=frozenset(c for c in lacking if c.num_workers != 8))
    full = replace(SPACE, excluded=lacking)
    outcomes = [o for o in run() if o.candidate.backend != "dali"]
    found = reasons(outcomes, full)
    assert found
    assert not {key for key in found if key.startswith("dali")}
    assert space.workers_of("dali") == (8,)
