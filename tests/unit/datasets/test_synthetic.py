from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.datasets import photo_makers
from pipetune.datasets.synthetic import open_synthetic


def test_a_set_is_named_by_its_whole_uri_and_a_subset_follows_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPETUNE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(photo_makers, "forget_noise", lambda: None)  # half a second to make again
    stages: set[str] = set()
    found = open_synthetic(
        "synthetic:caltech256?n=6", workers=1, limit_images=4, progress=lambda stage, done, total: stages.add(stage)
    )
    assert found.name == "synthetic:caltech256?n=6&seed=0&classes=1"
    assert (found.found_images, len(found.images)) == (6, 4)
    assert Path(found.root).parent == tmp_path / "synthetic"
    assert {"reading headers"} < stages
