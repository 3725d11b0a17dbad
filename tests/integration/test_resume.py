"""A sweep that was killed goes on where it was: with the real command."""

from __future__ import annotations

import importlib.resources
import json
import os
from collections import Counter
from pathlib import Path

import jsonschema
import pytest

from tests.integration import commands
from tests.photo_set import small_photos

pytest.importorskip("torch", reason="the children measure torch loaders")


def resume(folder: Path, *options: str, cwd: Path | None = None, **environment: str) -> commands.Done:
    return commands.run([*commands.python(), "sweep", "--resume", str(folder), *options], cwd=cwd, **environment)


@pytest.mark.slow
def test_a_killed_sweep_goes_on_and_measures_nothing_twice(tmp_path: Path) -> None:
    photos = small_photos(tmp_path / "data" / "photos", copies=8)
    out = tmp_path / "run"
    command = commands.sweep_command("photos", out, "--workers", "0,1", "--grid")
    process = commands.start(command, cwd=tmp_path / "data")
    commands.wait_until(lambda: len(commands.outcomes_in(out)) >= 2 and commands.children(process.pid))
    below = commands.children(process.pid)
    process.kill()
    process.communicate(timeout=60)
    commands.wait_until(lambda: not commands.alive(below))
    with (out / "outcomes.jsonl").open("a") as file:
        file.write('{"schema": 1, "candi')  # the power went in the middle of a line
    known = commands.outcomes_in(out)

    done = resume(out, "--json", "-", cwd=tmp_path)  # the data set was named relative to another folder
    assert done.returncode == 0, done.stderr
    result = commands.result_of(done)
    text = (importlib.resources.files("pipetune.report") / "sweep.schema.json").read_text()
    jsonschema.Draft202012Validator(json.loads(text)).validate(result)
    assert result["reused"] == len(known)
    rows = commands.outcomes_in(out)
    assert rows[: len(known)] == known
    attempts = Counter((row["role"] == "ceiling", json.dumps(row["candidate"]), row["attempt"]) for row in rows)
    assert set(attempts.values()) == {1}
    assert {row["key"] for row in result["outcomes"]} == {f"pillow-w{n}-p{2 if n else 0}-b4" for n in (0, 1)}

    again = resume(out, "--dataset", str(photos))  # written otherwise, but the same
    assert again.returncode == 0, again.stderr
    assert commands.outcomes_in(out) == rows
    assert "pillow" in again.stdout

    for options, expected in (["--batch-size", "5"], "--batch-size 5"), (["--device", "cpu"], "--device cpu"):
        refused = resume(out, *options)
        assert refused.returncode == 2
        assert f"{expected} differs from the sweep in" in refused.stderr
    with next(photos.glob("*/*-0.jpg")).open("ab") as file:
        file.write(b"\0")
    refused = resume(out)
    assert refused.returncode == 2
    assert "the images have changed" in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"host": {"cpu_model": "Z80", "cores_usable": 96.0, "python": "3.1", "versions": {}}}, "it was Z80"),
        ({"workload": {"accelerator": {"kind": "cuda", "name": "CUDA device 0"}}}, "it was CUDA device 0"),
        (
            {"workload": {"accelerator": {"name": "CUDA device 0"}}},
            "workload.accelerator was left out: kind is missing",
        ),
        ({"options": 5}, "run.json: options was left out: expected object, got int"),
        ({"options": {}}, "run.json holds no sweep's options"),
        ({"host": None}, "run.json: host was left out: expected object, got null"),
        ({"kind": "watch"}, "cannot be resumed"),
    ],
)
def test_another_host_accelerator_or_file_is_refused(change: dict[str, object], expected: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    photos = small_photos(tmp_path / "photos", copies=2)
    process = commands.start(commands.sweep_command(photos, out))
    commands.wait_until((out / "run.json").exists)
    process.terminate()
    process.communicate(timeout=60)
    record = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps({**record, **change}))
    refused = resume(out)
    assert refused.returncode == 2, refused.stderr
    assert expected in refused.stderr
    assert "Traceback" not in refused.stderr
    assert os.listdir(out)
