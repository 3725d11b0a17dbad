"""The notebook API on real runs: a sweep in child processes, a job that is watched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pipetune
from pipetune.errors import PipetuneError, UsageError

torch = pytest.importorskip("torch", reason="the children measure torch loaders")


def test_a_sweep_returns_its_run_which_is_opened_from_anywhere(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos.parent)
    run = pipetune.sweep(
        photos.name, device="emulated:100", batch_size=4, image_size=32, seconds=0.4, workers=[0], prefetch=[2],
        backends=["opencv"], fix={"transfer": "uint8"}, vary="none", blocks=0, out=tmp_path / "run",
    )  # fmt: skip
    out, errors = capfd.readouterr()
    monkeypatch.chdir(tmp_path)

    assert run.problems == ()
    chosen = run.outcome().candidate  # type: ignore[union-attr]
    assert (chosen.backend, chosen.num_workers, chosen.transfer) == ("opencv", 0, "uint8")
    assert len(run.steps()) > 5
    assert out == ""
    assert "✓ max ingestion rate" in errors
    with pipetune.open_loader(tmp_path / "run") as loader:
        images, _ = next(iter(loader))
    assert images.dtype == torch.uint8
    assert tuple(images.shape) == (4, 3, 32, 32)


def test_a_mistake_is_reported_as_the_commands_option(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--target 1\.5 is out of range"):
        pipetune.sweep(photos, target=1.5)
    with pytest.raises(UsageError, match="there is no process 4194304"):
        pipetune.watch(2**22)
    with pytest.raises(PipetuneError, match=r"no such|there is no|does not exist"):
        pipetune.sweep(tmp_path / "nowhere", device="emulated:100")


def test_a_job_is_watched_and_its_run_is_stored(tmp_path: Path) -> None:
    job = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.watched_job", "decode"], stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        with pipetune.watch(job.pid, out=tmp_path / "run", interval_s=0.1, window_s=1.5, stacks=False) as seen:
            seen.wait(4.0)
            assert len(seen.readings()) > 10
    finally:
        assert job.poll() is None
        job.kill()
        job.communicate()

    assert len(seen.frame()) >= 1
    assert seen.run.problems == ()
    assert seen.run.result["reason"] == "the watch was ended"


def test_everything_of_the_package_is_there_and_nothing_else() -> None:
    assert sorted(pipetune.__all__) == pipetune.__all__
    for name in pipetune.__all__:
        assert getattr(pipetune, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pipetune.nothing  # noqa: B018
    assert dir(pipetune) == pipetune.__all__


@pytest.mark.slow
def test_a_loader_of_ones_own_is_tuned(tmp_path: Path) -> None:
    from torch.utils.data import DataLoader, TensorDataset

    images = torch.zeros(64, 3, 8, 8)

    def make_loader(num_workers: int, prefetch_factor: int | None, batch_size: int) -> object:
        data = TensorDataset(images, torch.zeros(64, dtype=torch.int64))
        return DataLoader(data, batch_size, num_workers=num_workers, prefetch_factor=prefetch_factor)

    run = pipetune.sweep(
        make_loader, device="emulated:100", batch_size=4, seconds=0.4, workers=[1], prefetch=[2],
        vary="none", blocks=0, out=tmp_path / "run", progress=False,
    )  # fmt: skip

    frame = run.frame()
    assert set(frame["key"]) == {"own-w0-p0-b4", "own-w1-p2-b4"}
    assert frame["failure"].isna().all()
    assert run.recommended_key in ("own-w0-p0-b4", "own-w1-p2-b4")
    measured = run.outcome().measurement  # type: ignore[union-attr]
    assert measured is not None
    assert 0.3 < measured.goodput < 1.1
    assert any("the files that your loader reads are not known" in warning for warning in measured.warnings)
    from pipetune.report.html.build import html_page

    page = html_page(run)
    assert f"make_loader(batch_size=4, num_workers={run.outcome().candidate.num_workers}" in page  # type: ignore[union-attr]
    assert "0 classes" not in page


def test_a_loader_of_ones_own_that_fails_says_why(tmp_path: Path) -> None:
    def make_loader(num_workers: int) -> object:
        raise RuntimeError("the data is on strike")

    with pytest.raises(PipetuneError, match="the data is on strike"):
        pipetune.sweep(make_loader, device="emulated:100", workers=[0], out=tmp_path / "run", progress=False)
