"""The table of faults names tests that exist."""

from __future__ import annotations

import re

from tests import ROOT

PAGE = ROOT / "docs" / "guides" / "faults.md"
TESTS = {path.name for path in (ROOT / "tests").rglob("test_*.py")}


def test_every_fault_is_tested() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    heading, _, *faults = rows
    assert heading == ["fault", "what happens", "tested in"]
    assert len(faults) > 10
    named = {name for *_, files in faults for name in re.findall(r"`(test_\w+\.py)`", files)}
    assert named <= TESTS
    assert all(re.search(r"`test_\w+\.py`", files) for *_, files in faults)
    assert {"test_faults.py", "test_faults_machine.py"} <= named
