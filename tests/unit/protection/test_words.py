from __future__ import annotations

from pathlib import Path

from pipetune.protection.words import describe_written
from pipetune.records.written import OVERLAY, UNPROTECTED, WrittenFiles, merge_written


def test_nothing_written_is_not_spoken_of() -> None:
    assert describe_written(WrittenFiles(mechanism=OVERLAY), "/job") == []


def test_protected_files_are_as_they_were() -> None:
    written = WrittenFiles(mechanism=OVERLAY, changed=("/job/a", "/other/b"), removed=("/job/c",), created=("/job/n",))
    assert describe_written(written, "/job") == [
        "the script wrote or removed 3 files of yours, which are as they were before: a, c, /other/b",
        "the script made 1 new file: n",
    ]


def test_unprotected_files_are_not() -> None:
    written = WrittenFiles(mechanism=UNPROTECTED, changed=("/job/a",), removed=("/job/c",))
    assert describe_written(written, "/job") == [
        "the script changed 1 file of yours: a", "the script removed 1 file of yours: c",
    ]  # fmt: skip


def test_many_are_named_in_a_file() -> None:
    written = WrittenFiles(mechanism=OVERLAY, created=tuple(f"/job/{number:02}" for number in range(12)))
    lines = describe_written(written, "/job", where=Path("run/written.json"))
    assert lines[0].endswith("08, 09 and 2 more")
    assert lines[1] == "all of them are named in run/written.json"


def test_what_was_written_in_two_goes_is_joined() -> None:
    first = WrittenFiles(mechanism=OVERLAY, created=("/b",), notes=("x",))
    joined = merge_written(first, WrittenFiles(mechanism=OVERLAY, created=("/a",), changed=("/c",), notes=("y", "x")))
    assert joined == WrittenFiles(mechanism=OVERLAY, created=("/a", "/b"), changed=("/c",), notes=("x", "y"))
