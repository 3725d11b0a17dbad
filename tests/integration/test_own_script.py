"""Sweeps of training scripts that know nothing of pipetune, and training with what was found."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pipetune.install.find import find_pillow_simd
from tests.integration import commands
from tests.integration.own_scripts import EASY, files_in, python, result_of, sweep


@pytest.mark.slow
def test_a_script_is_tuned_and_trained_with_what_was_found(place: Path, photos: Path, nobody_is_left: None) -> None:
    done = sweep(
        place, python("classic.py", str(photos), "--epochs", "50", "--workers", "0", *EASY), "--workers", "0,1,2",
        "--effort", "quick",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = result_of(place)
    about = {name: result["workload"][name] for name in ("model", "image_size_px", "cache", "batch_size")}
    assert about == {"model": "the script's own", "image_size_px": 0, "cache": "as it is", "batch_size": 16}
    loader = result["script"]["loader"]
    assert loader["identity"]["function"] == "main"
    assert loader["dataset"].endswith("Numbered")
    assert loader["written"]["num_workers"] == "args.workers"
    assert result["script"]["option"]["words"][0] == "--workers"
    assert result["baseline"]["candidate"]["num_workers"] == 0
    assert result["ceiling"] is not None
    written = result["script"]["written"]
    checkpoint = str(place / "checkpoint.pth")
    assert (written["mechanism"], written["created"], written["changed"]) == ("overlay", [checkpoint], [])
    assert files_in(place) == ["checkpoint.pth"], "of the epochs that have ended, and nothing else"

    tuned = subprocess.run(
        [*commands.python(), "run", "--tuned", "run", "--",
         *python("classic.py", str(photos), "--epochs", "2", "--step-ms", "0", "--seen", "seen.txt")],
        cwd=place, env=dict(os.environ), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert tuned.returncode == 0, tuned.stderr
    epochs = [sorted(map(int, line.split())) for line in (place / "seen.txt").read_text().splitlines()]
    assert epochs == [list(range(60))] * 2, "each sample once per epoch"
    assert (place / "checkpoint.pth").exists(), "it is a training, and not measured"
    if result["recommended"]["role"] != "baseline":
        assert "classic.py" in tuned.stderr
        assert f"num_workers 0 -> {result['recommended']['candidate']['num_workers']}" in tuned.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "needs"),
    [
        ("prefetcher.py", None),
        ("endless.py", None),
        ("with_lightning.py", "lightning"),
        ("with_accelerate.py", "accelerate"),
        ("with_trainer.py", "transformers"),
    ],
)
def test_shapes_of_scripts(place: Path, photos: Path, nobody_is_left: None, script: str, needs: str | None) -> None:
    if needs is not None:
        pytest.importorskip(needs, reason=f"the script is of {needs}")
    command = python(script, "--data", str(photos), "--epochs", "1000", "--workers", "1", *EASY)
    done = sweep(place, command, "--workers", "1,2", "--effort", "quick")
    assert done.returncode == 0, done.stderr + (place / "run" / "script.log").read_text()[-2000:]
    result = result_of(place)
    assert result["baseline"]["candidate"]["num_workers"] == 1
    assert result["script"]["loader"]["batch_size"] == 16
    paths = [place / name for name in files_in(place)]
    new = {str(path) for path in paths if path.is_file()}
    assert new == set(result["script"]["written"]["created"]), "epochs end, and all that is new is told"


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("--batches", "2"),
        ("--batches", "19"),
        ("--batches", "19", "--persistent"),
        ("--batches", "19", "--look"),
        ("--batches", "19", "--workers", "0"),
        ("--batches", "24", "--epochs", "2"),
    ],
    ids=" ".join,
)
def test_epochs_are_as_long_as_the_script_relies_on(
    place: Path, nobody_is_left: None, options: tuple[str, ...]
) -> None:
    """The script fails where an epoch has more or fewer batches than ``len(loader)``."""
    done = sweep(place, python("by_length.py", *options), "--workers", "1,2", "--effort", "quick", "--blocks", "0")
    log = (place / "run" / "script.log").read_text()
    assert done.returncode == 0, done.stderr + log[-2000:]
    assert "instead of" not in log
    failed = [row["failure"]["message"] for row in result_of(place)["outcomes"] if "failure" in row]
    # Workers that live on would begin the epoch anew with each batch that is taken beside the loop.
    assert all("--look" in options and "beside its loop" in message for message in failed), done.stderr


@pytest.mark.slow
def test_a_script_with_too_few_batches_is_told_how_many_it_needs(place: Path, nobody_is_left: None) -> None:
    done = sweep(place, python("by_length.py", "--batches", "2", "--epochs", "1"))
    assert done.returncode == 1
    assert "the script ended after 2 batches; at least 5 are needed: use more data or --epochs" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "mp.spawn"])
def test_ranks(place: Path, photos: Path, nobody_is_left: None, launcher: str) -> None:
    command = python("ranks.py", "--data", str(photos), "--epochs", "1000", *EASY)
    if launcher == "torchrun":
        command[1:1] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    else:
        command += ["--spawn", "2"]
    done = sweep(place, command, "--workers", "0,1", "--effort", "quick")
    assert done.returncode == 0, done.stderr + (place / "run" / "script.log").read_text()[-2000:]
    result = result_of(place)
    assert result["script"]["loader"]["ranks"] == 2
    assert result["baseline"]["samples_per_s"] > 0


@pytest.mark.slow
def test_a_dali_pipeline_gets_its_settings_in_fresh_starts(place: Path, photos: Path, nobody_is_left: None) -> None:
    pytest.importorskip("nvidia.dali", reason="the script is of DALI")
    command = python("with_dali.py", "--data", str(photos), "--epochs", "1000", "--step-ms", "1")
    done = sweep(place, command, "--workers", "1,2", "--prefetch", "2")
    assert done.returncode == 0, done.stderr + (place / "run" / "script.log").read_text()[-2000:]
    result = result_of(place)
    loader = result["script"]["loader"]
    assert loader["dataset"] == "a DALI pipeline"
    assert loader["written"]["num_workers"] == "args.workers"
    assert result["script"]["option"]["words"][0] == "--workers"
    two = [row for row in result["outcomes"] if row["candidate"]["num_workers"] == 2]
    assert two
    assert all("failure" not in row for row in two)
    assert files_in(place) == ["checkpoint.pth"], "epochs end"
    assert result["script"]["written"]["created"] == [str(place / "checkpoint.pth")]
    tuned = subprocess.run(
        [*commands.python(), "run", "--tuned", "run", "--",
         *python("with_dali.py", "--data", str(photos), "--epochs", "1", "--step-ms", "0")],
        cwd=place, env=dict(os.environ), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert tuned.returncode == 0, tuned.stderr
    if result["recommended"]["candidate"]["num_workers"] == 2:
        assert "num_threads 1 -> 2" in tuned.stderr


@pytest.mark.slow
def test_an_ffcv_loader_gets_its_settings_in_fresh_starts(place: Path, photos: Path, nobody_is_left: None) -> None:
    pytest.importorskip("ffcv", reason="the script is of FFCV")
    command = python(
        "with_ffcv.py", "--data", str(photos), "--file", "{scratch}/x.beton", "--epochs", "1000", "--step-ms", "1"
    )
    done = sweep(place, command, "--workers", "1,2", "--prefetch", "3", "--effort", "quick")
    assert done.returncode == 0, done.stderr + (place / "run" / "script.log").read_text()[-2000:]
    result = result_of(place)
    loader = result["script"]["loader"]
    assert loader["dataset"] == "an FFCV file"
    assert loader["written"]["num_workers"] == "args.workers"
    two = [row for row in result["outcomes"] if row["candidate"]["num_workers"] == 2]
    assert two
    assert all("failure" not in row for row in two)
    assert files_in(place) == ["checkpoint.pth"], "epochs end"
    assert result["script"]["written"]["created"] == [str(place / "checkpoint.pth")]


@pytest.mark.slow
def test_pillow_simd_takes_the_place_of_pillow(place: Path, photos: Path, nobody_is_left: None) -> None:
    if find_pillow_simd() is None:
        pytest.skip("Pillow-SIMD is not installed: pipetune doctor --install pillow-simd")
    command = python("classic.py", str(photos), "--epochs", "1000", *EASY)
    done = sweep(place, command, "--workers", "0", "--fix", "decoder=simd", "--effort", "thorough", "--blocks", "0")
    assert done.returncode == 0, done.stderr
    # Where the two decoders are about as fast, the search compares them a second time.
    simd = [row for row in result_of(place)["outcomes"] if row["candidate"]["decoder"] == "simd"]
    assert simd
    assert all("failure" not in row and row["samples_per_s"] > 0 for row in simd)


@pytest.mark.slow
def test_run_tuned_hands_on_exit_code_and_standard_input(place: Path, photos: Path) -> None:
    command = python("classic.py", str(photos), "--epochs", "1000", "--workers", "1", *EASY)
    done = sweep(place, command, "--effort", "quick", "--workers", "1")
    assert done.returncode == 0, done.stderr
    run = subprocess.run(
        [*commands.python(), "run", "--tuned", "run", "--", "sh", "-c", "cat; exit 7"], cwd=place, input="typed",
        env=dict(os.environ), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stdout) == (7, "typed")
    shown = subprocess.run(
        [*commands.python(), "run", "--tuned", "run", "--print"], cwd=place, env=dict(os.environ),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert shown.returncode == 0
    assert "classic.py" in shown.stdout
