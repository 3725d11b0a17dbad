from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.candidates.describe import describe
from pipetune.records.sweep import Candidate

PLAIN = Candidate(backend="opencv", num_workers=2, prefetch_depth=4, batch_size=64)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "opencv, 2 workers, prefetch 4"),
        ({"num_workers": 1}, "opencv, 1 worker, prefetch 4"),
        ({"num_workers": 0, "prefetch_depth": 0}, "opencv, no workers"),
        ({"backend": "dali", "loader": "dali", "num_workers": 1}, "dali, 1 thread, prefetch 4"),
        ({"loader": "threads", "transfer": "uint8", "allocator": "glibc"},
         "opencv, 2 threads, prefetch 4, uint8, glibc"),
        ({"reuse_buffers": True, "channels_last": True}, "opencv, 2 workers, prefetch 4, memory reused, NHWC"),
        ({"in_order": False, "start_method": "spawn", "persistent_workers": False},
         "opencv, 2 workers, prefetch 4, any order, spawn, workers restart"),
        ({"backend": "dali", "loader": "dali", "hw_decoder_load": 0.8},
         "dali, 2 threads, prefetch 4, JPEG engine 80 %"),
        ({"pin_memory": True, "batch_size": 8}, "opencv, 2 workers, prefetch 4"),
    ],
)  # fmt: skip
def test_a_candidate_in_words(changes: dict[str, object], text: str) -> None:
    assert describe(replace(PLAIN, **changes)) == text  # type: ignore[arg-type]
