from __future__ import annotations

import builtins
import functools
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from pipetune.errors import MissingPackageError, UsageError
from pipetune.usercode.make_loader import accepted, arguments_in, name_of, pack, unpack, uri_of


def test_what_a_function_takes() -> None:
    assert accepted(lambda num_workers, batch_size=3: None) == {"num_workers", "batch_size"}
    assert accepted(lambda *, num_workers, other=1: None) == {"num_workers"}
    assert accepted(lambda **everything: None) == {
        "num_workers", "prefetch_factor", "batch_size", "pin_memory", "persistent_workers",
    }  # fmt: skip
    assert accepted(functools.partial(lambda root, num_workers: None, "/data")) == {"num_workers"}


def test_a_function_of_a_script_arrives_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("FACTOR = 7\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, helper\n"
        "from pipetune.usercode.make_loader import pack\n"
        "SIZE = 3\n"
        "def make_loader(num_workers): return [helper.FACTOR * SIZE + num_workers]\n"
        "open(sys.argv[1], 'wb').write(pack(make_loader))\n"
    )
    subprocess.run([sys.executable, str(script), str(tmp_path / "loader.pkl")], check=True)
    program = (
        "import sys; from pathlib import Path; from pipetune.usercode.make_loader import unpack; "
        "print(unpack(Path(sys.argv[1]))(num_workers=1))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "loader.pkl")], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[22]\n"


@pytest.mark.parametrize(
    ("owner", "mode", "expected"),
    [
        (None, 0o600, None), (None, 0o644, None), (None, 0o664, "others may have written to"),
        (None, 0o602, "others may have written to"), (65534, 0o600, "belongs to another user (uid 65534)"),
    ],
)  # fmt: skip
def test_code_that_may_be_somebody_elses_does_not_run(
    owner: int | None, mode: int, expected: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "loader.pkl"
    path.write_bytes(pickle.dumps({"name": "x", "sys_path": [], "code": pickle.dumps(len)}))
    path.chmod(mode)
    if owner is not None:
        try:
            os.chown(path, owner, -1)
        except PermissionError:
            pytest.skip("only root can give a file away")
    if expected is None:
        assert unpack(path) is len
        return
    with pytest.raises(UsageError) as caught:
        unpack(path)
    assert expected in caught.value.message
    assert caught.value.hint


def test_places_of_the_script_come_behind_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "loader.pkl"
    before = list(sys.path)
    path.write_bytes(pickle.dumps({"name": "x", "sys_path": ["/nowhere", *before], "code": pickle.dumps(len)}))
    monkeypatch.setattr(sys, "path", list(before))

    assert unpack(path) is len
    assert sys.path == [*before, "/nowhere"]


def test_mistakes_are_reported() -> None:
    with pytest.raises(UsageError, match="takes no num_workers, so there is nothing to vary"):
        pack(lambda batch_size: None)
    lock = threading.Lock()
    with pytest.raises(UsageError, match=r"cannot be taken to another process: .*lock"):
        pack(lambda num_workers: lock)


def test_without_cloudpickle_the_command_that_installs_it_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name == "cloudpickle":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingPackageError, match=r"pip install 'pipetune\[notebook\]'"):
        pack(lambda num_workers: None)


def test_names() -> None:
    assert name_of(test_names) == "test_names"
    assert name_of(functools.partial(len)) == "partial"

    def make_loader(num_workers: int, batch_size: int, other: int = 1) -> None: ...

    assert uri_of(make_loader) == "own:make_loader(batch_size, num_workers)"
    assert arguments_in(uri_of(make_loader)) == ("batch_size", "num_workers")
