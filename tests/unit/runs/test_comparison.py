from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipetune.errors import UsageError
from pipetune.records.sweep import Outcome
from pipetune.runs.comparison import Change, compare
from pipetune.runs.load import load
from pipetune.runs.run import Run
from tests.fakes import outcome
from tests.run_folders import CEILING, DEFAULT, TIMED, TUNED, sweep_folder, watch_folder
from tests.unit.sweeping.test_result import FAILED
from tests.watch_fakes import verdict, window


def run(folder: Path, *outcomes: Outcome, **info: Any) -> Run:
    path = sweep_folder(folder, outcomes or (CEILING, DEFAULT, TUNED))
    stored = json.loads((path / "run.json").read_text())
    for name, value in info.items():
        stored[name] = {**stored.get(name, {}), **value} if isinstance(value, dict) else value
    (path / "run.json").write_text(json.dumps(stored))
    return load(path)


def test_a_run_and_itself_are_the_same(tmp_path: Path) -> None:
    found = compare(run(tmp_path / "a"), run(tmp_path / "b", started="later", command="another", cwd="/elsewhere"))

    assert found.changes == ()
    assert [d.name for d in found.differences] == ["ceiling", DEFAULT.candidate.key, TUNED.candidate.key]
    assert not any(d.outside for d in found.differences)
    assert {d.ratio for d in found.differences} == {1.0}
    assert found.recommended == (TUNED.candidate.key, TUNED.candidate.key)


def test_a_rate_outside_both_intervals_is_a_difference(tmp_path: Path) -> None:
    slower = outcome("opencv", 2, rate=1000.0, **TIMED)
    found = compare(run(tmp_path / "a"), run(tmp_path / "b", CEILING, DEFAULT, slower))

    (change,) = [d for d in found.differences if d.outside]
    assert (change.name, change.better) == (TUNED.candidate.key, False)
    assert change.ratio == pytest.approx(1000 / 1240)
    low, high = change.ratio_ci95 or (0, 0)
    assert low < 1000 / 1240 < high < 1


@pytest.mark.parametrize(
    ("rate", "half", "outside"),
    [
        (1250.0, 0.05, False),
        (1260.0, 0.001, False),  # it lies in the interval of the first one, 1215 to 1265
        (1300.0, 0.06, False),  # the first one lies in its interval
        (1300.0, 0.01, True),
        (1240.0 * 0.975, 0.02, False),  # each outside of the other's 2 %, but both together allow 2.8 %
    ],
)
def test_one_interval_that_holds_the_other_rate_is_enough_to_call_them_the_same(
    tmp_path: Path, rate: float, half: float, outside: bool
) -> None:
    other = outcome("opencv", 2, rate=rate, **TIMED | {"ci95": (rate * (1 - half), rate * (1 + half))})
    found = compare(run(tmp_path / "a"), run(tmp_path / "b", CEILING, DEFAULT, other))

    assert found.differences[-1].outside is outside


def test_what_was_asked_and_where_it_ran(tmp_path: Path) -> None:
    other = run(
        tmp_path / "b", options={"seed": 7}, host={"hostname": "there", "versions": {"torch": "2.8.0"}},
        pipetune="0.2.0", gpus=["H100"],
    )  # fmt: skip
    found = compare(run(tmp_path / "a"), other)

    assert list(found.changes) == [
        Change(part="configuration", name="seed", before=0, after=7),
        Change(part="machine", name="hostname", before="here", after="there"),
        Change(part="machine", name="torch", before="2.14.1", after="2.8.0"),
        Change(part="machine", name="gpus", before=[], after=["H100"]),
        Change(part="pipetune", name="version", before="0.1.0", after="0.2.0"),
    ]


def test_other_work_is_named(tmp_path: Path) -> None:
    other = run(tmp_path / "b", options={"dataset": "others", "seed": 3}, dataset_fingerprint="12")

    assert compare(run(tmp_path / "a"), other).other_work == ("dataset", "dataset_fingerprint")
    assert compare(load(tmp_path / "a"), load(tmp_path / "a")).other_work == ()


def test_candidates_that_only_one_of_them_has(tmp_path: Path) -> None:
    other = outcome("dali", 1, rate=5.0, **TIMED)
    found = compare(run(tmp_path / "a"), run(tmp_path / "b", CEILING, DEFAULT, other))

    assert (found.only_before, found.only_after) == ((TUNED.candidate.key,), (other.candidate.key,))


def test_the_newest_attempt_counts(tmp_path: Path) -> None:
    again = outcome("opencv", 2, rate=1000.0, attempt=2, **TIMED)
    found = compare(run(tmp_path / "a", CEILING, TUNED, again), run(tmp_path / "b"))

    assert found.differences[-1].before == 1000.0


def test_watches_are_compared_by_their_lost_share(tmp_path: Path) -> None:
    better = verdict(lost_frac=0.1, lost_ci95=(0.05, 0.15))
    first, second = (
        load(watch_folder(tmp_path / str(number), [window(verdicts=(found,))]))
        for number, found in enumerate((verdict(), better))
    )
    found = compare(first, second)

    (difference,) = found.differences
    assert (difference.name, difference.before, difference.after) == ("job", 0.6, 0.1)
    assert (difference.outside, difference.better, difference.ratio) == (True, True, None)
    assert found.unit == "lost share"


def test_of_processes_without_a_rank_the_worst_is_compared(tmp_path: Path) -> None:
    better = verdict(lost_frac=0.1, lost_ci95=(0.05, 0.15), pid=7)
    first = load(watch_folder(tmp_path / "a", [window(verdicts=(verdict(), better))]))
    (difference,) = compare(first, first).differences

    assert (difference.before, difference.after) == (0.6, 0.6)


def test_an_option_that_an_earlier_version_did_not_know_is_no_change(tmp_path: Path) -> None:
    newer = run(tmp_path / "b", options={"allow_writes": False, "budget_s": None, "command": [], "seed": 0})

    assert [change.name for change in compare(run(tmp_path / "a"), newer).changes] == []


def test_a_sweep_and_a_watch_are_not_compared(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is a sweep and .* a watch; compare two of one kind"):
        compare(run(tmp_path / "a"), load(watch_folder(tmp_path / "b", [window()])))


def test_another_accelerator_is_other_work_though_both_are_called_auto(tmp_path: Path) -> None:
    gpu = {"kind": "cuda", "name": "NVIDIA H100", "device_index": 0}
    found = compare(run(tmp_path / "a"), run(tmp_path / "b", workload={"accelerator": gpu}))
    (change,) = found.changes
    assert (change.part, change.name, change.after) == ("configuration", "accelerator", "cuda NVIDIA H100")
    assert "1250/s" in str(change.before)
    assert found.other_work == ("accelerator",)


def test_what_is_worse(tmp_path: Path) -> None:
    first = run(tmp_path / "a")
    assert compare(first, first).worse == ()
    slower = run(tmp_path / "b", CEILING, DEFAULT, outcome("opencv", 2, rate=1000.0, **TIMED))
    assert compare(first, slower).worse == (f"{TUNED.candidate.key} is worse",)
    failed = run(tmp_path / "c", CEILING, DEFAULT, outcome("opencv", 2, failure=FAILED))
    assert compare(first, failed).worse == (f"{TUNED.candidate.key} failed in the second run",)
    other = run(tmp_path / "d", CEILING, outcome("dali", 2, rate=900.0, **TIMED))
    assert compare(first, other).worse == ("the runs have no measurement of a loader in common",)


def test_secrets_of_commands_are_not_shown(tmp_path: Path) -> None:
    def made(name: str, token: str, workers: str) -> Run:
        command = ["python", "t.py", "--token", token, "--workers", workers]
        return run(
            tmp_path / name, options={"command": command}, script={"command": command, "cwd": "/job", "loader": None}
        )

    first, same, other = made("a", "abc", "0"), made("b", "abd", "0"), made("c", "abc", "4")
    assert compare(first, same).changes == ()
    changes = compare(first, other).changes
    assert {change.name for change in changes} == {"command", "script"}
    assert "abc" not in str(changes)


def test_what_was_measured_of_a_script_and_what_does_not_fit_at_a_moment_was_not_asked_for(tmp_path: Path) -> None:
    script = {"command": ["python", "train.py"], "cwd": "/job", "loader": None, "setup_s": 3.1}
    first = run(tmp_path / "a", script=script, does_not_fit=[{"failure": "2.91 GiB are free"}])
    again = run(tmp_path / "b", script={**script, "setup_s": 3.4}, does_not_fit=[{"failure": "2.87 GiB are free"}])
    other = run(tmp_path / "c", script={**script, "command": ["python", "other.py"]}, does_not_fit=[])
    assert compare(first, again).changes == ()
    assert [change.name for change in compare(first, other).changes] == ["script"]
