from __future__ import annotations

from pathlib import Path

from pipetune.measure.script.protocol import SITE


def test_the_folder_that_comes_first_on_the_path_holds_nothing_else() -> None:
    names = {entry.name for entry in Path(SITE).iterdir()} - {"__pycache__"}
    assert names == {"sitecustomize.py"}
