from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pipetune.errors import MissingPackageError, PipetuneError
from pipetune.install import find
from pipetune.install.find import compiled_in, find_jpeg_roi
from pipetune.install.jpeg_roi import install_jpeg_roi
from tests import fake_build

#: A compiler that knows the header and does what its mode says: copies a library into place, or fails.
COMPILER = """#!/bin/sh
case "$*" in *" -E "*) echo seen jpeglib.h; exit 0;; esac
{action}
"""


@pytest.fixture
def real(jpeg_roi_home: Path) -> Path:
    return next(jpeg_roi_home.glob("pipetune/side/jpeg-roi-*"))


def environment(folder: Path, action: str) -> dict[str, str]:
    compiler = folder / "cc"
    compiler.write_text(COMPILER.format(action=action))
    compiler.chmod(0o755)
    return {"CC": str(compiler), "PATH": os.environ["PATH"]}


def copy(library: Path) -> str:
    return f"while [ $# -gt 0 ]; do [ $1 = -o ] && cp {library} $2; shift; done"


def test_the_real_compiler_builds_it(jpeg_roi_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(jpeg_roi_home))
    found = find_jpeg_roi()
    assert found is not None
    assert found.name == f"jpeg-roi with libjpeg-turbo {found.library}"
    assert found.library.split(".")[0] in ("2", "3")
    assert install_jpeg_roi(pytest.fail) == (found, False)


def test_it_is_compiled_tried_and_put_in_place(real: Path, tmp_path: Path) -> None:
    place = tmp_path / "side" / "roi"
    library = real / "jpeg_roi.so"
    found, built = install_jpeg_roi(pytest.fail, place=place, environment=environment(tmp_path, copy(library)))
    assert built
    assert found == compiled_in(place)
    assert set(os.listdir(place.parent)) == {"roi", ".roi.lock"}
    again, built = install_jpeg_roi(pytest.fail, place=place, environment=environment(tmp_path, "exit 1"))
    assert (again, built) == (found, False)


def test_a_library_of_another_version_is_built_again(
    real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "side" / "roi"
    shutil.copytree(real, place)
    assert compiled_in(place) is not None
    source = tmp_path / "jpeg_roi.c"
    source.write_text("another source")
    monkeypatch.setattr(find, "roi_sources", lambda: [source])
    assert compiled_in(place) is None
    _, built = install_jpeg_roi(pytest.fail, place=place, environment=environment(tmp_path, copy(real / "jpeg_roi.so")))
    assert built


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ("echo 'x.c:1: error: no such thing' >&2; exit 1", "could not build jpeg-roi: x.c:1: error: no such thing"),
        (copy(Path("/bin/true")), "jpeg-roi was built but does not work"),
    ],
)
def test_a_broken_build_is_not_put_in_place(tmp_path: Path, action: str, message: str) -> None:
    place = tmp_path / "side" / "roi"
    with pytest.raises(PipetuneError, match=message) as caught:
        install_jpeg_roi(pytest.fail, place=place, environment=environment(tmp_path, action))
    assert caught.value.exit_code == 1
    assert set(os.listdir(place.parent)) == {".roi.lock"}


def test_a_missing_header_is_reported_before_the_build(tmp_path: Path) -> None:
    fake_build.make_compiler(tmp_path / "bin", headers=())
    with pytest.raises(MissingPackageError, match=r"building jpeg-roi needs jpeglib\.h; apt-get install libjpeg-dev"):
        install_jpeg_roi(
            pytest.fail, place=tmp_path / "roi",
            environment={"CC": str(tmp_path / "bin" / "cc"), "PATH": os.environ["PATH"]},
        )  # fmt: skip


@pytest.mark.parametrize("text", ["", "2.1.5", "2.1.5 0123456789abcdef", "a b c"])
def test_a_damaged_version_file_means_no_library(tmp_path: Path, text: str) -> None:
    (tmp_path / "VERSION").write_text(text)
    (tmp_path / "jpeg_roi.so").touch()
    assert compiled_in(tmp_path) is None
