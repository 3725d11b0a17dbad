"""What a benchmark writes."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import bench


def test_a_number_that_could_not_be_measured_does_not_lose_the_others(tmp_path: Path) -> None:
    file = tmp_path / "results" / "one.json"
    bench.write(file, "one", False, {"rates": [1.5, float("nan"), float("inf")]})
    content = json.loads(file.read_text(), parse_constant=lambda constant: constant)
    assert content["rates"] == [1.5, None, None]
    assert (content["benchmark"], content["promise_holds"]) == ("one", False)
