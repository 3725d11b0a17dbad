from __future__ import annotations

import sys
from typing import Any

import pytest

from pipetune.errors import UsageError
from pipetune.install.find import Pillow
from pipetune.measure.script import pil as module
from pipetune.measure.script.pil import pil_for_hook, why_no_simd
from pipetune.records.script import ScriptLoader

SIMD = Pillow(version="12.1.1.post0", folder="/side/simd")
OURS = f"{sys.version_info[0]}.{sys.version_info[1]}.4"


@pytest.mark.parametrize(
    ("changes", "installed", "expected"),
    [
        ({}, SIMD, None),
        ({"python": "3.99.1"}, SIMD, "the script runs under 3.99.1"),
        ({"pil": None}, SIMD, "has not imported PIL"),
        ({"pil": "11.0.0.post1"}, SIMD, "has it already"),
        ({}, None, "doctor --install pillow-simd"),
    ],
    ids=["it can", "another Python", "no PIL", "already", "not installed"],
)
def test_why_it_is_not_tried(changes: dict[str, Any], installed: Pillow | None, expected: str | None) -> None:
    loader = ScriptLoader(identity=None, where=None, **{"pil": "13.0.0", "python": OURS, **changes})
    reason = why_no_simd(loader, installed)
    assert (reason is None) if expected is None else (reason is not None and expected in reason)


def test_the_hook_is_told_the_folder_and_its_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_pillow_simd", lambda: SIMD)
    assert pil_for_hook() == {"folder": "/side/simd", "tag": sys.implementation.cache_tag}
    monkeypatch.setattr(module, "find_pillow_simd", lambda: None)
    with pytest.raises(UsageError, match="not installed"):
        pil_for_hook()
