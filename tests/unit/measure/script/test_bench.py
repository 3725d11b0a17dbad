from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.measure.script import start_settings
from pipetune.measure.script.bench import ScriptBench
from pipetune.records.set_up import SetUp
from tests.unit.measure.script.fake_scripts import (
    CONDITIONS,
    OTHER,
    OWN,
    Scripts,
    answer,
    begun,
    install_scripts,
    measure,
)


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Scripts:
    return install_scripts(monkeypatch)


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


def test_what_was_complained_of_is_noted_once(scripts: Scripts, tmp_path: Path) -> None:
    for _ in range(2):
        scripts.will_say(*answer(), complaints=["a", "b"])
    bench = begun(tmp_path)
    measure(bench, OWN, new_process=True)
    assert bench.notes == ["a", "b"]
    assert len(bench.setup_seconds) == 2


def test_a_start_ends_a_later_measurement_where_pipetune_is_asked_to_stop(scripts: Scripts, tmp_path: Path) -> None:
    session = scripts.will_say(*answer(), *answer())
    bench = begun(tmp_path)
    measure(bench, OWN, "baseline")
    seen = []

    def interrupt(_: Any) -> None:
        if not seen:
            signal.raise_signal(signal.SIGINT)
        seen.append(session.is_asked_to_stop())

    with pytest.raises(KeyboardInterrupt):
        bench.measure(OTHER, "candidate", CONDITIONS, on_live=interrupt)
    assert seen[0]
