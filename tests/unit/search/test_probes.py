from __future__ import annotations

from dataclasses import replace

from pipetune.search.probes import next_probe
from pipetune.search.state import State
from tests.fakes import outcome
from tests.unit.search.probed import COSTS, FAILED, GOAL, SPACE, probed


def test_only_backends_that_may_become_as_cheap_are_probed_again() -> None:
    # Threads save opencv 0.8 ms. As much would bring simplejpeg to 0.7 ms, and Pillow to 1.2: twice what opencv needs.
    keys = {o.candidate.key for o in probed(COSTS)}
    assert {"opencv-w1-p2-b64-thread", "simplejpeg-w1-p2-b64-thread"} <= keys
    assert "pillow-w1-p2-b64-thread" not in keys


def test_a_setting_that_gains_nothing_is_tried_once() -> None:
    outcomes = probed({name: (cost, cost) for name, (cost, _) in COSTS.items()})
    assert {o.candidate.key for o in outcomes if o.candidate.loader == "threads"} == {"opencv-w1-p2-b64-thread"}


def test_others_are_probed_again_where_the_cheap_ones_failed() -> None:
    outcomes = probed(COSTS)
    for backend in ("opencv", "simplejpeg"):
        failed = SPACE.candidate(backend, 2, 2, loader="threads")
        outcomes.append(replace(outcome(backend, failure=FAILED), candidate=failed))
    step = next_probe(State.after(SPACE, GOAL, outcomes), 0)[0]
    assert step is not None
    assert step[0].key == "pillow-w1-p2-b64-thread"
