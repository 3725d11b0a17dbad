"""enter.sh on the other machine: whole or in part, as often as one likes, from any folder."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.gpu.pack.dali import write_archive
from benchmarks.gpu.pack.parts import Contents, write_parts

LIMIT_BYTES = 4 << 20


@dataclass(frozen=True)
class Machine:
    """A folder that parts are carried to."""

    folder: Path

    def enter(self, command: str = "", part: str = ".gpu1", cwd: str = "/", **variables: str) -> tuple[int, str, str]:
        """Exit code, output and messages of a shell that enters the parts and then runs a command."""
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHON": sys.executable,
            "TMPDIR": str(self.folder / "tmp"),
            **variables,
        }
        program = f"set -u; . {self.folder / 'tree' / part}/enter.sh && {{ {command or 'true'}; }}"
        done = subprocess.run(
            ["bash", "-c", program], env=environment, cwd=cwd, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def site(self) -> Path:
        (site,) = (self.folder / "tmp").glob("pipetune-gpu-*")
        return site


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with parts for this Python: a small wheel with a program, a data folder, and a DALI in two."""
    root = tmp_path_factory.mktemp("packed")
    wheel = root / "thing-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("thing.py", "WHAT = 'a wheel'\n")
        archive.writestr("thing-1.data/scripts/thing", "#!/bin/sh\necho a program\n")
    library = root / "data" / "pipetune" / "side" / "library"
    library.mkdir(parents=True)
    (library / "VERSION").write_text("1\n")
    for path in (root / "data").rglob("*"):
        path.chmod(0o777)
    dali = root / "dali"
    (dali / "nvidia").mkdir(parents=True)
    # As nvImageCodec's wheel has it; without it the folder of this environment's CUDA libraries would hide this one.
    (dali / "nvidia" / "__init__.py").write_text("__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n")
    (dali / "nvidia" / "dali.py").write_text("WHAT = 'DALI'\n")
    (dali / "noise").write_bytes(os.urandom(5 << 20))
    write_archive(dali, root / "dali.tar.xz")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.gpu.pack.parts.PYTHON", sys.version_info[:2])
        patch.setattr("benchmarks.gpu.pack.parts.PROCESSOR", platform.machine())
        contents = Contents(
            wheels=[wheel], data=root / "data", dali=root / "dali.tar.xz", versions={"thing": "1", "DALI": "2"}
        )
        parts = write_parts(contents, root, LIMIT_BYTES)
    assert [part.name for part in parts] == [".gpu1", ".gpu2"]
    assert max(part.size_bytes for part in parts) <= LIMIT_BYTES
    return root


@pytest.fixture
def machine(packed: Path, tmp_path: Path) -> Machine:
    for name in ("tree", "tmp"):
        (tmp_path / name).mkdir()
    shutil.copytree(packed / ".gpu1", tmp_path / "tree" / ".gpu1")
    return Machine(tmp_path)


def carry_second(packed: Path, machine: Machine) -> None:
    shutil.copytree(packed / ".gpu2", machine.folder / "tree" / ".gpu2")


USE = f'{sys.executable} -c "import thing; print(thing.WHAT)"; thing; cat $XDG_DATA_HOME/pipetune/side/library/VERSION'


def test_without_the_second_part_everything_but_dali_is_there(machine: Machine) -> None:
    code, output, messages = machine.enter(USE)
    assert (code, output) == (0, "a wheel\na program\n1\n")
    assert "carry .gpu2, too" in messages


def test_what_is_loaded_is_writable_for_this_user_alone(machine: Machine) -> None:
    machine.enter()
    for path in [machine.site(), *(machine.site() / "base").rglob("*")]:
        assert path.stat().st_mode & 0o022 == 0, path


def test_dali_is_there_when_the_second_part_has_come(machine: Machine, packed: Path) -> None:
    use = f'{sys.executable} -c "import nvidia.dali; print(nvidia.dali.WHAT)"'
    assert machine.enter(use)[0] == 1
    carry_second(packed, machine)
    assert machine.enter(use)[:2] == (0, "DALI\n")
    assert not (machine.site() / "kept").exists()


def test_the_second_part_alone_suffices_later(machine: Machine, packed: Path) -> None:
    machine.enter()
    shutil.rmtree(machine.folder / "tree" / ".gpu1")
    carry_second(packed, machine)
    use = f'{sys.executable} -c "import thing, nvidia.dali; print(nvidia.dali.WHAT)"'
    assert machine.enter(use, part=".gpu2")[:2] == (0, "DALI\n")


def test_the_second_part_alone_is_not_enough_at_first(machine: Machine, packed: Path) -> None:
    shutil.rmtree(machine.folder / "tree" / ".gpu1")
    carry_second(packed, machine)
    code, _, messages = machine.enter(part=".gpu2")
    assert code == 1
    assert ".gpu1 is not beside it" in messages


def test_a_second_time_nothing_changes(machine: Machine) -> None:
    show = 'echo "$PYTHONPATH"; echo "$PATH"'
    _, once, _ = machine.enter(show, PYTHONPATH="/mine")
    _, twice, _ = machine.enter(f". {machine.folder}/tree/.gpu1/enter.sh; {show}", PYTHONPATH="/mine")
    assert once == twice
    assert once.splitlines()[0].endswith(":/mine")


def test_from_its_own_folder(machine: Machine) -> None:
    done = subprocess.run(
        ["bash", "-c", f". .gpu1/enter.sh && {USE}"],
        cwd=machine.folder / "tree",
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "PYTHON": sys.executable, "TMPDIR": str(machine.folder / "tmp")},
    )
    assert done.stdout == "a wheel\na program\n1\n"


def test_it_is_sourced(machine: Machine) -> None:
    script = machine.folder / "tree" / ".gpu1" / "enter.sh"
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: source this file")


def test_another_python_is_an_error(machine: Machine) -> None:
    for part in (machine.folder / "tree").iterdir():
        manifest = json.loads((part / "parts.json").read_text())
        (part / "parts.json").write_text(json.dumps({**manifest, "python": [3, 99]}))
    code, _, messages = machine.enter("echo not reached")
    assert code == 1
    assert "is for Python 3.99" in messages
    assert len(messages.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "words"), [("whl/thing-1-py3-none-any.whl", "a wheel is"), ("dali.0", "DALI are damaged")]
)
def test_damaged_parts_are_an_error_and_leave_nothing(machine: Machine, packed: Path, name: str, words: str) -> None:
    carry_second(packed, machine)
    file = machine.folder / "tree" / ".gpu1" / name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    code, _, messages = machine.enter()
    assert code == 1
    assert words in messages
    assert len(messages.splitlines()) == 1
    assert {path.name for path in machine.site().iterdir()} <= {"base"}


def test_parts_of_two_packings_are_not_mixed(machine: Machine, packed: Path) -> None:
    carry_second(packed, machine)
    manifest = machine.folder / "tree" / ".gpu2" / "parts.json"
    manifest.write_text(manifest.read_text() + "\n")
    code, _, messages = machine.enter()
    assert code == 0
    assert "carry .gpu2, too" in messages


def test_a_folder_of_another_user_is_not_used(machine: Machine) -> None:
    text = (machine.folder / "tree" / ".gpu1" / "parts.json").read_text()
    name = f"pipetune-gpu-{os.geteuid()}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    (machine.folder / "tmp" / name).symlink_to(machine.folder)
    code, _, messages = machine.enter()
    assert code == 1
    assert "belongs to another user" in messages
