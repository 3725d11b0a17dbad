"""Scripts and candidates that end, fail or hang before a measurement is over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.errors import PipetuneError
from pipetune.measure.script.bench import ScriptBench
from pipetune.measure.script.joined import LEAST_BATCHES
from pipetune.measure.script.ready import ScriptError
from pipetune.records.set_up import SetUp
from tests.unit.measure.script.fake_scripts import OTHER, OWN, Scripts, answer, begun, install_scripts, measure
from tests.unit.measure.script.fake_session import FakeSession


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Scripts:
    return install_scripts(monkeypatch)


def test_a_candidate_that_fails_leaves_the_script_running(scripts: Scripts, tmp_path: Path) -> None:
    failure = {"type": "failure", "phase": "timed", "error": "RuntimeError", "message": "killed"}
    session = scripts.will_say(failure, *answer())
    bench = begun(tmp_path)
    outcome = measure(bench, OTHER)
    assert outcome.failure is not None
    assert outcome.failure.kind == "error"
    assert outcome.measurement is None
    assert measure(bench, OWN).failure is None
    assert (session.closed, bench.starts) == (0, 1)


def test_with_several_ranks_it_does_not(scripts: Scripts, tmp_path: Path) -> None:
    failure = {"type": "failure", "phase": "timed", "error": "RuntimeError", "message": "killed"}
    session = scripts.will_say(failure)
    session.ready[0].ready["ranks"] = 2  # type: ignore[index]
    session.add(rank=1, ranks=2)
    bench = begun(tmp_path)
    measure(bench, OTHER)
    assert session.closed == 1


@pytest.mark.parametrize(
    ("reason", "attributes", "kind"),
    [
        ("ended", {"exit_code": 1}, "crashed"), ("lost", {"lost": 0}, "crashed"), ("limit", {}, "hung"),
        ("stopped", {}, None),
    ],
)  # fmt: skip
def test_a_script_that_ends_or_hangs_is_started_anew(
    reason: str, attributes: dict[str, Any], kind: str | None, scripts: Scripts, tmp_path: Path
) -> None:
    first = scripts.will_say({"type": "phase", "phase": "warmup"}, reason, **attributes)
    scripts.will_say(*answer())
    bench = begun(tmp_path)
    failure = measure(bench, OTHER).failure
    assert failure is not None
    assert failure.phase == "warmup"
    assert kind in (failure.kind, None)
    assert first.closed == 1
    assert measure(bench, OWN).failure is None
    assert bench.starts == 2


def test_a_result_that_was_sent_before_the_script_ended_counts(scripts: Scripts, tmp_path: Path) -> None:
    session = scripts.will_say(*answer(), process_ended=True)
    bench = begun(tmp_path)
    assert measure(bench, OWN).failure is None
    assert session.closed == 1


def test_a_rank_that_is_lost_after_the_result_counts_as_a_failure(scripts: Scripts, tmp_path: Path) -> None:
    session = scripts.will_say(*answer(), "lost", lost=1)
    session.ready[0].ready["ranks"] = 2  # type: ignore[index]
    session.add(rank=1, ranks=2)
    failure = measure(begun(tmp_path), OTHER).failure
    assert failure is not None
    assert session.closed == 1


def an_epoch(batches: int = 19, step_s: float = 0.05) -> list[dict[str, Any]]:
    """What a script says that is measured from its first batch on, and ends after an epoch."""
    rows = [
        [round(1e9 * (number * step_s)), 0.01, None, 0.04, 0.01, round(1e9 * (number + 1) * step_s), 16]
        for number in range(batches)
    ]
    return [
        {"type": "phase", "phase": "first_batch"},
        {"type": "first_batch", "open_s": 0.1, "time_to_first_batch_s": 0.2},
        {"type": "steps", "phase": "warmup", "rows": rows[:5]},
        {"type": "steps", "phase": "timed", "rows": rows[5:]},
        {"type": "epoch", "within": False, "epoch_starts": [[0.2, 0.0]], "apart": [], "epoch_samples": 16 * batches},
    ]


def test_a_script_that_ends_after_an_epoch_is_measured_over_several_starts(scripts: Scripts, tmp_path: Path) -> None:
    for _ in range(6):
        scripts.will_say(*an_epoch(), "ended", exit_code=0)
    bench = begun(tmp_path)
    assert bench.loader is not None
    bench.loader = replace(bench.loader, batches=19)
    own = measure(bench, OWN, "baseline")
    assert own.failure is None
    assert own.measurement is not None
    assert own.measurement.samples_per_s == pytest.approx(16 / 0.05, rel=0.01)
    assert own.measurement.samples == 2 * 19 * 16, "the first start was not measured from its first batch on"
    assert own.measurement.epoch_start_s is None, "its workers start once, with it"
    assert bench.starts == 3
    assert own.measurement.set_up == SetUp(start_s=sum(bench.setup_seconds[1:])), "all starts that it needed"
    other = measure(bench, OTHER)
    assert other.failure is None
    assert not other.forked
    assert bench.starts == 5, "what it takes is known by now"
    (_, _, none), *profiles = scripts.started
    assert none is None
    assert [profile["measure"]["num_workers"] for _, _, profile in profiles] == [2, 2, 4, 4]
    assert [profile["measure"]["own_workers"] for _, _, profile in profiles] == [2] * 4
    assert [profile["measure"]["own_epoch_samples"] for _, _, profile in profiles] == [None] * 4, "it has indices"
    assert profiles[-1][2]["loaders"][0]["settings"] == {"num_workers": 4, "prefetch_factor": 2}
    assert all(not session.sent for session, *_ in scripts.started[1:]), "it came with the start"


def test_a_script_that_ends_after_others_were_measured_in_it_is_started_as_before(
    scripts: Scripts, tmp_path: Path
) -> None:
    scripts.will_say(*answer(), *an_epoch(5), "ended", exit_code=0)
    scripts.will_say(*answer())
    bench = begun(tmp_path)
    assert measure(bench, OWN, "baseline").failure is None
    assert measure(bench, OTHER).failure is None
    assert [profile for _, _, profile in scripts.started] == [None, None]


def test_a_script_with_too_few_batches_is_told_how_many_are_needed(scripts: Scripts, tmp_path: Path) -> None:
    scripts.will_say("ended", exit_code=0)
    scripts.will_say(*an_epoch(1), "ended", exit_code=0)
    scripts.will_say("ended", exit_code=0)
    with pytest.raises(ScriptError) as raised:
        measure(begun(tmp_path), OWN, "ceiling")
    assert raised.value.message == (
        f"the script ended after 0 batches; at least {LEAST_BATCHES} are needed: use more data or --epochs"
    )


def test_a_script_that_ends_each_time_ends_the_sweep(scripts: Scripts, tmp_path: Path) -> None:
    for _ in range(4):
        scripts.will_say("ended", checkpoint="a.pth")
    bench = begun(tmp_path)
    measure(bench, OTHER)
    measure(bench, OTHER)
    with pytest.raises(PipetuneError, match=r"a\.pth"):
        measure(bench, OTHER)


def test_a_script_in_which_several_processes_train_on_their_own_is_refused(scripts: Scripts, tmp_path: Path) -> None:
    session = scripts.will_say(*answer())
    bench = begun(tmp_path)
    assert measure(bench, OWN, "baseline").failure is None
    session.add()  # a process that is no rank of the first one's training
    with pytest.raises(ScriptError, match="2 processes of the script train at the same time, each on its own"):
        measure(bench, OTHER)


def test_one_that_does_not_come_to_training_is_ended_and_refused(scripts: Scripts, tmp_path: Path) -> None:
    session = FakeSession("ended", exit_code=1)
    scripts.next.append(session)
    with pytest.raises(ScriptError), ScriptBench(["python", "train.py"], tmp_path / "log") as bench:
        bench.begin()
    assert session.closed == 1


def test_of_an_iterable_data_set_the_samples_of_the_scripts_own_epoch_are_sent(
    scripts: Scripts, tmp_path: Path
) -> None:
    for _ in range(6):
        session = scripts.will_say(*an_epoch(), "ended", exit_code=0)
        (session.ready[0].ready or {})["iterable"] = True
    bench = begun(tmp_path)
    assert measure(bench, OWN, "baseline").failure is None
    assert measure(bench, OTHER).failure is None
    assert [profile["measure"]["own_epoch_samples"] for _, _, profile in scripts.started[-2:]] == [304, 304]
