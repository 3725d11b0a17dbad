from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.errors import PipetuneError
from pipetune.measure.conditions import Conditions
from pipetune.measure.machine_speed import Speed
from pipetune.measure.recording import Recording
from pipetune.measure.script import bench as module
from pipetune.measure.script import follow, start_settings
from pipetune.measure.script.bench import ScriptBench
from pipetune.measure.script.joined import LEAST_BATCHES
from pipetune.measure.script.ready import ScriptError
from pipetune.records.set_up import SetUp
from pipetune.records.sweep import AcceleratorSpec, Candidate, Outcome
from tests.photo_set import workload
from tests.unit.measure.script.fake_session import FakeSession

OWN = Candidate(backend="script", num_workers=2, prefetch_depth=2, batch_size=16, loader="user")
OTHER = replace(OWN, num_workers=4)
CONDITIONS = Conditions(
    workload=workload(accelerator=AcceleratorSpec(kind="cpu", name="CPU")), paths=(),
    cores=frozenset(os.sched_getaffinity(0)), speed_before=Speed(1.0, 1.0),
)  # fmt: skip


def answer(steps: int = 80) -> list[dict[str, Any]]:
    """What a script says of one measurement: a step each 50 ms."""
    rows = [[number * 50_000_000, 0.01, None, 0.04, 0.01, (number + 1) * 50_000_000, 16] for number in range(steps)]
    return [
        {"type": "phase", "phase": "first_batch"},
        {"type": "first_batch", "open_s": 0.1, "time_to_first_batch_s": 0.2},
        {"type": "steps", "phase": "warmup", "rows": rows[:10]},
        {"type": "steps", "phase": "timed", "rows": rows[10:]},
        {
            "type": "result", "warmup_batches": 10, "steady": True, "window_batches": 6, "ended_early": False,
            "stop_at": steps, "changed_in_place": False, "psnr_db": None,
        },
        {"type": "resting"},
    ]  # fmt: skip


class NoSampler:
    def __init__(self, *_: Any, **__: Any) -> None:
        self.readings: list[Any] = []

    def start(self) -> None:
        """Nothing is read."""

    def stop(self) -> bool:
        return True


class Scripts:
    """Starts of the script, each with what it will say."""

    def __init__(self) -> None:
        self.recognised = True
        """A start finds the loader that a profile is for."""
        self.next: list[FakeSession] = []
        self.started: list[tuple[FakeSession, dict[str, str], Any]] = []

    def will_say(self, *script: dict[str, Any] | str, **attributes: Any) -> FakeSession:
        session = FakeSession(*script, **attributes)
        session.add()
        self.next.append(session)
        return session

    def open(
        self, command: Any, variables: dict[str, str], log: Path, profile: Any, stop: Any, **_: Any
    ) -> FakeSession:
        session = self.next.pop(0)
        self.started.append((session, dict(variables), profile))
        for tuned in (profile or {}).get("loaders", ()):
            session.ready[0].ready["measures"] = "measure" in profile  # type: ignore[index]
            if self.recognised:
                session.ready[0].ready["settings"] = tuned["settings"]  # type: ignore[index]
        return session


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Scripts:
    made = Scripts()
    monkeypatch.setattr(module, "ScriptSession", made.open)
    monkeypatch.setattr(follow, "Sampler", NoSampler)
    monkeypatch.setattr(follow, "settle", lambda pid: None)
    monkeypatch.setattr(follow, "tree_pss", lambda pid: 2**28)
    monkeypatch.setattr(follow, "present_speed", lambda: Speed(1.0, 1.0))
    return made


def begun(tmp_path: Path) -> ScriptBench:
    bench = ScriptBench(["python", "train.py"], tmp_path / "log")
    bench.begin()
    bench.settle_on(OWN)
    return bench


def measure(bench: ScriptBench, candidate: Candidate, role: str = "candidate", **changes: Any) -> Outcome:
    outcome, recording = bench.measure(candidate, role, replace(CONDITIONS, **changes))
    assert isinstance(recording, Recording)
    return outcome


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"num_workers": 4}, {"num_workers": 4, "prefetch_factor": 2}),
        ({"prefetch_depth": 8}, {"num_workers": 2, "prefetch_factor": 8}),
        ({"num_workers": 0, "prefetch_depth": 0}, {"num_workers": 0, "prefetch_factor": None}),
        ({"pin_memory": True, "in_order": False}, {"pin_memory": True, "in_order": False}),
        ({"start_method": "spawn"}, {"start_method": "spawn"}),
        ({"opencv_threads": 0, "worker_cores": "all"}, {"opencv_threads": 0, "worker_cores": "all"}),
        ({"batch_size": 99}, {}),
    ],
    ids=str,
)  # fmt: skip
def test_a_candidate_changes_only_what_differs_from_the_script(
    changes: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    bench = ScriptBench(["python"], tmp_path / "log")
    bench.settle_on(OWN)
    assert bench.settings_of(replace(OWN, **changes)) == expected


def test_candidates_are_measured_one_after_the_other_in_one_start(scripts: Scripts, tmp_path: Path) -> None:
    session = scripts.will_say(*answer(), *answer(), *answer())
    bench = begun(tmp_path)
    outcomes = [
        measure(bench, OWN, "ceiling"), measure(bench, OWN, "baseline"), measure(bench, OTHER)
    ]  # fmt: skip
    assert [outcome.failure for outcome in outcomes] == [None] * 3
    assert [outcome.forked for outcome in outcomes] == [True] * 3
    assert outcomes[2].measurement is not None
    assert outcomes[2].measurement.samples_per_s == pytest.approx(16 / 0.05, rel=0.01)
    asked = [(kind, fields["role"], fields["settings"]) for _, kind, fields in session.sent]
    assert asked == [
        ("measure", "ceiling", {}), ("measure", "baseline", {}),
        ("measure", "candidate", {"num_workers": 4, "prefetch_factor": 2}),
    ]  # fmt: skip
    assert bench.starts == 1
    assert session.closed == 0
    bench.close()
    assert session.closed == 1


def test_a_fresh_start_ends_the_running_one_first_and_applies_settings_at_construction(
    scripts: Scripts, tmp_path: Path
) -> None:
    running, fresh = scripts.will_say(), scripts.will_say(*answer())
    bench = begun(tmp_path)
    outcome = measure(bench, OTHER, new_process=True)
    assert running.closed == fresh.closed == 1
    assert outcome.failure is None
    assert not outcome.forked
    _, _, profile = scripts.started[1]
    assert profile["loaders"][0]["settings"] == {"num_workers": 4, "prefetch_factor": 2}
    assert profile["loaders"][0]["identity"]["file"] == "/job/train.py"
    assert profile["loaders"][0]["alone_there"] is True
    assert fresh.sent[0][2]["settings"] == {}
    assert fresh.sent[0][2]["num_workers"] == 4  # for the phases
    scripts.will_say(*answer())
    assert measure(bench, OWN).failure is None  # in a start of its own again, which goes on
    assert bench.starts == 3


def test_a_start_of_the_script_is_the_set_up_of_the_candidate_that_needed_it(scripts: Scripts, tmp_path: Path) -> None:
    scripts.will_say(*answer())
    bench = begun(tmp_path)
    running = measure(bench, OTHER).measurement
    scripts.will_say(*answer())
    started = measure(bench, OTHER, new_process=True).measurement
    assert running is not None and started is not None  # noqa: PT018 - for mypy
    assert (running.set_up, started.set_up) == (None, SetUp(start_s=bench.setup_seconds[-1]))


def test_a_fresh_start_of_the_script_as_it_is_needs_no_profile(scripts: Scripts, tmp_path: Path) -> None:
    scripts.will_say()
    scripts.will_say(*answer())
    measure(begun(tmp_path), OWN, "baseline", new_process=True)
    assert scripts.started[1][2] is None


def test_another_allocator_lives_in_the_process(scripts: Scripts, tmp_path: Path) -> None:
    scripts.will_say()
    scripts.will_say(*answer())
    outcome = measure(begun(tmp_path), replace(OWN, allocator="glibc"))
    assert not outcome.forked
    assert scripts.started[1][1] != {}


def test_pillow_simd_lives_in_the_process_and_has_to_be_imported(
    scripts: Scripts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_settings, "pil_for_hook", lambda: {"folder": "/side", "tag": "x"})
    scripts.will_say()
    scripts.will_say(*answer()).ready[0].ready["pil"] = "12.1.1.post0"  # type: ignore[index]
    other = scripts.will_say(*answer())
    other.ready[0].ready["pil"] = "13.0.0"  # type: ignore[index]
    bench, simd = begun(tmp_path), replace(OWN, decoder="simd")
    outcome = measure(bench, simd)
    assert outcome.failure is None
    assert not outcome.forked
    assert scripts.started[1][2] == {"loaders": [], "pil": {"folder": "/side", "tag": "x"}}
    failure = measure(bench, replace(simd, num_workers=4)).failure
    assert failure is not None
    assert "another PIL (13.0.0)" in failure.message
    assert [one["settings"] for one in scripts.started[2][2]["loaders"]] == [{"num_workers": 4, "prefetch_factor": 2}]
    assert other.closed == 1


def test_settings_that_were_not_applied_are_not_measured(scripts: Scripts, tmp_path: Path) -> None:
    """The script makes other loaders than at first: what it measured then is on the disk now, say."""
    scripts.recognised = False
    scripts.will_say()
    other = scripts.will_say(*answer())
    outcome = measure(begun(tmp_path), OTHER, new_process=True)
    assert outcome.measurement is None
    assert outcome.failure is not None
    assert outcome.failure.message.endswith("it has num_workers=2 instead of 4")
    assert (other.sent, other.closed) == ([], 1)


@pytest.mark.parametrize(
    ("start_method", "changes", "expected"),
    [
        ("fork", {"start_method": "spawn", "in_order": False}, {"start_method": "spawn", "in_order": False}),
        ("fork", {}, {}),
        ("forkserver", {"start_method": "forkserver"}, {}),
        ("forkserver", {}, {"start_method": "fork"}),
    ],
)
def test_of_a_script_without_workers_it_counts_how_it_would_start_them(
    start_method: str, changes: dict[str, Any], expected: dict[str, Any], scripts: Scripts, tmp_path: Path
) -> None:
    session = scripts.will_say()
    session.ready[0].ready["settings"] = {"num_workers": 0, "in_order": True, "start_method": start_method}  # type: ignore[index]
    bench = begun(tmp_path)
    bench.settle_on(replace(OWN, num_workers=0, prefetch_depth=0))
    assert bench.settings_of(replace(OWN, **changes)) == {"num_workers": 2, "prefetch_factor": 2, **expected}


def test_a_loader_that_cannot_be_recognised_is_a_failure_in_a_fresh_start(scripts: Scripts, tmp_path: Path) -> None:
    scripts.will_say().ready[0].ready["identity"] = None  # type: ignore[index]
    outcome = measure(begun(tmp_path), OTHER, new_process=True)
    assert outcome.failure is not None
    assert outcome.failure.kind == "script_ended"
    assert len(scripts.started) == 1


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


@pytest.mark.parametrize(("frac", "noted"), [(0.2, True), (0.01, False)])
def test_waiting_for_other_loaders_is_noted(frac: float, noted: bool, scripts: Scripts, tmp_path: Path) -> None:
    messages = answer()
    messages[-2]["other_loaders_frac"] = frac
    scripts.will_say(*messages, *messages)
    bench = begun(tmp_path)
    measure(bench, OTHER)
    assert bench.notes == []
    measure(bench, OWN, "baseline")
    assert any("its other loaders 20 % of the time" in note for note in bench.notes) == noted


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
    own = measure(bench, OWN, "baseline")
    assert own.failure is None
    assert own.measurement is not None
    assert own.measurement.samples_per_s == pytest.approx(16 / 0.05, rel=0.01)
    assert own.measurement.samples == 2 * 19 * 16, "the first start was not measured from its first batch on"
    assert bench.starts == 3
    other = measure(bench, OTHER)
    assert other.failure is None
    assert not other.forked
    assert bench.starts == 5, "what it takes is known by now"
    (_, _, none), *profiles = scripts.started
    assert none is None
    assert [profile["measure"]["num_workers"] for _, _, profile in profiles] == [2, 2, 4, 4]
    assert [profile["measure"]["own_workers"] for _, _, profile in profiles] == [2] * 4
    assert [profile["measure"]["own_epoch_samples"] for _, _, profile in profiles[-2:]] == [304, 304]
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


def test_one_that_does_not_come_to_training_is_ended_and_refused(scripts: Scripts, tmp_path: Path) -> None:
    session = FakeSession("ended", exit_code=1)
    scripts.next.append(session)
    with pytest.raises(ScriptError), ScriptBench(["python", "train.py"], tmp_path / "log") as bench:
        bench.begin()
    assert session.closed == 1


def test_what_was_complained_of_is_noted_once(scripts: Scripts, tmp_path: Path) -> None:
    for _ in range(2):
        scripts.will_say(*answer(), complaints=["a", "b"])
    bench = begun(tmp_path)
    measure(bench, OWN, new_process=True)
    assert bench.notes == ["a", "b"]
    assert len(bench.setup_seconds) == 2
