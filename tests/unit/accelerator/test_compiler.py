from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.accelerator.compiler import require_compiler
from pipetune.errors import PipetuneError


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    for name in ("g++", "clang"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "more"), [("cpu", {}), ("cuda", {}), ("cpu", {"CXX": "clang"}), ("cuda", {"CC": "g++"})]
)
def test_a_compiler_that_is_there(tools: Path, kind: str, more: dict[str, str]) -> None:
    require_compiler(kind, {"PATH": str(tools), **more})


@pytest.mark.parametrize(
    ("kind", "more", "expected"),
    [
        ("cpu", {}, "there is no g++"),
        ("cuda", {}, "there is no gcc or clang"),
        ("cpu", {"CXX": "icpx"}, "CXX names icpx, which is not there"),
    ],
)
def test_one_that_is_missing_is_named(tmp_path: Path, kind: str, more: dict[str, str], expected: str) -> None:
    with pytest.raises(PipetuneError, match="run without --compile") as error:
        require_compiler(kind, {"PATH": str(tmp_path), **more})
    assert expected in error.value.message
    assert error.value.exit_code == 1
