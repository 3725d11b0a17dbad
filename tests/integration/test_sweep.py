"""The real command on real photographs with real child processes."""

from __future__ import annotations

import importlib.resources
import json
import os
import shutil
import signal
import tarfile
from pathlib import Path

import jsonschema
import pytest

from pipetune.store.columns import load_columns
from pipetune.store.folder import load_run
from tests.integration import commands
from tests.photo_set import PHOTOS

pytest.importorskip("torch", reason="the children measure torch loaders")


def check_schema(data: object) -> None:
    text = (importlib.resources.files("pipetune.report") / "sweep.schema.json").read_text()
    jsonschema.Draft202012Validator(json.loads(text)).validate(data)


def test_a_slow_accelerator_is_fed_by_the_default(half: Path) -> None:
    result = json.loads((half / "result.json").read_text())
    check_schema(result)
    assert result["status"] == "target_met"
    busy_frac = 1 - result["ceiling"]["accelerator_idle_frac"]
    assert result["ceiling_samples_per_s"] == pytest.approx(100 * busy_frac, rel=0.05)
    assert result["baseline"]["goodput"] >= result["target"]
    assert result["accelerator"]["name"].startswith("EMULATED")
    for row in result["outcomes"]:
        low, high = row["ci95"]
        assert low < row["samples_per_s"] < high
        assert row["time_to_first_batch_s"] > 0
        assert row["cache_resident_frac"] == pytest.approx(1.0)
        assert row["sampler_readings"] > 0
        assert row["cores_used"] >= 0  # counted in ticks of 10 ms, of which this phase may have none more than the step
        assert row["pss_bytes"] > 10**7
    output = half.with_name("stdout").read_text()
    assert "EMULATED" in output
    assert "Recommended" in output


def test_what_was_measured_lies_in_the_run_folder(half: Path) -> None:
    stored = load_run(half)
    assert stored.problems == ()
    assert stored.run["kind"] == "sweep"
    assert next(outcome.role for outcome in stored.outcomes) == "ceiling"
    for outcome in stored.outcomes:
        assert outcome.measurement is not None
        key = "ceiling" if outcome.role == "ceiling" else outcome.candidate.key
        if outcome.attempt > 1:
            key += f"-again{outcome.attempt}"
        timeline = load_columns(half, key)
        assert timeline.problems == ()
        assert len(timeline.steps["t_end_ns"]) >= outcome.measurement.steps
        assert len(timeline.readings["t_ns"]) >= outcome.measurement.sampler_readings
    written = json.loads(half.with_name("result.json").read_text())
    assert written == json.loads((half / "result.json").read_text()) | {"seconds": written["seconds"]}


def test_an_accelerator_that_no_loader_can_feed(starved: Path) -> None:
    result = json.loads((starved / "run" / "result.json").read_text())
    check_schema(result)
    assert result["status"] == "target_missed"
    assert result["recommended"]["goodput"] < 0.1
    assert result["recommended"]["data_wait_frac"] > 0.5
    assert result["recommended"]["cores_used"] > 0.1  # it decodes all the time
    output = (starved / "stderr").read_text()
    assert "EMULATED" in output
    assert "No candidate reaches the target" in output
    assert "What would help" in output


@pytest.mark.slow
def test_the_recommendation_and_the_default_are_measured_side_by_side(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = commands.sweep_command(
        photos, out, "--backends", "opencv", "--workers", "1", "--blocks", "1", "--device", "emulated:60", "--json", "-"
    )
    done = commands.run(command)
    assert done.returncode == 0, done.stderr
    result = commands.result_of(done)
    check_schema(result)
    together = [row for row in result["outcomes"] if row["block"] == 1 and row["attempt"] == 1]
    assert {row["key"] for row in together} == {"opencv-w1-p2-b4", "pillow-w0-p0-b4"}
    assert all(row["why"] for row in result["outcomes"])
    assert {path.stem for path in (out / "timelines").iterdir()} >= {"opencv-w1-p2-b4", "opencv-w1-p2-b4-block1"}
    # Killed after the last line but one, it goes on with what is missing of the block.
    lines = (out / "outcomes.jsonl").read_text().splitlines(keepends=True)
    (out / "outcomes.jsonl").write_text("".join(lines[:-1]))
    (out / "result.json").unlink()
    again = commands.run([*commands.python(), "sweep", "--resume", str(out), "--json", "-"])
    assert again.returncode == 0, again.stderr
    keys = [(row["key"], row["block"], row["attempt"]) for row in commands.result_of(again)["outcomes"]]
    assert len(keys) == len(set(keys))
    assert {key for key, block, _ in keys if block == 1} == {"opencv-w1-p2-b4", "pillow-w0-p0-b4"}


@pytest.mark.slow
def test_settings_are_tried_on_the_members_of_a_shard(photos: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "photos.tar", "w") as tar:
        for path in sorted(photos.glob("*/*.jpg")):
            member = tarfile.TarInfo(str(path.relative_to(photos)))
            member.size = path.stat().st_size
            with open(path, "rb") as file:
                tar.addfile(member, file)
    command = commands.sweep_command(
        tmp_path / "photos.tar", tmp_path / "run", "--device", "emulated:300", "--batch-size", "16", "--workers", "1",
        "--backends", "opencv", "--vary", "worker_kind", "--fix", "start_method=spawn",
        "--fix", "transfer=uint8", "--json", "-",
    )  # fmt: skip
    done = commands.run(command)
    assert done.returncode == 0, done.stderr
    result = commands.result_of(done)
    check_schema(result)
    assert commands.failures(result) == {}
    assert result["dataset"]["shards"] == 1
    assert result["dataset"]["classes"] == 2
    tried = {
        (row["candidate"]["worker_kind"], row["candidate"]["transfer"], row["candidate"]["start_method"])
        for row in result["outcomes"]
        if row["role"] == "candidate"
    }
    assert {("process", "uint8", "spawn"), ("thread", "uint8", "fork")} <= tried
    assert result["recommended"]["deviation"]["psnr_db"] == 25
    assert "pipetune.open_loader(candidate, ROOT" in done.stderr


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_stopped_in_the_middle_it_keeps_what_it_has_and_leaves_nobody_behind(
    number: signal.Signals, photos: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    # So many candidates that it is far from its end, however late the signal comes.
    many = ("--grid", "--workers", "0,1,2,3,4", "--prefetch", "2,3,4,5", "--seconds", "0.8")
    process = commands.start(commands.sweep_command(photos, out, *many, "--json", "-"))
    commands.wait_until(lambda: len(commands.outcomes_in(out)) >= 2)
    commands.wait_until(lambda: commands.children(process.pid))
    below = commands.children(process.pid)
    os.kill(process.pid, number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    result = json.loads(stdout)
    check_schema(result)
    assert result["status"] == "interrupted"
    assert len(result["outcomes"]) == len(commands.outcomes_in(out)) - 1
    assert json.loads((out / "result.json").read_text())["status"] == "interrupted"
    assert "INTERRUPTED" in stderr
    assert "Traceback" not in stderr
    commands.wait_until(lambda: not commands.alive(below))


def test_when_the_parent_is_killed_nobody_lives_on(half: Path, tmp_path: Path) -> None:
    out = shutil.copytree(half, tmp_path / "run")
    process = commands.start([*commands.python(), "sweep", "--resume", str(out), "--workers", "2"])
    # The child and its two loader workers.
    commands.wait_until(lambda: len(commands.children(process.pid)) >= 3)
    below = commands.children(process.pid)
    process.kill()
    process.communicate(timeout=60)
    commands.wait_until(lambda: not commands.alive(below))
    assert load_run(out).outcomes


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--dataset", "/no/such/folder"], "/no/such/folder"),
        (["--target", "1.5"], "--target 1.5"),
        (["--backends", "opncv"], "did you mean opencv"),
        (["--workers", "a"], "--workers 'a'"),
        (["--workers", "0", "--backends", "dali"], "leaves no candidate"),
        (["--device", "cuda:99"], "cuda:99"),
        (["--device", "emulated:h100-mlperv"], "emulated:h100-mlperf"),
        (["--device", "emulated:v100", "--model", "vgg16"], "resnet50 only"),
        (["--target-metric", "nvml"], "needs a GPU"),
        (["--budget", "soon"], "'soon' is not a valid duration"),
        (["--batch-size", "0"], "--batch-size 0"),
        (["--device", "cpu", "--model", "resnet5000"], "did you mean resnet50"),
    ],
)
def test_mistakes_are_reported_in_one_line(options: list[str], expected: str, tmp_path: Path) -> None:
    done = commands.run(commands.sweep_command(PHOTOS, tmp_path / "run", *options))
    assert done.returncode == 2, done.stderr
    assert expected in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
