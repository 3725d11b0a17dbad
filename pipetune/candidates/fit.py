"""Whether a candidate fits on this machine, decided before any process is started. Pure.

A loader that runs out of /dev/shm is ended by SIGBUS, one that runs out of memory by SIGKILL, and the time until then
is lost. A candidate that cannot run is skipped, with the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pipetune.candidates.space import Space
from pipetune.machine.host import Host
from pipetune.records.sweep import Candidate, Failure
from pipetune.registry import TORCH, find_backend, loader_for
from pipetune.units import format_bytes

#: Memory (PSS) of a child besides its batches, and of each loader worker: measured in sweeps with torch 2.14 on the CPU
#: and rounded down, so that no candidate is skipped that may fit.
_CHILD_BYTES = 350 << 20
_WORKER_BYTES = 40 << 20
#: Open files of a child that has imported torch, of each loader worker (its queues and sentinel), of the two batches in
#: transit whose tensors are open files (torch's file_descriptor strategy), and of each rank (a pipe): lower bounds.
_CHILD_FILES = 16
_WORKER_FILES = 3
_BATCH_FILES = 4
_RANK_FILES = 2
_LABEL_BYTES = 8
#: Number of loader workers per usable core above which there is a remark.
_MANY_PER_CORE = 2

#: Kinds of failures that are predicted here.
LACKS_SHARED_MEMORY, LACKS_OPEN_FILES, LACKS_MEMORY = "lacks_shared_memory", "lacks_open_files", "lacks_memory"

#: Batches that the training loop holds: the one that it works on, and the one before it, which its variables still
#: refer to while it asks for the next.
_IN_HAND = 2
#: Batches whose memory a CUDA device may still read. It comes back when all has ended that was queued when the loop
#: asked for the next batch (:mod:`pipetune.loaders.after_copies`): with two steps queued, as in the measured loop,
#: three batches are out. With fewer the loop would wait for its device.
_ON_THE_DEVICE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What one candidate needs while it runs."""

    batch_bytes: int
    shm_bytes: int
    """For batches in transit from loader workers, in /dev/shm; 0 without worker processes."""
    open_files: int
    """Of the training process; a lower bound."""
    memory_bytes: int
    """Of the training process and its workers; a lower bound."""
    locked_bytes: int
    """Page-locked, of ``memory_bytes``; 0 where batches do not go to a CUDA device."""


def needs_of(candidate: Candidate, image_size: int, *, runs_here: bool = False) -> Needs:
    """The needs of a candidate whose batches are ``[B, 3, image_size, image_size]`` and int64 labels.

    They go to a CUDA device where the candidate has page-locked memory.

    Args:
        runs_here: its training process is this one, which has what it needs besides the batches and workers already.
    """
    images_bytes = candidate.batch_size * 3 * image_size**2 * (1 if candidate.transfer == "uint8" else 4)
    batch_bytes = images_bytes + candidate.batch_size * _LABEL_BYTES
    loader = loader_for(candidate)
    processes = candidate.num_workers if loader.worker_kind == "process" else 0
    # Every worker fills its prefetch depth, and the training loop holds the batch it works on.
    in_memory = 1 + (
        candidate.prefetch_depth if loader.native_workers else candidate.num_workers * candidate.prefetch_depth
    )
    if candidate.pin_memory and find_backend(candidate.backend).decodes_on_cuda:
        in_memory = 0  # batches are made in the device's memory
    slots = ring_slots(candidate, on_gpu=candidate.pin_memory) if candidate.reuse_buffers and processes else None
    locked_bytes = 0
    if candidate.pin_memory and loader.name == TORCH and not candidate.reuse_buffers:
        # torch's thread copies each batch there, and its shared memory is free then.
        locked_bytes = in_memory * (_block(images_bytes) + _block(candidate.batch_size * _LABEL_BYTES))
    elif candidate.pin_memory and not loader.has_decoder:
        locked_bytes = (slots or in_memory) * batch_bytes  # a ring is locked as a whole
    return Needs(
        batch_bytes=batch_bytes,
        shm_bytes=(slots or in_memory) * batch_bytes if processes else 0,
        open_files=_CHILD_FILES + processes * _WORKER_FILES + (_BATCH_FILES if processes else 0),
        memory_bytes=(
            (0 if runs_here else _CHILD_BYTES) + processes * _WORKER_BYTES + (locked_bytes or in_memory * batch_bytes)
        ),
        locked_bytes=locked_bytes,
    )


def _block(size: int) -> int:
    """What torch takes of page-locked memory for so many bytes: a power of two."""
    return 1 << (size - 1).bit_length()


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """What the user grants a candidate; ``None``: all that the machine has."""

    memory_bytes: int | None = None
    """``--max-ram``."""
    shm_bytes: int | None = None
    """``--max-shm``."""


def obstacle(
    candidate: Candidate, image_size: int, host: Host, ranks: int = 1, *, runs_here: bool = False,
    granted: Granted | None = None,
) -> Failure | None:  # fmt: skip
    """Why the candidate cannot run on this host, with what it needs and what there is; ``None``: it can.

    Args:
        host: has no more memory than is granted.
        granted: where this is what is short, its option is named and not the machine.
        ranks: number of training processes that run it at the same time. They have the libraries in common.
        runs_here: its training process is this one (see :func:`needs_of`).
    """
    granted = granted or Granted()
    needs = needs_of(candidate, image_size, runs_here=runs_here)
    each = f", for each of {ranks} ranks" if ranks > 1 else ""
    batch, batches = format_bytes(needs.batch_bytes), needs.shm_bytes // needs.batch_bytes
    locked = f"; {format_bytes(needs.locked_bytes)} of it page-locked" if needs.locked_bytes else ""
    shm_bytes = ranks * needs.shm_bytes
    if host.shm_free_bytes is not None and shm_bytes > host.shm_free_bytes:
        # Both commands set the whole size, and what is in use now stays.
        used_bytes = max(0, (host.shm_total_bytes or host.shm_free_bytes) - host.shm_free_bytes)
        size = f"{_gibibytes(used_bytes + shm_bytes)}g"
        there = f"/dev/shm has {format_bytes(host.shm_free_bytes)} free"
        remedy = f"give it more (mount -o remount,size={size} /dev/shm, or docker run --shm-size={size})"
        if _is_limit(granted.shm_bytes, host.shm_free_bytes):
            there = f"--max-shm grants {format_bytes(host.shm_free_bytes)}"
            remedy = f"write --max-shm {_gibibytes(shm_bytes)}GiB"
        return _failure(
            LACKS_SHARED_MEMORY,
            shm_bytes,
            host.shm_free_bytes,
            f"needs {format_bytes(needs.shm_bytes)} of shared memory ({candidate.num_workers} workers x prefetch "
            f"{candidate.prefetch_depth} + {batches - candidate.num_workers * candidate.prefetch_depth} = {batches} "
            f"batches of {batch}{each}), {there}",
            f"{remedy}, or lower --workers, --prefetch or --batch-size",
        )
    open_files = needs.open_files + (_RANK_FILES * ranks if ranks > 1 else 0)
    if host.open_files_limit is not None and open_files > host.open_files_limit:
        return _failure(
            LACKS_OPEN_FILES,
            open_files,
            host.open_files_limit,
            f"needs at least {open_files} open files, the limit is {host.open_files_limit}",
            "raise it (ulimit -n 65536), or lower --workers or --prefetch",
        )
    memory_bytes = needs.memory_bytes + (ranks - 1) * needs_of(candidate, image_size, runs_here=True).memory_bytes
    if host.memory_available_bytes is not None and memory_bytes > host.memory_available_bytes:
        there, remedy = f"{format_bytes(host.memory_available_bytes)} are available", _more_memory(host, memory_bytes)
        if _is_limit(granted.memory_bytes, host.memory_available_bytes):
            there = f"--max-ram grants {format_bytes(host.memory_available_bytes)}"
            remedy = f"write --max-ram {_gibibytes(memory_bytes)}GiB, or "
        return _failure(
            LACKS_MEMORY,
            memory_bytes,
            host.memory_available_bytes,
            f"needs at least {format_bytes(memory_bytes)} of memory ({candidate.num_workers} workers, batches of "
            f"{batch}{locked}{each}), {there}",
            f"{remedy}lower --workers, --prefetch or --batch-size",
        )
    return None


def _is_limit(granted_bytes: int | None, available_bytes: int) -> bool:
    """Whether the user's limit, and not the machine, is what is short."""
    return granted_bytes is not None and granted_bytes <= available_bytes


def _more_memory(host: Host, memory_bytes: int) -> str:
    """How to be granted more memory: where the machine has it, and a control group's limit is what is short."""
    limit, total = host.memory_limit_bytes, host.memory_total_bytes
    if limit is None or host.memory_available_bytes is None or (total or 0) < memory_bytes:
        return ""
    size = _gibibytes(limit - host.memory_available_bytes + memory_bytes)
    return f"raise the limit (docker run --memory={size}g), or "


def find_obstacles(
    candidates: Iterable[Candidate], image_size: int, host: Host, ranks: int = 1, granted: Granted | None = None
) -> dict[Candidate, Failure]:
    """The candidates that cannot run here, with the reason; ``ranks`` run each of them at the same time."""
    found = {candidate: obstacle(candidate, image_size, host, ranks, granted=granted) for candidate in candidates}
    return {candidate: failure for candidate, failure in found.items() if failure is not None}


def remarks(space: Space, host: Host, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Remarks before the first candidate: cores and quota, threads and cores."""
    lines = []
    visible = len(host.cores_affinity)
    if host.cpu_quota_cores is not None and host.cpu_quota_cores < visible:
        threads = max(1, math.floor(host.cpu_quota_cores))
        lines.append(
            f"a CPU quota allows {host.cpu_quota_cores:g} of the {visible} visible cores, and worker counts go by it; "
            f"libraries that count cores start {visible} threads and are throttled: set OMP_NUM_THREADS={threads} in "
            "the training job"
        )
    largest = space.ranks * max(space.workers)
    if largest > _MANY_PER_CORE * math.ceil(host.cores_usable):
        lines.append(
            f"{largest} workers share {host.cores_usable:g} usable cores: more than can decode at the same time"
        )
    threads_set = environment.get("OMP_NUM_THREADS", "")
    if threads_set.isdecimal() and int(threads_set) > math.ceil(host.cores_usable):
        lines.append(f"OMP_NUM_THREADS={threads_set} is more than the {host.cores_usable:g} usable cores")
    return tuple(lines)


def _failure(kind: str, needed: int, available: int, message: str, hint: str) -> Failure:
    return Failure(kind=kind, phase="preflight", message=message, hint=hint, needed=needed, available=available)


def _gibibytes(size: int) -> int:
    return math.ceil(size / 2**30)


def ring_slots(candidate: Candidate, *, on_gpu: bool) -> int:
    """Number of batches for which the ring variant of the torch loader has shared memory."""
    return candidate.num_workers * candidate.prefetch_depth + beyond_workers(on_gpu=on_gpu)


def beyond_workers(*, on_gpu: bool) -> int:
    """Number of batches with memory of their own besides those that the workers have made or are making."""
    return _IN_HAND + (_ON_THE_DEVICE if on_gpu else 0)
