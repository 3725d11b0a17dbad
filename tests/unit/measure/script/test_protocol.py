from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pipetune.measure.script.protocol import SITE, SOCKET, path_of_socket


def test_the_folder_that_comes_first_on_the_path_holds_nothing_else() -> None:
    names = {entry.name for entry in Path(SITE).iterdir()} - {"__pycache__"}
    assert names == {"sitecustomize.py"}


@pytest.mark.parametrize("deep", [1, 12])
def test_a_socket_in_a_folder_of_any_depth_is_reached(tmp_path: Path, deep: int) -> None:
    folder = tmp_path.joinpath(*["a folder of a cluster"] * deep)
    folder.mkdir(parents=True)
    before = len(os.listdir("/proc/self/fd"))
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as other:
        with path_of_socket(str(folder)) as path:
            listener.bind(path)
        listener.listen()
        assert (folder / SOCKET).is_socket()
        with path_of_socket(str(folder)) as path:
            other.connect(path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"), path_of_socket(str(tmp_path / ("x" * 120))):
        pass
