from __future__ import annotations

from typing import Any

import pytest

from pipetune.measure.conditions import Live
from pipetune.measure.recording import Recording
from pipetune.measure.script import arrivals as module
from pipetune.measure.script.arrivals import Arrivals
from tests.unit.measure.script.fake_session import FakeSession, as_session


def rows(*ends: int) -> list[list[Any]]:
    return [[end - 10, 0.0, None, 5e-9, 0.0, end, 4] for end in ends]


class Scene:
    def __init__(self, ranks: int = 1) -> None:
        self.session, self.recording, self.live = FakeSession(), Recording(), []  # type: ignore[var-annotated]
        for rank in range(ranks):
            self.session.add(rank=rank, ranks=ranks)
        self.arrivals = Arrivals(as_session(self.session), self.recording, self.live.append)

    def tell(self, kind: str, of: int = 0, **fields: Any) -> None:
        self.arrivals.on_message(self.session.ready[of], {"type": kind, **fields})


def test_steps_are_filed_by_their_phase_and_told_while_they_come() -> None:
    scene = Scene()
    scene.tell("phase", phase="warmup")
    scene.tell("steps", phase="warmup", rows=rows(10, 20))
    scene.tell("phase", phase="timed")
    scene.tell("steps", phase="timed", rows=rows(30))
    assert [step.t_end_ns for step in scene.recording.warmup] == [10, 20]
    assert [step.t_end_ns for step in scene.recording.timed] == [30]
    assert scene.arrivals.phase == "timed"
    assert Live(phase="warmup") in scene.live


RESULT = {"warmup_batches": 2, "steady": True, "window_batches": 3}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [("steps", {"phase": "timed", "rows": [[1]]}), ("result", {"stop_at": 1}), ("phase", {}), ("failure", {}),
     ("garbled", {"what": "half a line"})],
)  # fmt: skip
def test_what_is_no_message_is_the_candidates_failure(kind: str, fields: dict[str, object]) -> None:
    scene = Scene()
    scene.tell(kind, **fields)
    assert scene.arrivals.done
    assert scene.arrivals.failure is not None
    assert scene.arrivals.failure.message.startswith("what the child sent cannot be read: ")


def test_the_first_first_batch_counts() -> None:
    scene = Scene()
    scene.tell("first_batch", open_s=1.0, time_to_first_batch_s=1.5)
    scene.tell("first_batch", open_s=2.0, time_to_first_batch_s=2.5)
    assert scene.recording.first_batch["open_s"] == 1.0


def test_a_single_rank_is_done_when_it_rests_after_its_result() -> None:
    scene = Scene()
    assert not scene.arrivals.done
    scene.tell("result", stop_at=9, **RESULT)
    assert not scene.arrivals.done, "the script may evaluate first"
    scene.tell("resting")
    assert scene.arrivals.done
    assert scene.session.sent == []


def test_of_several_ranks_the_first_ones_steps_stand_for_all() -> None:
    scene = Scene(ranks=2)
    scene.tell("steps", phase="timed", rows=rows(10))
    scene.tell("steps", of=1, phase="timed", rows=rows(11))
    scene.tell("phase", of=1, phase="timed")
    assert [(step.t_end_ns, step.samples) for step in scene.recording.timed] == [(10, 8)]
    assert scene.arrivals.phase == "open"


def test_the_others_are_told_where_to_stop_and_waited_for() -> None:
    scene = Scene(ranks=3)
    scene.tell("result", of=1, stop_at=1, **RESULT)  # which is not the first one's
    assert scene.session.sent == []
    scene.tell("result", stop_at=40, **RESULT)
    assert scene.session.sent == [(peer, "stop", {"at": 40}) for peer in scene.session.ready[1:]]
    assert not scene.arrivals.done
    scene.tell("stopped", of=2, at=40)
    assert not scene.arrivals.done
    scene.tell("stopped", of=1, at=40)
    assert not scene.arrivals.done
    scene.tell("resting")
    assert scene.arrivals.done


def test_what_was_left_out_until_an_epochs_end_is_known_where_the_script_ends_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = [10.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: seconds[0])
    scene = Scene()
    scene.tell("epoch", within=False, epoch_starts=[[0.1, 0.0]], apart=[[1, 2]], epoch_samples=80)
    assert scene.recording.result == {"epoch_starts": [[0.1, 0.0]], "apart": [[1, 2]], "epoch_samples": 80}
    assert not scene.arrivals.has_result
    seconds[0] += 3.0
    assert scene.arrivals.outside_s == 3.0
    scene.tell("epoch", within=True)
    seconds[0] += 4.0
    assert scene.arrivals.outside_s == 3.0
    scene.tell("result", stop_at=9, **RESULT)
    scene.tell("epoch", within=False)
    assert scene.recording.result["stop_at"] == 9


@pytest.mark.parametrize("rank", [0, 1])
def test_a_failure_of_any_rank_ends_it(rank: int) -> None:
    scene = Scene(ranks=2)
    scene.session.last_lines = "Traceback"
    scene.tell("failure", of=rank, phase="timed", error="RuntimeError", message="killed")
    failure = scene.arrivals.failure
    assert scene.arrivals.done
    assert failure is not None
    assert (failure.kind, failure.phase, failure.message) == ("error", "timed", "RuntimeError: killed")
    assert failure.stderr_tail == "Traceback"
