from __future__ import annotations

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.errors import UsageError
from pipetune.hook.profile import read_profile
from pipetune.measure.script.protocol import SITE, VARIABLE
from pipetune.records.script import LoaderIdentity, ScriptLoader, ScriptSummary
from pipetune.records.sweep import Candidate
from pipetune.sweeping import tuned
from pipetune.sweeping.tuned import TunedScript, environment_of, profile_of, read_tuned
from tests.fakes import outcome

IDENTITY = LoaderIdentity(
    file="/job/train.py", function="main", dataset="Images", sampler="RandomSampler", ordinal=0, position=(7, 4)
)
LOADER = ScriptLoader(
    identity=IDENTITY, where="/job/train.py:42", alone_there=True, torch="2.9", cores=(2, 4),
    settings={"num_workers": 2, "prefetch_factor": 2, "pin_memory": False, "in_order": True, "start_method": None},
)  # fmt: skip
SUMMARY = ScriptSummary(command=("python", "train.py"), cwd="/job", loader=LOADER)
CANDIDATE = Candidate(backend="script", num_workers=7, prefetch_depth=4, batch_size=16, loader="user")


def script(path: Path = Path("/runs/1"), **changes: Any) -> TunedScript:
    return TunedScript(
        path=path, summary=SUMMARY, loader=changes.pop("loader", LOADER), candidate=replace(CANDIDATE, **changes),
        refused=None,
    )  # fmt: skip


def settings(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = profile_of(script(**changes))["loaders"][0]["settings"]
    return found


def test_the_profile_has_the_settings_that_differ_from_torchs_and_those_that_were_varied() -> None:
    assert settings() == {"num_workers": 7, "prefetch_factor": 4, "pin_memory": False}
    assert settings(in_order=False, start_method="spawn", worker_cores="all", opencv_threads=0, decoder="crop") == {
        "num_workers": 7, "prefetch_factor": 4, "pin_memory": False, "in_order": False, "start_method": "spawn",
        "worker_cores": "all", "opencv_threads": 0, "decoder": "crop",
    }  # fmt: skip


def test_pillow_simd_is_told_to_the_hook_and_is_no_setting_of_the_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "pil_for_hook", lambda: {"folder": "/side", "tag": "x"})
    profile = profile_of(script(decoder="simd"))
    assert profile["pil"] == {"folder": "/side", "tag": "x"}
    assert "decoder" not in profile["loaders"][0]["settings"]
    assert "pil" not in profile_of(script())


def test_without_workers_there_is_no_depth() -> None:
    assert settings(num_workers=0, prefetch_depth=0)["prefetch_factor"] is None


def test_a_script_that_takes_batches_out_of_order_is_put_in_order_where_that_was_better() -> None:
    loader = replace(LOADER, settings={**LOADER.settings, "in_order": False})
    assert settings(loader=loader)["in_order"] is True


def test_the_checks_are_of_the_process_as_it_begins() -> None:
    assert profile_of(script())["checks"] == {"torch": "2.9", "cores": 4, "ranks": 1, "refused": None}
    assert profile_of(script(loader=replace(LOADER, cores=(0, 0))))["checks"]["cores"] is None


def test_the_environment_has_the_hook_and_what_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    environment = environment_of(script(Path("run")))
    kind, _, place = environment[VARIABLE].partition(":")
    assert kind == "tuned"
    assert place == str(tmp_path / "run" / "tuned.json")
    assert environment["PYTHONPATH"] == f"{SITE}{os.pathsep}/mine"
    (one,) = read_profile(place).loaders
    assert one.identity == IDENTITY
    assert one.alone_there
    assert one.settings["num_workers"] == 7
    assert environment.items() >= {(k, v) for k, v in os.environ.items() if k not in ("PYTHONPATH", VARIABLE)}
    monkeypatch.delenv("PYTHONPATH")
    assert environment_of(script(tmp_path / "run"))["PYTHONPATH"] == SITE


def test_a_folder_that_may_not_be_written_does_not_keep_a_script_from_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").touch()  # in which nothing can be made, not even by root
    place = Path(environment_of(script(tmp_path / "file"))[VARIABLE].partition(":")[2])
    assert place.parent.parent == tmp_path
    assert place.stat().st_mode & 0o077 == place.parent.stat().st_mode & 0o077 == 0
    assert read_profile(str(place)).loaders


def test_a_machine_on_which_nothing_is_applied_takes_nothing_away_from_another(tmp_path: Path) -> None:
    places = [
        Path(environment_of(replace(script(tmp_path), refused=refused))[VARIABLE].partition(":")[2])
        for refused in (None, "it was measured with 8 usable cores, and there are 4")
    ]
    assert [read_profile(str(place)).checks["refused"] for place in places] == [
        None, "it was measured with 8 usable cores, and there are 4",
    ]  # fmt: skip


def test_another_allocator_is_in_it(tmp_path: Path) -> None:
    plain, other = environment_of(script(tmp_path)), environment_of(script(tmp_path, allocator="glibc"))
    assert set(other) - set(plain)
    assert json.loads((tmp_path / "tuned.json").read_text())["loaders"]


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A run whose result can be changed; the machine has four cores."""
    result = SimpleNamespace(
        script=SUMMARY, recommended=replace(outcome(), candidate=CANDIDATE), usable_cores=4.0
    )  # fmt: skip
    monkeypatch.setattr(tuned, "load", lambda path: path)
    monkeypatch.setattr(tuned, "sweep_result", lambda run: result)
    monkeypatch.setattr(tuned, "describe_host", lambda: SimpleNamespace(cores_usable=4.0))
    return result


def test_the_recommendation_of_a_run_is_read(stored: SimpleNamespace) -> None:
    found = read_tuned(Path("/runs/1"))
    assert (found.path, found.summary, found.loader, found.candidate) == (Path("/runs/1"), SUMMARY, LOADER, CANDIDATE)
    assert found.refused is None


def test_on_a_machine_with_other_cores_it_is_refused_with_a_reason(stored: SimpleNamespace) -> None:
    stored.usable_cores = 16.0
    refused = read_tuned(Path("/runs/1")).refused
    assert refused is not None
    assert "16" in refused
    assert "4" in refused


@pytest.mark.parametrize(
    "changes",
    [
        {"script": None}, {"script": replace(SUMMARY, loader=None)},
        {"script": replace(SUMMARY, loader=replace(LOADER, identity=None))}, {"recommended": None},
        {"recommended": replace(outcome(), measurement=None)},
    ],
    ids=["of no script", "without a loader", "not recognisable", "nothing", "nothing measured"],
)  # fmt: skip
def test_a_run_with_nothing_to_apply_is_refused(changes: dict[str, Any], stored: SimpleNamespace) -> None:
    vars(stored).update(changes)
    with pytest.raises(UsageError, match="/runs/1") as caught:
        read_tuned(Path("/runs/1"))
    assert caught.value.hint


def test_a_script_s_python_may_start_workers_in_another_way_than_was_measured() -> None:
    newer = replace(
        LOADER, python="3.14.1", settings={**LOADER.settings, "num_workers": 0, "start_method": "forkserver"}
    )
    assert settings(loader=newer)["start_method"] == "fork"
    older = replace(newer, python="3.13.1", settings={**newer.settings, "start_method": "fork"})
    assert "start_method" not in settings(loader=older)


def test_workers_that_live_on_are_applied() -> None:
    assert settings(keep_workers=True)["persistent_workers"] is True
    assert "persistent_workers" not in settings()
