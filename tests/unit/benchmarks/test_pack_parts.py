"""What is packed, in what sizes, and what is refused."""

from __future__ import annotations

import platform
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from benchmarks.gpu.pack import __main__ as program
from benchmarks.gpu.pack import wheels
from benchmarks.gpu.pack.dali import PACKAGES, build_archive, is_needed, write_archive
from benchmarks.gpu.pack.jpeg_roi import pack_jpeg_roi
from benchmarks.gpu.pack.machine import CACHE_TAG, MAX_CARRIED_MIB
from benchmarks.gpu.pack.parts import (
    Contents,
    Part,
    compute_limit,
    describe_sizes,
    measure_size,
    split_file,
    write_parts,
)
from pipetune.errors import MissingPackageError, PipetuneError
from tests import fake_build

MIB = 1 << 20


def make_contents(folder: Path, dali_bytes: int) -> Contents:
    (folder / "data" / "side").mkdir(parents=True)
    dali = folder / "dali.tar.xz"
    dali.write_bytes(bytes(range(256)) * (dali_bytes // 256))
    return Contents(wheels=[], data=folder / "data", dali=dali, versions={"DALI": "2.4.0"})


def test_the_first_part_is_filled_first(tmp_path: Path) -> None:
    parts = write_parts(make_contents(tmp_path, 3 * MIB), tmp_path, 3 * MIB)
    assert [part.name for part in parts] == [".gpu1", ".gpu2"]
    assert [part.size_bytes == measure_size(tmp_path / part.name) <= 3 * MIB for part in parts] == [True, True]
    shares = [tmp_path / ".gpu1" / "dali.0", tmp_path / ".gpu2" / "dali.1"]
    assert b"".join(share.read_bytes() for share in shares) == (tmp_path / "dali.tar.xz").read_bytes()
    assert parts[0].size_bytes > parts[1].size_bytes


def test_one_part_is_enough_for_little(tmp_path: Path) -> None:
    write_parts(make_contents(tmp_path / "large", 3 * MIB), tmp_path, 3 * MIB)
    parts = write_parts(make_contents(tmp_path / "small", MIB), tmp_path, 3 * MIB)
    assert [part.name for part in parts] == [".gpu1"]
    assert not (tmp_path / ".gpu2").exists()  # an earlier packing's


def test_above_the_limit_earlier_parts_stay(tmp_path: Path) -> None:
    write_parts(make_contents(tmp_path / "small", MIB), tmp_path, 3 * MIB)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(PipetuneError, match=r"DALI takes 9\.0 MiB.*room for 2\.0 and 2\.0 MiB.*raise --limit-mib"):
        write_parts(make_contents(tmp_path / "large", 9 * MIB), tmp_path, 3 * MIB)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, "large"])


def test_a_limit_below_the_other_files_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"1")
    with pytest.raises(PipetuneError, match="raise --limit-mib"):
        split_file(file, [tmp_path, tmp_path], [-1, 10])


@pytest.mark.parametrize(
    ("limit_mib", "tree_mib", "expected_mib"),
    [(50, 11, 50), (50, 20, 44), (50, None, 50), (100, 4, MAX_CARRIED_MIB - 4)],
)
def test_a_part_fits_beside_the_tree(limit_mib: int, tree_mib: int | None, expected_mib: int) -> None:
    tree_bytes = None if tree_mib is None else tree_mib * MIB
    assert compute_limit(limit_mib, tree_bytes) == expected_mib * MIB


def test_sizes_and_their_sum_are_told() -> None:
    parts = [Part(".gpu1", 49 * MIB, "wheels"), Part(".gpu2", 18 * MIB, "DALI")]
    assert [line.split("MiB")[0].split() for line in describe_sizes(parts, 11 * MIB)] == [
        ["tree", "11.0"],
        [".gpu1", "49.0"],
        [".gpu2", "18.0"],
        ["sum", "78.0"],
    ]
    assert describe_sizes(parts, 11 * MIB)[-1].endswith("largest call: 60.0 MiB, the tree and .gpu1")
    assert "67.0 MiB" in describe_sizes(parts, None)[-1]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"nvidia/dali/backend_impl.{CACHE_TAG}-x86_64-linux-gnu.so", True),
        ("nvidia/dali/backend_impl.cpython-311-x86_64-linux-gnu.so", False),
        (f"nvidia/dali/backend_impl.{CACHE_TAG}t-x86_64-linux-gnu.so", False),
        ("nvidia/dali/libdali.so", True),
        ("nvidia/dali/include/dali/core/api_helper.h", False),
        ("nvidia/dali/backend_impl.pyi", False),
        ("nvidia/nvimgcodec/extensions/libnvjpeg_ext.so.0.9.0", True),
        ("nvidia/nvimgcodec/extensions/libnvjpeg2k_ext.so.0.9.0", False),
        ("nvidia/__init__.py", True),
        ("nvidia_dali_cuda130-2.4.0.dist-info/METADATA", True),
    ],
)
def test_what_of_dali_is_carried(name: str, expected: bool) -> None:
    assert is_needed(name) is expected


def test_an_archive_without_the_joined_folder_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "dali-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("nvidia/dali/__init__.py", "")
    with pytest.raises(PipetuneError, match=r"no wheel has nvidia/__init__\.py"):
        build_archive([wheel], 90, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [wheel.name]


def test_equal_folders_give_equal_archives(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "folder").mkdir(parents=True)
        (tmp_path / name / "folder" / "file").write_text("text")
        write_archive(tmp_path / name, tmp_path / f"{name}.tar.xz")
    assert (tmp_path / "one.tar.xz").read_bytes() == (tmp_path / "two.tar.xz").read_bytes()
    with tarfile.open(tmp_path / "one.tar.xz") as archive:
        assert archive.getnames() == ["folder", "folder/file"]


def test_versions_are_those_of_the_constraints() -> None:
    versions = wheels.read_versions((*wheels.CARRIED, *PACKAGES))
    assert versions.keys() == {*wheels.CARRIED, *PACKAGES}
    with pytest.raises(PipetuneError, match=r"constraints\.txt has no version of nothing-such"):
        wheels.read_versions(["nothing-such"])


def test_the_cache_has_nothing_half_made(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.write_text("half")
        raise PipetuneError("stopped")

    with pytest.raises(PipetuneError):
        wheels.keep_in_cache(tmp_path / "file", fail)
    assert list(tmp_path.iterdir()) == []
    made = [wheels.keep_in_cache(tmp_path / "file", lambda path: path.write_text("whole") and None) for _ in range(2)]
    assert [path.read_text() for path in made] == ["whole", "whole"]


def test_a_python_without_pip_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'python: No module named pip' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(MissingPackageError, match=r"has no pip; .*ensurepip"):
        wheels.run_pip("download")


def test_jpeg_roi_finds_libjpeg_beside_itself(tmp_path: Path) -> None:
    try:
        version = pack_jpeg_roi(tmp_path)
    except MissingPackageError as reason:
        pytest.skip(str(reason))
    (site,) = (tmp_path / "pipetune" / "side").iterdir()
    assert site.name == f"jpeg-roi-{CACHE_TAG}-{platform.machine()}"
    assert (site / "VERSION").read_text().splitlines()[0] == version
    (libjpeg,) = site.glob("libjpeg.so.*")
    linked = subprocess.run(["ldd", str(site / "jpeg_roi.so")], capture_output=True, text=True, check=True).stdout
    assert f"=> {libjpeg} " in linked


def test_a_missing_header_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", str(fake_build.make_compiler(tmp_path / "bin", headers=())))
    with pytest.raises(MissingPackageError, match=r"jpeglib\.h"):
        pack_jpeg_roi(tmp_path / "data")


def test_missing_programs_are_named_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program.main([]) == MissingPackageError.exit_code
    assert capsys.readouterr().err == (
        "error: packing needs strip, xz, ldd; apt-get install binutils xz-utils libc-bin\n"
    )


@pytest.mark.parametrize("options", [["--limit-mib", "0"], ["--limit-mib", "much"], ["--nothing-such"]])
def test_a_wrong_option_ends_with_2(options: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main(options)
    assert ended.value.code == 2
