from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.candidates.space import Space
from pipetune.errors import UsageError
from pipetune.machine.host import describe_host
from pipetune.records.script import ScriptLoader
from pipetune.records.sweep import AcceleratorSpec, Candidate, Failure, Goal, Outcome, to_dict
from pipetune.sweeping.options import AUTO_RANKS
from pipetune.sweeping.resume import (
    differences_of_script,
    find_differences,
    goal_of_resumed,
    read_resumed,
    refuse_another_sweep,
    with_the_emulated_device_of,
)
from pipetune.sweeping.run import resumed_record
from pipetune.sweeping.setup import Prepared
from tests.fakes import outcome
from tests.photo_set import PHOTOS, scan
from tests.unit.sweeping.test_setup import CHOSEN

PREPARED = Prepared(
    images=scan(PHOTOS), accelerator=AcceleratorSpec(kind="emulated", name="EMULATED 500/s", rate_samples_per_s=500.0),
    host=describe_host(),
    space=Space(backends=("pillow",), workers=(0, 1), prefetch=(2,), batch_size=4, pin_memory=False),
    goal=Goal(target=0.9, metric="goodput"), precision="emulated", budget_s=None, timeout_s=None, limit_bytes=2**30,
)  # fmt: skip


def run_record(prepared: Prepared = PREPARED, **changes: Any) -> dict[str, Any]:
    record = {
        "schema": 1, "kind": "sweep", "cwd": "/home/me", "options": to_dict(CHOSEN),
        "workload": {"accelerator": to_dict(prepared.accelerator)}, "host": to_dict(prepared.host), "gpus": [],
        "dataset_fingerprint": prepared.images.fingerprint, **changes,
    }  # fmt: skip
    return json.loads(json.dumps(record))  # type: ignore[no-any-return]


def folder_with(tmp_path: Path, *outcomes: Outcome, **changes: Any) -> Path:
    (tmp_path / "run.json").write_text(json.dumps(run_record(**changes)))
    (tmp_path / "outcomes.jsonl").write_text(
        "".join(json.dumps({"schema": 1, **to_dict(out)}) + "\n" for out in outcomes)
    )
    return tmp_path


def test_what_was_measured_is_taken_over_and_what_failed_is_not(tmp_path: Path) -> None:
    ceiling, good = outcome(role="ceiling"), outcome("opencv", 2)
    bad = outcome("dali", 1, failure=Failure(kind="crashed", phase="open", message="x"))
    resumed = read_resumed(folder_with(tmp_path, ceiling, bad, good), {})
    assert resumed.spent_s == pytest.approx(sum(found.wall_s for found in (ceiling, bad, good)))  # of the budget
    assert [out.candidate.key for out in resumed.outcomes] == [ceiling.candidate.key, good.candidate.key]
    assert resumed.chosen == CHOSEN


def test_options_that_only_steer_the_search_may_be_given_anew(tmp_path: Path) -> None:
    given = {"target": 0.5, "workers": (0, 1, 2, 4), "budget_s": 300.0}
    chosen = read_resumed(folder_with(tmp_path), given).chosen
    assert (chosen.target, chosen.workers, chosen.budget_s) == (0.5, (0, 1, 2, 4), 300.0)
    assert chosen.batch_size == CHOSEN.batch_size


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dataset", "/other"),
        ("batch_size", 8),
        ("device", "cpu"),
        ("model", "vgg16"),
        ("seed", 9),
        ("compile", True),
        ("augment", "mixup"),
    ],
)
def test_options_that_make_it_another_sweep_are_refused(name: str, value: object, tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} {value} differs from the sweep in"):
        read_resumed(folder, {name: value})
    assert read_resumed(folder, {name: getattr(CHOSEN, name)})


def test_options_of_version_0_1_were_kept_as_text(tmp_path: Path) -> None:
    """How the command line of that version wrote them; everything of a later version is a value."""
    written = {
        "dataset": str(PHOTOS), "model": "resnet50", "target": 0.9, "target_metric": "goodput",
        "backends": "pillow, opencv", "workers": "2,0,1", "prefetch": "2,4", "batch_size": 4, "image_size": 96,
        "precision": "auto", "device": "emulated:500", "seconds": 1.0, "budget": "90s", "grid": False, "cache": "warm",
        "timeout": "3m", "seed": 3, "vary": "none", "fix": ["transfer=float32", "in_order=no"], "exact": False,
        "cheapest": "cores,memory", "max_workers": None, "max_ram": "8GiB", "max_shm": None, "blocks": 3,
    }  # fmt: skip
    assert read_resumed(folder_with(tmp_path, options=written), {}).chosen == replace(
        CHOSEN, backends=("pillow", "opencv"), workers=(0, 1, 2), budget_s=90.0, timeout_s=180.0, vary=(),
        fix=(("transfer", "float32"), ("in_order", False)), cheapest=("cores", "memory"), max_ram_bytes=8 << 30,
        blocks=3, effort="thorough",  # there was no other
    )  # fmt: skip


def test_options_are_read_as_they_were_stored(tmp_path: Path) -> None:
    chosen = replace(CHOSEN, vary=("transfer",), fix=(("hw_decoder_load", 0.5),), budget_s=9.5, workers=(0, 3))
    assert read_resumed(folder_with(tmp_path, options=to_dict(chosen)), {}).before == chosen


def test_a_relative_data_set_is_relative_to_where_the_sweep_began(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, options=to_dict(replace(CHOSEN, dataset="photos")))
    assert read_resumed(folder, {}).chosen.dataset == "/home/me/photos"
    folder = folder_with(tmp_path, options=to_dict(replace(CHOSEN, dataset="synthetic:caltech256?n=9")))
    assert read_resumed(folder, {}).chosen.dataset == "synthetic:caltech256?n=9"


def test_ranks_are_compared_with_those_that_were_measured(tmp_path: Path) -> None:
    workload = {**run_record()["workload"], "ranks": 8}
    folder = folder_with(tmp_path, options=to_dict(replace(CHOSEN, ranks=AUTO_RANKS)), workload=workload)
    for given in (8, AUTO_RANKS):
        assert read_resumed(folder, {"ranks": given}).chosen.ranks == AUTO_RANKS
    with pytest.raises(UsageError, match=r"--ranks 4 differs from .* measured with 8"):
        read_resumed(folder, {"ranks": 4})
    record = run_record(workload=workload)
    assert "the number of ranks is 1, it was 8" in find_differences(record, PREPARED)
    assert find_differences(record, replace(PREPARED, ranks=8)) == []


@pytest.mark.parametrize("content", ["{}", "{", '{"schema": 1, "kind": "watch"}', '{"schema": 1, "kind": "sweep"}'])
def test_a_folder_that_holds_no_sweep(content: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(UsageError, match="cannot be resumed"):
        read_resumed(tmp_path, {})


@pytest.mark.parametrize(
    ("given", "settled"),
    [
        ({}, 1), ({"budget_s": 60.0, "blocks": 2}, 1),
        ({"workers": (3,)}, 2), ({"target": 0.5}, 2), ({"effort": "quick"}, 2),
    ],
)  # fmt: skip
def test_with_other_options_what_blocks_have_decided_is_open_again(
    given: dict[str, Any], settled: int, tmp_path: Path
) -> None:
    outcomes = [replace(outcome("opencv", 2), block=block) for block in (0, 1, 2)]
    resumed = read_resumed(
        folder_with(tmp_path, *outcomes, goal={**to_dict(PREPARED.goal), "settled_blocks": 1}), given
    )
    assert goal_of_resumed(resumed, PREPARED.goal) == replace(PREPARED.goal, settled_blocks=settled)


def test_a_budget_for_the_rest_is_stored_as_one_for_the_whole(tmp_path: Path) -> None:
    resumed = read_resumed(folder_with(tmp_path, outcome(), outcome("opencv", 2)), {"budget_s": 60.0})
    record = run_record(options=to_dict(resumed.chosen)) | {"started": "now", "command": "resume"}
    assert resumed_record(resumed, {"budget_s": 60.0}, record)["options"]["budget_s"] == 60.0 + resumed.spent_s
    assert resumed_record(resumed, {}, record)["options"]["budget_s"] == 60.0
    assert resumed_record(resumed, {"budget_s": None}, record)["options"]["budget_s"] == 60.0


def test_the_same_sweep_differs_in_nothing() -> None:
    assert find_differences(run_record(), PREPARED) == []


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (run_record(dataset_fingerprint="0123"), "the images have changed (fingerprint 0123"),
        (run_record(workload={"accelerator": {"kind": "emulated", "name": "EMULATED v100"}}), "it was EMULATED v100"),
        (run_record(gpus=["NVIDIA H100"]), "they were ['NVIDIA H100']"),
        (run_record(host={**to_dict(PREPARED.host), "cores_usable": 96.0}), "cores_usable is"),
        (run_record(host={**to_dict(PREPARED.host), "cpu_model": "Z80"}), "it was Z80"),
        (run_record(host={**to_dict(PREPARED.host), "versions": {"torch": "1.0"}}), "it was 1.0"),
    ],
)
def test_each_difference_is_reported(record: dict[str, Any], expected: str, tmp_path: Path) -> None:
    assert any(expected in difference for difference in find_differences(record, PREPARED))
    resumed = read_resumed(folder_with(tmp_path), {})
    with pytest.raises(UsageError, match="start a new sweep"):
        refuse_another_sweep(replace(resumed, run=record), PREPARED)


def test_another_host_name_is_no_other_host() -> None:
    assert find_differences(run_record(host={**to_dict(PREPARED.host), "hostname": "elsewhere"}), PREPARED) == []


def test_a_run_of_before_an_accelerator_had_costs_is_the_same_sweep() -> None:
    """Its ``run.json`` lacks the fields that have come since; what its device is called may stand for more today."""
    record = run_record()
    for name in ("launch_s", "copy_bytes_per_s", "scatter"):
        del record["workload"]["accelerator"][name]
    assert find_differences(record, PREPARED) == []
    today = replace(PREPARED, accelerator=replace(PREPARED.accelerator, launch_s=0.011, copy_bytes_per_s=24e9))
    assert find_differences(record, with_the_emulated_device_of(record, today)) == []
    faster = replace(PREPARED, accelerator=replace(PREPARED.accelerator, name="EMULATED 900/s"))
    assert find_differences(record, with_the_emulated_device_of(record, faster))


def test_a_run_without_a_readable_accelerator_is_another_sweep() -> None:
    assert find_differences(run_record(workload={}), PREPARED) == ["the accelerator is EMULATED 500/s, it was unknown"]


LOADER = ScriptLoader(
    identity=None, where=None, dataset="data.Photos", batch_size=16, torch="2.14.1", python="3.11.7", ranks=2
)
OWN = Candidate(backend="script", num_workers=2, prefetch_depth=2, batch_size=16, pin_memory=False)


def of_script(tmp_path: Path, **changes: Any) -> list[str]:
    first = replace(outcome(role="baseline"), candidate=OWN)
    record = {"script": {"command": [], "cwd": "/", "loader": to_dict(LOADER)}}
    resumed = read_resumed(folder_with(tmp_path, first, **record), {})
    own = changes.pop("own", OWN)
    return differences_of_script(resumed, replace(LOADER, **changes), own)


def test_the_same_script_differs_in_nothing(tmp_path: Path) -> None:
    assert of_script(tmp_path, where="train.py:9", cores=(1, 2)) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"torch": "2.8.0"}, "the script's torch is 2.8.0, it was 2.14.1"),
        ({"python": "3.12.0"}, "the script's Python is 3.12.0, it was 3.11.7"),
        ({"ranks": 1}, "the script's number of ranks is 1, it was 2"),
        ({"dataset": "data.Films"}, "the script's data set is data.Films, it was data.Photos"),
        ({"own": replace(OWN, num_workers=4)}, "the script has other settings now"),
    ],
)
def test_a_script_that_has_changed_is_another_sweep(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    assert of_script(tmp_path, **changes) == [expected]
