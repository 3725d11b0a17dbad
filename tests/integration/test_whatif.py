"""The real command: what it answers of real runs, what it measures, what it says to bad input, what is kept."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import pipetune
from pipetune.report.schemas import whatif_schema
from tests.integration.commands import Done, outcomes_in, python, run, start, wait_until
from tests.photo_set import enlarge

pytest.importorskip("torch", reason="the children measure torch loaders")

SHORT = ("--seconds", "0.5", "--blocks", "1")


def pipetune_(*words: object, cwd: Path) -> Done:
    return run([*python(), *map(str, words)], cwd=cwd, COLUMNS="160")


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    photos = enlarge(tmp_path_factory.mktemp("photos"), copies=20)
    done = pipetune_("explain", "--dataset", photos, "--candidate", "pillow-w1-p2-b4", *SHORT, "--image-size", "32",
                     "--stages", "warm", "--device", "emulated:5000", "--out", folder / "run", cwd=folder)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.mark.slow
def test_questions_are_answered_without_measuring(explained: Path, tmp_path: Path) -> None:
    done = pipetune_("whatif", explained, "--cores", "2,8", "--device", "v100", "--json", tmp_path / "x.json", "--html",
                     tmp_path / "x.html", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    stored = json.loads((tmp_path / "x.json").read_text())
    jsonschema.validate(stored, whatif_schema())
    rates = [one["prediction"]["samples_per_s"] for one in stored["whatif"]["answers"]]
    assert 0 < rates[0] < rates[1] <= 1200 * (224 / 32) ** 2
    for words in ("2 cores, accelerator v100", "8 cores, accelerator v100", "sets the pace", "would reach 90 %"):
        assert words in done.stdout
    assert "<svg" in (tmp_path / "x.html").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.html", "x.json"]


@pytest.mark.slow
def test_without_a_question_it_says_what_would_reach_the_target(explained: Path, tmp_path: Path) -> None:
    done = pipetune_("whatif", explained, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "now, as measured" in done.stdout
    assert "of the accelerator's rate" in done.stdout


@pytest.mark.slow
def test_a_check_measures_what_was_predicted_and_is_kept(explained: Path, tmp_path: Path) -> None:
    done = pipetune_("whatif", explained, "--workers", "0,2", "--device", "emulated:60", *SHORT, "--check", "--out",
                     tmp_path / "checked", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Measured:" in done.stdout
    assert done.stdout.count(": predicted ") == 2
    result: dict[str, Any] = json.loads((tmp_path / "checked" / "result.json").read_text())
    jsonschema.validate(result, whatif_schema())
    checks = [one["check"] for one in result["whatif"]["answers"]]
    assert all(20 < check["samples_per_s"] < 70 for check in checks)
    assert {row["part"] for row in outcomes_in(tmp_path / "checked")} == {
        "as it was measured", "no workers, accelerator emulated:60", "2 workers, accelerator emulated:60",
    }  # fmt: skip
    shown = pipetune_("report", tmp_path / "checked", "--html", tmp_path / "page.html", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "Measured" in (tmp_path / "page.html").read_text()
    again = pipetune_("report", tmp_path / "checked", cwd=tmp_path)
    assert "Measured:" in again.stdout
    text = pipetune_("report", tmp_path / "checked", "--markdown", cwd=tmp_path)
    assert "| now, as measured |" in text.stdout
    assert len(pipetune.load(tmp_path / "checked").frame()) == 3


@pytest.mark.slow
def test_smaller_images_and_one_core_are_checked_for_real(explained: Path, tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    done = pipetune_("whatif", explained, "--shorter-edge", "64", "--cores", "1", *SHORT, "--check", "--out",
                     tmp_path / "checked", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "1 core, images with a shorter edge of 64 px: predicted" in done.stdout
    assert os.sched_getaffinity(0) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [(("--cores", "many"), "--cores 'many'"), (("--disk", "fast"), "--disk 'fast'"), (("--check",), "no question"),
     (("--target", "2"), "--target 2"), (("--out", "x", "--cores", "2"), "--out x has no effect"),
     (("--candidate", "x"), "--candidate x is for a sweep"), (("--memory", "1GB"), "less than the training processes")],
)  # fmt: skip
def test_bad_input_is_one_line(explained: Path, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = pipetune_("whatif", explained, *words, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_no_run_is_one_line(tmp_path: Path) -> None:
    done = pipetune_("whatif", tmp_path / "gone", cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured(explained: Path, tmp_path: Path) -> None:
    out = tmp_path / "checked"
    process = start(
        [*python(), "whatif", str(explained), "--workers", "0,2,3", "--check", "--seconds", "2", "--out", str(out)],
        cwd=tmp_path,
    )  # fmt: skip
    wait_until(lambda: outcomes_in(out))
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "INTERRUPTED" in stdout
    result = json.loads((out / "result.json").read_text())
    assert result["status"] == "interrupted"
    assert outcomes_in(out)


@pytest.mark.slow
def test_a_sweep_knows_its_own_error(tmp_path: Path) -> None:
    photos = enlarge(tmp_path / "photos", copies=10)
    done = pipetune_("sweep", "--dataset", photos, "--backends", "pillow,opencv", "--workers", "0,1,2", "--prefetch",
                     "2", "--image-size", "32", "--batch-size", "4", "--seconds", "0.5", "--device", "emulated:20000",
                     "--grid", "--vary", "none", "--progress", "none", "--out", tmp_path / "run",
                     cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [row for row in outcomes_in(tmp_path / "run") if row["role"] == "candidate"]
    predicted = [row["predicted"] for row in rows if row.get("predicted")]
    assert len(predicted) >= 3
    assert all(0 < one["interval90"][0] <= one["samples_per_s"] <= one["interval90"][1] for one in predicted)
    found = pipetune.whatif(tmp_path / "run", workers=[1, 2])
    assert found.own_errors
    assert len(found.answers) == 2
