from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner, Result

from pipetune.cli.app import app
from pipetune.errors import PipetuneError, UsageError
from pipetune.measure.conditions import Conditions
from pipetune.records.batch_size import BatchPoint, BatchSizes
from pipetune.records.sweep import AcceleratorSpec, Workload
from pipetune.report.schemas import batch_size_schema
from pipetune.runs.load import load
from pipetune.scaling import batch_run, batch_script
from pipetune.scaling.batch_folder import read_batch_sizes
from pipetune.scaling.batch_script import ScriptOptions
from pipetune.scaling.batch_search import Measured
from pipetune.store.folder import RunFolder
from tests.unit.report.test_batch_size_text import FOUND
from tests.unit.scaling.test_batch_size import WORLDS, World


@pytest.fixture(autouse=True)
def _place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # where the run folder is made


def batch_size(*words: object) -> Result:
    result = CliRunner().invoke(app, ["batch-size", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A device in place of a real one."""
    made = WORLDS["launching takes long"]()
    made.launch_s = 0.005
    spec = AcceleratorSpec(kind="cuda", name="CUDA 0", device_index=0)

    def predict(*_: Any, **__: Any) -> tuple[int, int, tuple[float, float]]:
        return round(made.total), round(made.total), (made.fixed, made.each)

    monkeypatch.setattr(batch_run, "_check", lambda chosen: spec)
    monkeypatch.setattr(batch_run, "_predict", predict)
    monkeypatch.setattr(batch_run, "_conditions", lambda *_: None)
    monkeypatch.setattr(batch_run, "_measured", lambda size, *_, **__: Measured(point=made.measure(size)))
    return made


def test_the_recommended_size_and_the_largest(world: World, tmp_path: Path) -> None:
    result = batch_size("--model", "resnet50", "--json", tmp_path / "x.json")
    assert result.exit_code == 0
    stored = json.loads((tmp_path / "x.json").read_text())
    jsonschema.validate(stored, batch_size_schema())
    found = stored["batch_sizes"]
    assert f"Recommended: batches of {found['knee']}, the smallest measured with at least 97 %" in result.output
    assert f"is {found['largest']}; fake tensors alone said" in result.output
    assert "in /dev/shm" in result.output
    assert found["knee"] < found["largest"]


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [(KeyboardInterrupt(), 130, "It did not come to its end: interrupted."),
     (PipetuneError("the memory was not predicted"), 0, "not measured with --checkpointing: the memory was not")],
)  # fmt: skip
def test_what_was_measured_stays_where_checkpointing_is_not_predicted(
    world: World, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, text: str
) -> None:
    plain = batch_run._predict

    def predict(*arguments: Any, checkpointing: bool = False) -> Any:
        if checkpointing:
            raise error
        return plain(*arguments)

    monkeypatch.setattr(batch_run, "_predict", predict)
    result = batch_size("--checkpointing")
    assert result.exit_code == code, result.output
    assert text in " ".join(result.output.split())
    assert "Recommended: batches of" in result.output


def test_an_interrupted_search_says_what_it_has(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def interrupted(size: int, *_: object, **__: object) -> Any:
        sizes.append(size)
        return Measured(point=world.measure(size), stopped=KeyboardInterrupt() if len(sizes) == 2 else None)

    monkeypatch.setattr(batch_run, "_measured", interrupted)
    result = batch_size()
    assert len(sizes) == 2, "it goes no further"
    assert result.exit_code == 130
    assert "It did not come to its end: interrupted." in result.output
    assert "Recommended: batches of" in result.output
    assert "The largest measured that fits" in result.output


def test_a_failure_ends_it_with_what_it_has(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(size: int, *_: object, **__: object) -> Any:
        if size > 300:
            return Measured(point=BatchPoint(batch_size=size, samples_per_s=None, peak_bytes=None, failure="hung; x"))
        return Measured(point=world.measure(size), notes=("no GPU readings",))

    monkeypatch.setattr(batch_run, "_measured", broken)
    result = batch_size()
    assert result.exit_code == 1
    assert "It did not come to its end: hung; x." in result.output
    assert "! no GPU readings" in result.output


def test_a_model_that_does_not_fit_is_said_before_anything_is_measured(world: World) -> None:
    world.fixed, world.total = 3e9, 2e9
    with pytest.raises(PipetuneError, match=r"needs 2.8 GiB for one image, 1.7 GiB may be used"):
        batch_size()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--device", "emulated:a100"), "has no memory of its own"),
        (("--device", "cpu"), "has no memory of its own"),
        (("--device", "cuda:99"), "no 'cuda:99'"),
        (("--memory", "1.5"), "--memory 1.5"),
        (("--image-size", "2"), "--image-size 2"),
        (("--precision", "fp8"), "--precision fp8"),
        (("--seconds", "0"), "--seconds 0"),
        (("--model", "resnet5"), "no classifier named 'resnet5'"),
    ],
)
def test_what_cannot_be_used_is_named(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        batch_size(*words)


def test_checkpointing_is_searched_after_the_rest(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sizes: list[tuple[int, bool]] = []

    def measured(size: int, conditions: Any, **_: object) -> Any:
        sizes.append((size, conditions.workload.checkpointing))
        return Measured(point=replace(world.measure(size), checkpointing=conditions.workload.checkpointing))

    workload = Workload(
        dataset="x", index_path="", accelerator=AcceleratorSpec(kind="cuda", name="CUDA 0"), model="resnet50",
        image_size=224, precision="fp32", seconds=1, warmup_limit_s=1, cache="warm", seed=0,
    )  # fmt: skip
    conditions = Conditions(workload=workload, paths=(), cores=frozenset({0}))
    monkeypatch.setattr(batch_run, "_conditions", lambda *_: conditions)
    monkeypatch.setattr(batch_run, "_measured", measured)
    result = batch_size("--checkpointing", "--json", tmp_path / "x.json")
    assert result.exit_code == 0
    found = json.loads((tmp_path / "x.json").read_text())
    jsonschema.validate(found, batch_size_schema())
    kinds = [kind for _, kind in sizes]
    assert kinds == sorted(kinds)
    assert 6 < len(kinds) <= 12
    assert found["batch_sizes"]["checkpointed_largest"] == found["batch_sizes"]["largest"]
    assert "With activation checkpointing (ckpt)" in result.output


def test_every_batch_size_is_kept_when_it_was_measured(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []

    def measured(size: int, *_: object, **__: object) -> Any:
        stored = [load(path) for path in Path("pipetune-runs").glob("*")] if Path("pipetune-runs").exists() else []
        kept.append(sum(len(read_batch_sizes(run).points) for run in stored))
        assert all(read_batch_sizes(run).stopped == "it was killed" for run in stored)
        return Measured(point=world.measure(size))

    monkeypatch.setattr(batch_run, "_measured", measured)
    result = batch_size("--json", "found.json")
    assert kept == list(range(len(kept)))
    (path,) = Path("pipetune-runs").glob("*-batch-size-resnet50")
    run = load(path)
    assert f"run folder: {path}" in result.output
    assert json.loads((path / "result.json").read_text()) == json.loads(Path("found.json").read_text())
    assert (run.kind, run.problems) == ("batch-size", ())
    assert run.info["options"]["model"] == "resnet50"
    assert read_batch_sizes(run).stopped is None
    assert len(run.frame()) == len(kept)


def test_a_disk_that_refuses_costs_no_measurement(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PipetuneError("cannot write result.json: No space left on device")

    monkeypatch.setattr(RunFolder, "write_json", refuse)
    result = CliRunner().invoke(app, ["batch-size", "--json", "found.json"])
    assert "Recommended: batches of" in result.output
    assert "No space left on device" in str(result.exception)
    assert json.loads(Path("found.json").read_text())["batch_sizes"]["stopped"] is None


def test_a_place_that_is_taken_is_refused_before_anything_is_measured(world: World) -> None:
    Path("taken").mkdir()
    Path("taken", "file").touch()
    with pytest.raises(UsageError, match="--out taken is not empty"):
        batch_size("--out", "taken")


#: A search that is ended by SIGKILL while it measures its third batch size.
KILLED = """
import os, sys
from pipetune.cli.app import app
from pipetune.records.sweep import AcceleratorSpec
from pipetune.scaling import batch_run
from pipetune.scaling.batch_search import Measured
from tests.unit.scaling.test_batch_size import WORLDS

world, measured = WORLDS["launching takes long"](), []
batch_run._check = lambda chosen: AcceleratorSpec(kind="cuda", name="CUDA 0", device_index=0)
batch_run._predict = lambda *_, **__: (round(world.total), round(world.total), (world.fixed, world.each))
batch_run._conditions = lambda *_: None
def measure(size, *_, **__):
    measured.append(size)
    if len(measured) == 3:
        os.kill(os.getpid(), 9)
    return Measured(point=world.measure(size))
batch_run._measured = measure
app(["batch-size", "--out", "run"])
"""


def test_what_a_killed_search_has_measured_is_reported() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", KILLED], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    assert len(read_batch_sizes(load("run")).points) == 2
    for more in ((), ("--markdown",)):
        reported = CliRunner().invoke(app, ["report", "run", *more])
        assert reported.exit_code == 0, reported.output
        assert "It did not come to its end: it was killed." in " ".join(reported.output.split())
        assert "Recommended: batches of" in reported.output
    with pytest.raises(UsageError, match="of which there is no page"):
        CliRunner().invoke(app, ["report", "run", "--html", "x.html"], catch_exceptions=False)


def test_a_script_is_measured_in_its_own_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ScriptOptions] = []

    def find(options: ScriptOptions, *_: object) -> BatchSizes:
        asked.append(options)
        return FOUND

    monkeypatch.setattr(batch_script, "find_script_batch_size", find)
    result = batch_size("--memory", "0.5", "--", "python", "train.py", "--memory", "7")
    assert result.exit_code == 0
    assert asked == [ScriptOptions(command=("python", "train.py", "--memory", "7"), memory=0.5)]


def test_options_of_models_do_not_go_with_a_script() -> None:
    with pytest.raises(UsageError, match="--image-size cannot be combined with a script"):
        batch_size("--image-size", "64", "--", "python", "train.py")
