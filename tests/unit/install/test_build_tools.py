from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from pipetune.errors import MissingPackageError, UsageError
from pipetune.install.build_tools import (
    JPEG_ROI,
    PILLOW_SIMD,
    _headers_seen_by,
    compiler,
    compiler_flags,
    require_build_tools,
)
from tests import fake_build


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, str]:
    """An environment with a compiler, both headers and pip."""
    return fake_build.environment(tmp_path)


def require(environment: dict[str, str], tmp_path: Path, cc: str = "cc", **changes: Any) -> None:
    (tmp_path / "Python.h").touch()
    options = {"machine": "x86_64", "python_include": str(tmp_path), "usual_includes": ()}
    require_build_tools(PILLOW_SIMD, cc, environment, **(options | changes))


@pytest.mark.parametrize(
    ("cpuinfo", "environment", "expected"),
    [
        ("processor\t: 0\nflags\t\t: fpu sse4_2 avx2 bmi\n", {}, "cc -mavx2"),
        ("processor\t: 0\nflags\t\t: fpu sse4_2 avx2_vnni\n", {}, "cc"),
        ("flags\t\t: avx2\n", {"CC": "clang -O3"}, "clang -O3"),
        ("", {"CC": ""}, "cc"),
    ],
)
def test_the_compiler_is_the_users_else_one_for_this_processor(
    tmp_path: Path, cpuinfo: str, environment: dict[str, str], expected: str
) -> None:
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    assert compiler(environment, proc=tmp_path) == expected
    assert compiler({}, proc=tmp_path / "absent") == "cc"


def test_nothing_is_missing(tools: dict[str, str], tmp_path: Path) -> None:
    require(tools, tmp_path)


@pytest.mark.parametrize(
    ("headers", "message", "hint", "conda"),
    [
        (("zlib.h",), "building Pillow-SIMD needs jpeglib.h", "apt-get install libjpeg-dev", "libjpeg-turbo"),
        (("jpeglib.h",), "building Pillow-SIMD needs zlib.h", "apt-get install zlib1g-dev", "zlib"),
        ((), "building Pillow-SIMD needs jpeglib.h and zlib.h", "apt-get install libjpeg-dev zlib1g-dev",
         "libjpeg-turbo zlib"),
    ],
)  # fmt: skip
def test_missing_headers(
    tools: dict[str, str], tmp_path: Path, headers: tuple[str, ...], message: str, hint: str, conda: str
) -> None:
    fake_build.make_compiler(tmp_path / "bin", headers=headers)
    with pytest.raises(MissingPackageError) as caught:
        require(tools, tmp_path)
    without_root = f"(without root, in a conda environment: conda install {conda})"
    assert (caught.value.message, caught.value.hint) == (message, f"{hint} {without_root}")
    assert caught.value.exit_code == 2


def test_everything_missing_is_reported_at_once(tools: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bin" / "cc").unlink()
    (tmp_path / "site" / "pip" / "__main__.py").write_text("raise SystemExit(1)")
    with pytest.raises(MissingPackageError) as caught:
        require(tools, tmp_path, python_include=str(tmp_path / "none"))
    assert caught.value.message == (
        "building Pillow-SIMD needs a C compiler (cc), jpeglib.h, zlib.h, Python.h and pip in this Python"
    )
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("apt-get install gcc libjpeg-dev zlib1g-dev python3-dev (without root")
    assert f", then {sys.executable} -m ensurepip (or: apt-get install python3-pip" in caught.value.hint


def test_without_a_compiler_the_usual_folders_are_searched(tools: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bin" / "cc").unlink()
    for name in fake_build.HEADERS:
        (tmp_path / name).touch()
    with pytest.raises(MissingPackageError) as caught:
        require(tools, tmp_path, usual_includes=[str(tmp_path)])
    assert str(caught.value) == "building Pillow-SIMD needs a C compiler (cc); apt-get install gcc"


def test_the_users_compiler_is_asked_with_the_users_folders(tools: dict[str, str], tmp_path: Path) -> None:
    tools |= {"CFLAGS": "-I/my/include", "JPEG_ROOT": "/my/jpeg"}
    require(tools, tmp_path, cc=f"{tmp_path / 'bin' / 'cc'} -O3")
    called = (tmp_path / "bin" / "cc.log").read_text()
    assert called.startswith("-O3 ")
    assert "-I/my/include" in called
    assert f"-I{os.path.join('/my/jpeg', 'include')}" in called


def test_a_compiler_that_is_not_there_is_named(tools: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(MissingPackageError, match=r"a C compiler \(my-cc\)"):
        require(tools, tmp_path, cc="my-cc -O3")


def test_a_compiler_that_fails_is_not_a_missing_header(tools: dict[str, str], tmp_path: Path) -> None:
    fake_build.make_compiler(tmp_path / "bin", status=3)
    with pytest.raises(UsageError, match="the C compiler 'cc' fails: exit status 3; set CC=gcc"):
        require(tools, tmp_path)


@pytest.mark.parametrize("cc", [" ", "cc 'unclosed"])
def test_a_compiler_that_is_no_command(tools: dict[str, str], tmp_path: Path, cc: str) -> None:
    with pytest.raises(UsageError, match="is not a command"):
        require(tools, tmp_path, cc=cc)


def test_the_c_source_needs_less(tools: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "site" / "pip" / "__main__.py").write_text("raise SystemExit(1)")
    none = {"python_include": str(tmp_path / "none"), "machine": "aarch64", "usual_includes": ()}
    require_build_tools(JPEG_ROI, "cc", tools, **none)
    fake_build.make_compiler(tmp_path / "bin", headers=("zlib.h",))
    with pytest.raises(MissingPackageError, match=r"building jpeg-roi needs jpeglib\.h; apt-get install libjpeg-dev"):
        require_build_tools(JPEG_ROI, "cc", tools, **none)


def test_another_processor(tools: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="x86 processors only, and this is aarch64"):
        require(tools, tmp_path, machine="aarch64")


def test_the_real_compiler_finds_headers_in_every_place(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler named cc")
    (tmp_path / "include").mkdir()
    for name in fake_build.HEADERS:
        (tmp_path / "include" / name).touch()
    assert _headers_seen_by(["cc"], {**os.environ, "CPATH": str(tmp_path / "include")}, fake_build.HEADERS) == set(
        fake_build.HEADERS
    )
    alone = ["cc", "-nostdinc"]
    environment = {name: value for name, value in os.environ.items() if name not in ("CPATH", "C_INCLUDE_PATH")}
    assert _headers_seen_by(alone, environment | {"CFLAGS": "", "ZLIB_ROOT": str(tmp_path)}, fake_build.HEADERS) == set(
        fake_build.HEADERS
    )


def test_flags_that_are_no_words_are_the_users_mistake() -> None:
    assert compiler_flags({"CFLAGS": "-O3 -DNAME='a b'"}) == ["-O3", "-DNAME=a b"]
    assert compiler_flags({}) == []
    with pytest.raises(UsageError, match=r"CFLAGS=.* cannot be split into words: No closing quotation; unset CFLAGS"):
        compiler_flags({"CFLAGS": "-O3 '"})
