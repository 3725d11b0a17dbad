from __future__ import annotations

import os
from pathlib import Path

from pipetune.loaders.utf8_paths import Utf8Paths

ODD = os.fsdecode(b"\xff\xfe")


def test_a_usual_name_stays_as_it_is(tmp_path: Path) -> None:
    names = Utf8Paths()
    assert names.name(str(tmp_path / "ä😀.jpg")) == str(tmp_path / "ä😀.jpg")
    assert names.path("/other") == "/other"
    names.close()


def test_odd_files_and_folders_have_readable_names_that_lead_back(tmp_path: Path) -> None:
    folder = tmp_path / ODD
    folder.mkdir()
    before = len(os.listdir("/proc/self/fd"))
    names = Utf8Paths()
    for base in ("a.jpg", "b.jpg", f"{ODD}.jpg"):
        path = folder / base
        path.write_text(base if base.isascii() else "odd")
        name = names.name(str(path))
        assert name.encode()
        assert Path(name).read_bytes() == path.read_bytes()
        assert names.path(name) == str(path)
    assert len(os.listdir("/proc/self/fd")) == before + 2  # the folder once, the odd file once
    names.close()
    names.close()
    assert len(os.listdir("/proc/self/fd")) == before
