from __future__ import annotations

from pipetune.records.sweep import Candidate, Failure
from pipetune.sweeping.shortages import find_shortages


def lacking(kind: str, needed: int | None, available: int | None = 64) -> tuple[Candidate, Failure]:
    candidate = Candidate(backend="opencv", num_workers=4, prefetch_depth=2, batch_size=64)
    hint = f"give it {needed}"
    return candidate, Failure(
        kind=kind, phase="preflight", message="too little", hint=hint, needed=needed, available=available
    )


def test_a_shortage_is_what_all_of_its_candidates_lack() -> None:
    shm, files = find_shortages(
        [lacking("lacks_shared_memory", 200), lacking("lacks_open_files", 90), lacking("lacks_shared_memory", 900)]
    )
    assert (shm.kind, shm.candidates, shm.least_needed, shm.most_needed) == ("lacks_shared_memory", 2, 200, 900)
    assert (shm.available, shm.remedy) == (64, "give it 900"), "enough for the largest"
    assert (files.candidates, files.most_needed) == (1, 90)


def test_an_earlier_version_kept_no_numbers() -> None:
    (found,) = find_shortages([lacking("lacks_memory", None, None)])
    assert (found.least_needed, found.most_needed, found.available) == (None, None, None)
    assert find_shortages([]) == ()
