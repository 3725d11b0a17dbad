"""Where the results of the real command go, and what happens when a place refuses them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.integration import commands

pytest.importorskip("torch", reason="the children measure torch loaders")


def test_a_device_and_a_link_are_written_to_and_not_replaced(half: Path, tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    shutil.copytree(half, tmp_path / "run")
    done = commands.run(
        [*commands.python(), "sweep", "--resume", str(tmp_path / "run"), "--json", str(tmp_path / "link.json")],
        PYTHONIOENCODING="ascii",  # a terminal that knows no "±"
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())["status"] == "target_met"
    assert "\\xb1" in done.stdout


def test_a_named_pipe_takes_the_json(tmp_path: Path) -> None:
    from pipetune.cli.output import write_json

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_json(str(pipe), {})
    assert os.read(reader, 10) == b"{}\n"
    os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize(("target", "expected"), [("{tmp}", "is a folder"), ("{tmp}/no/such/x.json", "mkdir -p")])
def test_a_place_that_cannot_be_is_reported_before_anything_is_measured(
    target: str, expected: str, photos: Path, tmp_path: Path
) -> None:
    done = commands.run(commands.sweep_command(photos, tmp_path / "run", "--json", target.format(tmp=tmp_path)))
    assert done.returncode == 2
    assert expected in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_second_sweep_into_the_same_folder_is_refused(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("keep me")
    done = commands.run(commands.sweep_command(photos, tmp_path / "run"))
    assert done.returncode == 2
    assert "run" in done.stderr
    assert (tmp_path / "run" / "mine.txt").read_text() == "keep me"
