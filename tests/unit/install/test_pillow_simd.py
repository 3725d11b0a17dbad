from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pipetune.errors import MissingPackageError, PipetuneError
from pipetune.install import pillow_simd
from pipetune.install.find import pillow_in
from pipetune.install.pillow_simd import VERSION, Installation, install_pillow_simd
from pipetune.install.pip import run_pip
from tests import fake_build


class Build:
    """An installation in which pip and the compiler are fake."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = folder / "home" / "side" / "pillow-simd-x"
        self.reported: list[str] = []

    def install(self, what: str = "good", *, report: Any = None, **options: str) -> Installation:
        environment = fake_build.environment(self.folder, what, **options)
        return install_pillow_simd(
            report or self.reported.append, place=self.place, environment=environment, proc=self.folder / "proc"
        )

    def fails(self, what: str, **options: str) -> PipetuneError:
        with pytest.raises(PipetuneError) as caught:
            self.install(what, **options)
        assert "\n" not in str(caught.value)
        return caught.value

    def put(self, version: str) -> None:
        (self.place / "PIL").mkdir(parents=True)
        (self.place / "PIL" / "_version.py").write_text(f'__version__ = "{version}"\n')

    @property
    def left(self) -> set[str]:
        return set(os.listdir(self.place.parent)) - {".pillow-simd-x.lock"}

    @property
    def calls(self) -> list[tuple[list[str], dict[str, str], list[str]]]:
        """Arguments, environment and requirements of each call of pip."""
        return [tuple(call) for call in json.loads((self.folder / "called.json").read_text())]

    @property
    def called(self) -> tuple[list[str], dict[str, str]]:
        """The build itself."""
        return self.calls[-1][:2]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text("flags\t: avx2\n")
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(pillow_simd, "importable_pillow", lambda: None)
    return Build(tmp_path)


def test_it_is_built_tried_and_put_in_place(build: Build) -> None:
    done = build.install()
    assert done.built
    assert done.pillow == pillow_in(build.place)
    assert (done.pillow.version, done.pillow.folder) == (VERSION, str(build.place))
    assert build.left == {build.place.name}
    assert len(build.reported) == 1
    assert "cc -mavx2" in build.reported[0]


def test_how_pip_is_called(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_USER", "1")
    build.install()
    arguments, environment = build.called
    assert arguments[0] == "install"
    assert {"--no-deps", "--no-binary", "--no-cache-dir", "--target", "--no-build-isolation"} < set(arguments)
    assert environment["CC"] == "cc -mavx2"
    assert environment["PIP_USER"] == "0"
    assert Path(environment["TMPDIR"]).is_relative_to(build.place.parent)


def test_every_file_that_is_fetched_has_its_hash(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONSTRAINT", "/of/the/user.txt")
    build.install()
    tools, source = build.calls
    assert [call[2] for call in (tools, source)] == [list(pillow_simd.TOOLS), [pillow_simd.SOURCE]]
    for arguments, environment, lines in (tools, source):
        assert "--require-hashes" in arguments
        assert environment["PIP_CONSTRAINT"] == os.devnull
        assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    assert {"--only-binary", ":all:"} < set(tools[0])
    assert source[1]["PYTHONPATH"].split(os.pathsep)[0] == tools[0][tools[0].index("--target") + 1]


@pytest.mark.thorough
def test_settings_of_the_users_do_not_keep_the_real_pip_from_its_folder(tmp_path: Path) -> None:
    pytest.importorskip("pip", reason="a virtual environment may have no pip")
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tiny.py", "")
        file.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\n")
    (tmp_path / "pip.conf").write_text(f"[global]\nconstraint = {tmp_path}/none.txt\nprefix = {tmp_path}/prefix\n")
    settings = {**os.environ, "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "PIP_PREFIX": str(tmp_path / "other")}
    lines = (f"tiny==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}",)
    how = ("--no-index", "--find-links", str(tmp_path))
    arguments = pillow_simd._arguments(tmp_path / "tiny.txt", lines, tmp_path / "site", *how)
    code, output = run_pip(arguments, pillow_simd._variables(settings, tmp_path, tmp_path / "tools"))
    assert code == 0, output
    assert (tmp_path / "site" / "tiny.py").exists()


def test_another_file_than_the_wanted_one_is_named_as_such(build: Build) -> None:
    says = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you\n  Expected sha256 00"
    for what in ("no_tools", "fail"):
        error = build.fails(what, says=says)
        assert error.message.startswith(
            "pip got another file than the one that this pipetune builds from: ERROR: THESE"
        )
        assert "PIP_INDEX_URL" in (error.hint or "")
        assert build.left == set()
    assert len(build.calls) == 3, "nothing is built where the tools are not the wanted ones"


def test_the_users_compiler_builds_it(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = fake_build.make_compiler(build.folder / "mine")
    real = fake_build.environment
    monkeypatch.setattr(fake_build, "environment", lambda *a, **k: {**real(*a, **k), "CC": f"{mine} -O3"})
    build.install()
    assert build.called[1]["CC"] == f"{mine} -O3"


def test_an_installed_library_is_kept(build: Build) -> None:
    build.install()
    done = build.install("fail")
    assert not done.built
    assert done.pillow.version == VERSION
    assert len(build.reported) == 1


def test_pillow_simd_in_place_of_pillow_needs_no_side_directory(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    build.install()
    elsewhere = pillow_in(build.place)
    build.place = build.folder / "other" / "pillow-simd-x"
    monkeypatch.setattr(pillow_simd, "importable_pillow", lambda: elsewhere)
    assert build.install("fail") == Installation(pillow=elsewhere, built=False)  # type: ignore[arg-type]
    assert not build.place.exists()


@pytest.mark.parametrize("version", ["9.0.0.post1", VERSION])
def test_an_older_or_broken_one_is_replaced(build: Build, version: str) -> None:
    build.put(version)  # without an Image.py it does not work
    assert build.install().built
    assert build.left == {build.place.name}
    assert not build.install("fail").built


@pytest.mark.parametrize(
    ("what", "message", "hint"),
    [
        ("nothing", "pip built no PIL in place of Pillow-SIMD: Successfully installed", "mirror of PyPI"),
        ("plain", "pip built Pillow 13.0.0 in place of Pillow-SIMD: Successfully installed", "mirror of PyPI"),
        ("no_library", "Pillow-SIMD was built but does not work: ImportError: libjpeg.so.62: cannot open", "CC=gcc"),
        ("old_processor", "Pillow-SIMD was built but does not work: Illegal instruction", "CC=gcc"),
        ("wrong", "Pillow-SIMD was built but does not work: (200, 100, 50) became (1, 2, 3)", "CC=gcc"),
    ],
)
def test_a_broken_build_is_not_put_in_place(build: Build, what: str, message: str, hint: str) -> None:
    error = build.fails(what)
    assert error.message.startswith(message)
    assert hint in (error.hint or "")
    assert error.exit_code == 1
    assert build.left == set()


@pytest.mark.parametrize(
    ("says", "message", "hint"),
    [
        ("a.c:1:1: fatal error: x.h: No such file\nERROR: no", "a.c:1:1: fatal error: x.h: No such file",
         f"CC='cc -mavx2' python -m pip wheel --no-deps --no-binary pillow-simd pillow-simd=={VERSION}"),
        ("ERROR: Could not find a version that satisfies it", "Could not find a version", "PIP_INDEX_URL"),
        ("ERROR: last words", "ERROR: last words", "python -m pip wheel"),
        ("ERROR: last words", "ERROR: last words", "pip.conf"),
    ],
)  # fmt: skip
def test_a_build_that_fails_says_why_and_leaves_nothing(build: Build, says: str, message: str, hint: str) -> None:
    error = build.fails("fail", says=says)
    assert error.message.startswith(f"pip could not build Pillow-SIMD: {message}")
    assert hint in (error.hint or "")
    assert build.left == set()


def test_a_failure_keeps_the_old_one(build: Build) -> None:
    build.put("9.0.0.post1")
    build.fails("fail", says="no")
    assert pillow_in(build.place)
    assert build.left == {build.place.name}


def test_an_interruption_between_the_renames_brings_the_old_one_back(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    build.put("9.0.0.post1")
    rename = os.rename

    def interrupted(source: Path, target: Path) -> None:
        if Path(source).name == "site":
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build.install()
    assert pillow_in(build.place)
    assert build.left == {build.place.name}


def test_work_folders_of_killed_installations_are_removed(build: Build) -> None:
    (build.place.parent / ".pillow-simd-x-abc" / "site").mkdir(parents=True)
    (build.place.parent / ".pillow-simd-xy-abc").mkdir()
    build.install()
    assert build.left == {build.place.name, ".pillow-simd-xy-abc"}


def test_a_second_installation_waits_for_the_first_and_uses_its_result(build: Build) -> None:
    done: list[Installation] = []
    started = threading.Event()
    thread = threading.Thread(target=lambda: done.append(build.install("wait", report=lambda line: started.set())))
    thread.start()
    assert started.wait(60)

    def report(line: str) -> None:  # we wait now, so the first one may go on
        build.reported.append(line)
        (build.folder / "go").touch()

    second = build.install("wait", report=report)
    thread.join()
    assert [installation.built for installation in (*done, second)] == [True, False]
    assert build.reported == ["another pipetune is installing it: waiting"]
    assert build.left == {build.place.name}


def test_a_file_system_without_locks_is_used_without(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(fd: int, how: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", no_locks)
    other = build.place.parent / ".pillow-simd-x-of-another"
    other.mkdir(parents=True)
    assert build.install().built
    assert other.exists()  # it may be at work


def test_a_folder_that_cannot_be_written(build: Build) -> None:
    build.place = build.folder / "file" / "side" / "x"
    (build.folder / "file").touch()
    error = build.fails("good")
    assert error.message == f"cannot install into {build.place}: Not a directory"
    assert "XDG_DATA_HOME" in (error.hint or "")


def test_missing_tools_are_reported_before_the_build(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(build.folder / "none"))
    with pytest.raises(MissingPackageError, match=r"needs Python\.h; apt-get install python3-dev"):
        build.install()
    assert not build.place.parent.exists()


def test_the_trial_is_a_real_one() -> None:
    import PIL

    assert pillow_simd._trial(Path(PIL.__file__).parents[1]) is None
