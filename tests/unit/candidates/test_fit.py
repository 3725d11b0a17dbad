from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.candidates.fit import Granted, find_obstacles, needs_of, obstacle, remarks
from pipetune.candidates.space import Space
from pipetune.machine.host import Host, describe_host
from pipetune.records.sweep import Candidate

BATCH = 64 * (3 * 224 * 224 * 4 + 8)
ROOMY: Host = replace(
    describe_host(), cores_affinity=tuple(range(8)), cores_usable=8.0, cpu_quota_cores=None,
    memory_available_bytes=2**36, shm_free_bytes=2**34, open_files_limit=65536,
)  # fmt: skip


def candidate(backend: str = "opencv", workers: int = 8, prefetch: int = 4, batch_size: int = 64) -> Candidate:
    return Candidate(backend=backend, num_workers=workers, prefetch_depth=prefetch, batch_size=batch_size)


def test_shared_memory_is_workers_times_prefetch_plus_one_batches() -> None:
    assert needs_of(candidate(), 224).shm_bytes == 33 * BATCH
    assert needs_of(candidate(workers=0, prefetch=0), 224).shm_bytes == 0
    assert needs_of(candidate("dali"), 224).shm_bytes == 0  # threads hand over pointers


def test_what_fits_has_no_obstacle() -> None:
    assert obstacle(candidate(), 224, ROOMY) is None
    unknown = replace(ROOMY, shm_free_bytes=None, open_files_limit=None, memory_available_bytes=None)
    assert obstacle(candidate(workers=64), 224, unknown) is None


@pytest.mark.parametrize(
    ("changes", "kind", "expected"),
    [
        ({"shm_free_bytes": 64 << 20}, "lacks_shared_memory", ("8 workers x prefetch 4 + 1 = 33 batches", "64.0 MiB")),
        ({"open_files_limit": 40}, "lacks_open_files", ("at least 44 open files", "the limit is 40")),
        ({"memory_available_bytes": 1 << 30}, "lacks_memory", ("1.00 GiB are available",)),
    ],
)
def test_what_cannot_fit_is_reported_with_both_numbers(
    changes: dict[str, int], kind: str, expected: tuple[str, ...]
) -> None:
    failure = obstacle(candidate(), 224, replace(ROOMY, **changes))  # type: ignore[arg-type]
    assert failure is not None
    assert (failure.kind, failure.phase) == (kind, "preflight")
    assert all(text in failure.message for text in expected)
    assert failure.hint


def test_a_shortage_comes_with_its_numbers_and_the_command_that_ends_it() -> None:
    gib = 2**30
    small = replace(ROOMY, shm_total_bytes=gib, shm_free_bytes=gib // 2)
    failure = obstacle(candidate(), 224, small)
    assert failure is not None
    assert (failure.needed, failure.available) == (33 * BATCH, gib // 2)
    # What is in use now stays: half a GiB, and 1.19 GiB of batches.
    assert "mount -o remount,size=2g /dev/shm, or docker run --shm-size=2g" in str(failure.hint)
    limited = replace(ROOMY, memory_total_bytes=64 * gib, memory_limit_bytes=4 * gib, memory_available_bytes=gib)
    failure = obstacle(candidate(), 224, limited)
    assert failure is not None
    assert failure.available == gib
    assert "docker run --memory=5g" in str(failure.hint)
    unlimited = obstacle(candidate(), 224, replace(limited, memory_limit_bytes=None))
    assert unlimited is not None
    assert "docker" not in str(unlimited.hint)


def test_a_limit_that_the_user_has_set_is_named_and_not_the_machine() -> None:
    gib = 2**30
    granted = Granted(memory_bytes=gib, shm_bytes=gib // 2)
    failure = obstacle(candidate(), 224, replace(ROOMY, shm_free_bytes=gib // 2), granted=granted)
    assert failure is not None
    assert failure.message.endswith("--max-shm grants 512 MiB")
    assert failure.hint == "write --max-shm 2GiB, or lower --workers, --prefetch or --batch-size"
    failure = obstacle(candidate(), 224, replace(ROOMY, memory_available_bytes=gib), granted=granted)
    assert failure is not None
    assert failure.message.endswith("--max-ram grants 1.00 GiB")
    assert str(failure.hint).startswith("write --max-ram 2GiB, or lower")
    # Less than that is free: raising the limit would not help.
    failure = obstacle(candidate(), 224, replace(ROOMY, shm_free_bytes=gib // 4), granted=granted)
    assert failure is not None
    assert "/dev/shm has 256 MiB free" in failure.message
    assert "--max-shm" not in str(failure.hint)


def test_the_limit_itself_still_fits() -> None:
    exactly = needs_of(candidate(), 224).shm_bytes
    assert obstacle(candidate(), 224, replace(ROOMY, shm_free_bytes=exactly)) is None
    assert obstacle(candidate(), 224, replace(ROOMY, shm_free_bytes=exactly - 1)) is not None


def test_obstacles_of_a_whole_space() -> None:
    space = Space(backends=("opencv", "dali"), workers=(0, 1, 8), prefetch=(2, 4), batch_size=64, pin_memory=False)
    small = replace(ROOMY, shm_free_bytes=4 * BATCH)
    found = find_obstacles(space.grid(), 224, small)
    assert {c.key for c in found} == {"opencv-w8-p2-b64", "opencv-w8-p4-b64", "opencv-w1-p4-b64"}
    left = replace(space, excluded=frozenset(found))
    assert left.workers_of("opencv") == (0, 1)
    assert left.workers_of("dali") == (1, 8)
    assert not set(left.grid()) & set(found)


def test_a_quota_below_the_visible_cores_and_too_many_workers_are_worth_a_remark() -> None:
    space = Space(backends=("opencv",), workers=(1, 64), prefetch=(2,), batch_size=64, pin_memory=False)
    limited = replace(ROOMY, cpu_quota_cores=1.5, cores_usable=1.5)
    quota, many = remarks(space, limited, {})
    assert "1.5 of the 8 visible cores" in quota
    assert "OMP_NUM_THREADS=1" in quota
    assert "64 workers share 1.5" in many
    few = replace(space, workers=(1, 2))
    assert remarks(few, ROOMY, {}) == ()
    assert remarks(few, ROOMY, {"OMP_NUM_THREADS": "16"}) == ("OMP_NUM_THREADS=16 is more than the 8 usable cores",)


#: Of a batch of 64 x 3 x 224 x 224 floats torch's page-locked allocator makes 64 MiB, and 512 B of its labels.
BLOCK = (64 << 20) + 512
BYTES, BYTES_BLOCK = 64 * (3 * 224 * 224 + 8), (16 << 20) + 512


@pytest.mark.parametrize(
    ("changes", "locked_bytes", "shm_bytes", "more_bytes"),
    [
        ({}, 33 * BLOCK, 33 * BATCH, 33 * (BLOCK - BATCH)),
        ({"transfer": "uint8"}, 33 * BYTES_BLOCK, 33 * BYTES, 33 * (BYTES_BLOCK - BYTES)),
        ({"reuse_buffers": True}, 37 * BATCH, 37 * BATCH, 4 * BATCH),
        ({"loader": "threads"}, 33 * BATCH, 0, 0),
        ({"num_workers": 0, "prefetch_depth": 0}, BLOCK, 0, BLOCK - BATCH),
        ({"num_workers": 0, "prefetch_depth": 0, "reuse_buffers": True}, BATCH, 0, 0),
        ({"backend": "dali", "loader": "dali"}, 0, 0, -5 * BATCH),  # its batches lie on the device
        ({"backend": "nvjpeg", "loader": "device"}, 0, 0, -5 * BATCH),
        ({"backend": "dali-cpu", "loader": "dali"}, 0, 0, 0),
    ],
)
def test_page_locked_memory_is_counted_as_it_is_taken(
    changes: dict[str, object], locked_bytes: int, shm_bytes: int, more_bytes: int
) -> None:
    unlocked = replace(candidate(), **changes)  # type: ignore[arg-type]
    needs = needs_of(replace(unlocked, pin_memory=True), 224)
    assert (needs.locked_bytes, needs.shm_bytes) == (locked_bytes, shm_bytes)
    assert needs.memory_bytes - needs_of(unlocked, 224).memory_bytes == more_bytes
    assert needs_of(unlocked, 224).locked_bytes == 0


def test_max_ram_sees_page_locked_memory() -> None:
    pinned = replace(candidate(), pin_memory=True)
    small = replace(ROOMY, memory_available_bytes=2 << 30)
    assert obstacle(candidate(), 224, small) is None
    failure = obstacle(pinned, 224, small)
    assert failure is not None
    assert failure.kind == "lacks_memory"
    assert "2.06 GiB of it page-locked" in failure.message
    assert obstacle(replace(pinned, loader="threads"), 224, small) is None


@pytest.mark.parametrize("name", ["shm_free_bytes", "memory_available_bytes"])
def test_ranks_share_what_the_host_has(name: str) -> None:
    needs, more = needs_of(candidate(), 224), needs_of(candidate(), 224, runs_here=True)
    # Shared memory is each rank's own, of the other memory the libraries are there once.
    enough = {
        "shm_free_bytes": 4 * needs.shm_bytes, "memory_available_bytes": needs.memory_bytes + 3 * more.memory_bytes,
    }[name]  # fmt: skip
    assert obstacle(candidate(), 224, replace(ROOMY, **{name: enough}), 4) is None  # type: ignore[arg-type]
    failure = obstacle(candidate(), 224, replace(ROOMY, **{name: enough - 1}), 4)  # type: ignore[arg-type]
    assert failure is not None
    assert "for each of 4 ranks" in failure.message
    assert find_obstacles([candidate()], 224, replace(ROOMY, **{name: enough - 1}), 4)  # type: ignore[arg-type]


def test_the_workers_of_all_ranks_share_the_cores() -> None:
    space = Space(backends=("opencv",), workers=(0, 4), prefetch=(2,), batch_size=64, pin_memory=False, ranks=8)
    assert any("32 workers share 8 usable cores" in line for line in remarks(space, ROOMY, {}))
    assert not any("workers share" in line for line in remarks(replace(space, ranks=1), ROOMY, {}))
