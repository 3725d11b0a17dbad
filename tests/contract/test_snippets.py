"""The code that a sweep prints runs as it stands and yields what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipetune.registry import BACKENDS
from pipetune.report.snippet import code_for, settings_for
from tests.photo_set import PHOTOS, candidate, enlarge

torch = pytest.importorskip("torch", reason="the code is for torch")


def run(code: str) -> Any:
    space: dict[str, Any] = {"__name__": "pasted"}
    exec(compile(code, "pasted.py", "exec"), space)
    first = next(iter(space["loader"]))
    if isinstance(first, list) and isinstance(first[0], dict):  # DALI's iterator: one dictionary per device
        return first[0]["images"], first[0]["labels"].view(-1).long()
    return first


@pytest.mark.parametrize("flat", [False, True], ids=["class folders", "flat"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_the_code_runs(backend: str, workers: int, flat: bool, tmp_path: Path) -> None:
    if workers == 0 and BACKENDS[backend].in_process_workers:
        workers = 1
    root = enlarge(tmp_path / 'it\'s "quoted"', copies=3)
    if flat:
        root = root / "people"
    code = code_for(candidate(backend, workers, batch_size=4), root=str(root), image_size=96, flat=flat, on_gpu=False)
    assert max(len(line) for line in code.splitlines() if not line.startswith("ROOT")) <= 120
    images, labels = run(code)
    assert images.shape == (4, 3, 96, 96)
    assert images.dtype == torch.float32
    assert -3 < float(images.min()) < 0 < float(images.max()) < 3
    assert labels.shape == (4,)


def test_every_backend_has_a_snippet() -> None:
    for backend in BACKENDS:
        assert code_for(candidate(backend, 1), root=str(PHOTOS), image_size=64, flat=False, on_gpu=True)


def test_settings_in_one_line() -> None:
    assert settings_for(candidate("opencv", 2, 64)) == (
        "batch_size=64, num_workers=2, prefetch_factor=2, persistent_workers=True"
    )
    assert settings_for(candidate("pillow", 0, 64)) == "batch_size=64, num_workers=0"
    assert settings_for(candidate("dali", 3, 64)) == "num_threads=3, prefetch_queue_depth=2"
