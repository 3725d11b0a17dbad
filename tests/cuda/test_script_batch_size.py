"""The batch size of a script, on the stand-in, whose memory ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import ROOT, fake_cuda

pytestmark = pytest.mark.slow

MEMORY_MB = 500
SCRIPT = ROOT / "tests" / "scripts" / "on_gpu.py"


def batch_size(
    cuda_library: Path, place: Path, *words: str, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    env = fake_cuda.environment(cuda_library, place, memory_mb=MEMORY_MB, kernel_us=20, capability=75)
    (place / "tmp").mkdir()
    return subprocess.run(
        [sys.executable, "-m", "pipetune", "batch-size", "--seconds", "0.3", "--json", "found.json", *options, "--",
         sys.executable, str(SCRIPT), *words],
        env={**env, "TMPDIR": str(place / "tmp")}, cwd=place, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module", params=["plain", "steep", "careful"])
def found(request: pytest.FixtureRequest, cuda_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("script")
    words = {"plain": (), "steep": ("--steep", "40"), "careful": ("--steep", "40", "--careful")}[request.param]
    done = batch_size(cuda_library, place, *words)
    assert done.returncode == 0, done.stderr
    return json.loads((place / "found.json").read_text())["batch_sizes"] | {
        "printed": done.stdout,
        "steep": "--steep" in words,
        "place": str(place),
    }


def test_its_own_size_and_the_half_come_first_and_the_memory_is_the_limit(found: Any) -> None:
    sizes = [point["batch_size"] for point in found["points"]]
    assert sizes[:2] == [8, 16]
    assert found["script"]["own"] == 16
    assert found["total_bytes"] == MEMORY_MB << 20
    peaks = {point["batch_size"]: point["peak_bytes"] for point in found["points"] if point["peak_bytes"]}
    assert peaks[found["largest"]] <= found["limit_bytes"]
    if found["steep"]:
        assert 32 <= found["largest"] <= 40
        return
    assert peaks[found["largest"]] + (0.1 * found["largest"] + 8) * found["bytes_per_sample"] > found["limit_bytes"]


def test_few_batch_sizes_and_at_most_one_that_did_not_fit(found: Any) -> None:
    assert 3 <= len(found["points"]) <= 6
    failed = [point for point in found["points"] if point["out_of_memory"]]
    assert {point["failure"] for point in failed} <= {"out of GPU memory"}
    assert 1 <= len(failed) <= 2 if found["steep"] else len(failed) <= 1
    assert found["stopped"] is None


def test_what_to_set_is_the_scripts_own_option(found: Any) -> None:
    assert found["script"]["option"] == "--batch-size"
    assert found["script"]["where"].endswith("on_gpu.py:30")
    assert "The script has batches of 16" in found["printed"]
    if not found["steep"]:  # of few sizes its own may be as fast
        assert f"Set --batch-size {found['knee']}" in " ".join(found["printed"].split())


def test_nothing_is_left(found: Any) -> None:
    assert list(Path(found["place"], "tmp").glob("pipetune*")) == []
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert [line for line in lines if str(SCRIPT) in line] == []


def test_a_script_on_the_cpu_is_refused(cuda_library: Path, tmp_path: Path) -> None:
    done = batch_size(cuda_library, tmp_path, "--device", "cpu")
    assert done.returncode == 2
    assert "trains on no CUDA device" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["tmp"]
    assert list((tmp_path / "tmp").glob("pipetune*")) == []


def test_a_script_that_breaks_says_where_its_output_is(cuda_library: Path, tmp_path: Path) -> None:
    done = batch_size(cuda_library, tmp_path, "--pairs")
    assert done.returncode == 1
    (log,) = [word for word in done.stderr.split() if word.endswith("script.log")]
    assert "Traceback" in Path(log).read_text()
    Path(log).unlink()
    Path(log).parent.rmdir()


def test_batches_of_one_sample_are_made_larger(cuda_library: Path, tmp_path: Path) -> None:
    done = batch_size(cuda_library, tmp_path, "--batch-size", "1")
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())["batch_sizes"]
    assert [point["batch_size"] for point in found["points"]][:2] == [1, 2]
    assert found["script"]["own"] == 1
    assert found["largest"] > 16
