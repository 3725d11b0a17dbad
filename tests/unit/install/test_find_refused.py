"""Compiled code that somebody else could have written is not loaded, and everything that looks for it says why."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from pipetune.candidates import varied
from pipetune.decoders.jpeg_roi_library import require_library
from pipetune.decoders.pillow_simd import require
from pipetune.doctor.checkup import describe_backends
from pipetune.doctor.findings import judge_backends
from pipetune.errors import MissingPackageError, PipetuneError, UsageError
from pipetune.install.find import JPEG_ROI, PILLOW_SIMD, compiled_in, find_jpeg_roi, find_pillow_simd, side_directory
from pipetune.install.jpeg_roi import install_jpeg_roi
from pipetune.measure.script.pil import pil_for_hook
from pipetune.registry import BACKENDS, installed_version, why_missing


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    before = os.umask(0o022)
    side_directory(JPEG_ROI).parent.mkdir(parents=True)
    os.umask(before)
    return tmp_path


@pytest.fixture
def library(home: Path, jpeg_roi_home: Path) -> Path:
    """The folder of a jpeg-roi that works."""
    place = side_directory(JPEG_ROI)
    shutil.copytree(next(jpeg_roi_home.glob("pipetune/side/jpeg-roi-*")), place)
    assert find_jpeg_roi() == compiled_in(place)
    return place


@pytest.fixture
def pillow_simd(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a Pillow-SIMD."""
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "side/pillow-simd" not in path])
    package = side_directory(PILLOW_SIMD) / "PIL"
    package.mkdir(parents=True)
    (package / "_version.py").write_text('__version__ = "12.1.1.post0"\n')
    for path in (package.parent, package, package / "_version.py"):
        path.chmod(0o700)
    found = find_pillow_simd()
    assert found is not None
    assert found.folder == str(package.parent)
    return package


def refusals() -> list[str]:
    """What is said of each backend that is not installed, as the check-up prints it."""
    findings = judge_backends(describe_backends(), None)
    return [finding.value for finding in findings if finding.value.startswith("not used")]


@pytest.mark.parametrize("above", [None, ".", "..", "../.."])
def test_a_library_that_others_may_have_written_is_not_loaded(library: Path, above: str | None) -> None:
    writable = (library / (above or "jpeg_roi.so")).resolve()
    writable.chmod(0o777)
    assert find_jpeg_roi() is None
    reason = f"others may write to {writable} (mode 0777)"
    with pytest.raises(MissingPackageError, match=re.escape(f"{JPEG_ROI} is not loaded: {reason}; build your own: ")):
        require_library.__wrapped__()
    backend = BACKENDS[JPEG_ROI]
    assert installed_version(backend) is None
    assert why_missing(backend) == f"is not used ({reason}, and its code would run)"
    assert [value for value in refusals() if reason in value]
    assert any(f"{JPEG_ROI} is not used ({reason}" in note for note in varied.backends(None)[1])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("what", ["jpeg_roi.so", "."])
def test_a_library_of_somebody_else_is_not_loaded_but_built_anew(library: Path, what: str) -> None:
    os.chown(library / what, 65534, 65534)
    assert find_jpeg_roi() is None
    with pytest.raises(MissingPackageError, match="belongs to another user"):
        require_library.__wrapped__()
    found, built = install_jpeg_roi(lambda line: None)
    assert built
    assert found == find_jpeg_roi()
    assert (library / "jpeg_roi.so").stat().st_uid == os.geteuid()


def test_a_pillow_simd_with_one_file_that_others_may_have_written_is_not_used(pillow_simd: Path) -> None:
    (pillow_simd / "extra.py").touch()
    (pillow_simd / "extra.py").chmod(0o666)
    assert find_pillow_simd() is None
    with pytest.raises(UsageError, match=r"Pillow-SIMD is not used: others may write to .*extra\.py"):
        pil_for_hook()
    with pytest.raises(PipetuneError, match=r"but this process got Pillow .*, because others may write to .*extra\.py"):
        require()
    assert refusals()


def test_a_home_that_cannot_be_looked_into_has_nothing_in_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A name that is too long raises in ``Path.exists``, as a folder does that may not be entered."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / ("x" * 300)))
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "/side/" not in path])
    assert why_missing(BACKENDS["jpeg-roi"])
    assert (find_jpeg_roi(), find_pillow_simd()) == (None, None)
