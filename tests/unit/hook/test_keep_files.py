"""Which files a command line names, and what the functions of libraries are told."""

from __future__ import annotations

import os
import types
from pathlib import Path

import pytest

from pipetune.hook import keep_files
from pipetune.protection.journal import read_entries
from pipetune.protection.keeper import Keeper
from pipetune.protection.put_back import put_back
from pipetune.protection.state import JOURNAL


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    for name in ("one", "two", "folder/one"):
        (tmp_path / name).write_text(f"mine: {name}")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["cp", "one", "two"], {"one", "two"}),
        (["cp", "one", "folder"], {"one", "folder/one"}),
        (["tool", "--out=two"], {"two"}),
        ("echo x>two; rm one", {"one", "two"}),
        (["sh", "-c", "cat one > two"], {"one", "two"}),
        (["sh", "-c", "echo 'open"], set()),
    ],
)
def test_files_on_a_command_line(place: Path, words: object, expected: set[str]) -> None:
    named = set(keep_files.named_files(words, str(place)))
    assert {str(path.relative_to(place)) for path in map(Path, named) if path.is_file()} == expected


def test_a_function_that_writes_from_compiled_code(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = place / "kept"
    kept.mkdir()
    guard = keep_files.FileGuard(Keeper(str(kept)))
    library = types.ModuleType("cv2")
    library.imwrite = lambda path, pixels: Path(path).write_bytes(bytes(pixels))  # type: ignore[attr-defined]
    guard.patch_savers(library)
    library.imwrite(str(place / "one"), [0])
    monkeypatch.chdir(place)
    library.imwrite("new", [0])
    assert [(Path(entry.path).name, entry.kind) for entry in read_entries(kept / JOURNAL)] == [
        ("one", "changed"), ("new", "created"),
    ]  # fmt: skip
    assert put_back(kept, kept / "aside").failures == {}
    assert (place / "one").read_text() == "mine: one"


def test_events_that_change_files(place: Path) -> None:
    kept = place / "kept"
    kept.mkdir()
    guard = keep_files.FileGuard(Keeper(str(kept)))
    descriptor = os.open(place, os.O_RDONLY)
    guard.on_event("open", (str(place / "one"), "r", os.O_RDONLY))
    guard.on_event("open", (7, "w", os.O_WRONLY))
    guard.on_event("os.remove", ("one", descriptor))
    guard.on_event("os.rename", (str(place / "two"), str(place / "three"), -1, -1))
    guard.on_event("sqlite3.connect", (":memory:",))
    guard.on_event("open", ("with\0null", "w", os.O_WRONLY))
    os.close(descriptor)
    assert [(Path(entry.path).name, entry.kind) for entry in read_entries(kept / JOURNAL)] == [
        ("one", "removed"), ("two", "removed"), ("three", "created"),
    ]  # fmt: skip
