from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner, Result

import pipetune
from pipetune.answering import answer as answering
from pipetune.cli.app import app
from pipetune.errors import UsageError
from pipetune.report.schemas import schedule_schema
from tests.unit.answering.test_base import explained
from tests.unit.scaling.test_schedule import halved


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(answering, "size_with", halved)
    return explained(tmp_path / "run")


def schedule(*words: object, columns: int = 160) -> Result:
    result = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, ["schedule", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_phases_the_packs_and_the_whole(run: Path, tmp_path: Path) -> None:
    result = schedule(run, "--image-sizes", "96:1,128:2", "--demand", "2600,2000", "--price", "$3.6/h", "--json",
                      tmp_path / "x.json")  # fmt: skip
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == "resnet50 on photos, EMULATED 5,000/s; pillow-w2-p2-b64"
    for text in ("96 px", "128 px", "2,600/s", "255 MB/s", "images packed at 160 px"):
        assert text in result.output
    assert any("pipetune pack /photos OUT --" in line for line in lines)
    assert lines[-1].startswith("The whole schedule takes ")
    written = json.loads((tmp_path / "x.json").read_text())
    jsonschema.validate(written, schedule_schema())
    assert written["schedule"]["phases"][0]["image_size"] == 96
    library = pipetune.schedule(run, {96: 1, 128: 2}, demand=(2600, 2000), price=3.6)
    assert written["schedule"]["seconds"] == pytest.approx(library.seconds)
    assert pipetune.schedule(str(run), "96:1,128:2", demand=(2600, 2000), price="$3.6/h").cost == library.cost


def test_what_nothing_serves_is_said(run: Path) -> None:
    result = schedule(run, "--image-sizes", "128:18,224:22", "--demand", "18000,5800", "--sizes", "none")
    assert (
        "Nothing that was considered keeps 90 % of the accelerators busy with crops of 128 px, 224 px." in result.output
    )
    assert "not enough: " in result.output
    assert "pipetune pack" not in result.output


def test_one_setup_is_said(run: Path) -> None:
    result = schedule(run, "--image-sizes", "128:18,224:22", "--demand", "300,200")
    assert "One setup is enough for all phases: 1 worker." in result.output
    narrow = schedule(run, "--image-sizes", "128:18,224:22", "--demand", "300,200", columns=80)
    assert "29 MB/s" in narrow.output
    assert max(map(len, narrow.output.splitlines()[:12])) <= 80


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--image-sizes", "128"), "--image-sizes '128'"),
        (("--image-sizes", "128:1", "--demand", "fast"), "--demand 'fast'"),
        (("--image-sizes", "128:1", "--price", "3"), "--price '3'"),
        (("--image-sizes", "128:1", "--sizes", "x"), "'x' is not a list of integers"),
    ],
)
def test_what_cannot_be_used_is_named(run: Path, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        schedule(run, *words)


def test_arguments_are_what_the_options_are(run: Path) -> None:
    one, other = pipetune.schedule(run, {128: 1}, demand=500, workers=2, sizes="none"), pipetune.schedule(
        run, "128:1", demand="500", workers="2", sizes=()
    )  # fmt: skip
    assert one == other
    with pytest.raises(UsageError, match="not int"):
        pipetune.schedule(3, "128:1")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--image-sizes '128:x'"):
        pipetune.schedule(run, {128: "x"})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="neither a mapping nor a text"):
        pipetune.schedule(run, [128, 224])  # type: ignore[arg-type]
