from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipetune.runs.load import load
from pipetune.sweeping.stored import sweep_result
from tests.run_folders import sweep_folder

SPENT = "the time was over before the search came to its end"


@pytest.mark.parametrize(("complete", "doubted"), [(True, False), (False, True), (None, True)])
def test_whether_a_finished_search_came_to_its_end_is_read_from_its_result(
    tmp_path: Path, complete: bool | None, doubted: bool
) -> None:
    """A later version's search may go further than the one that made the run did."""
    path = sweep_folder(tmp_path / "run")
    stored = json.loads((path / "result.json").read_text())
    (path / "result.json").write_text(json.dumps({**stored, "status": "target_met", "complete": complete}))

    found = sweep_result(load(path))

    # Three of its candidates were measured, which this search would not leave it at.
    assert found.complete == (not doubted)
    assert any(doubt.startswith(SPENT) for doubt in found.doubts) == doubted
