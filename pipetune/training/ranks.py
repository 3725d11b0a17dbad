"""The ranks that train together: which one this process is, and whether all of them see the same images."""

from __future__ import annotations

import os
import sys
from typing import Any

from pipetune.datasets.index import ImageSet
from pipetune.errors import PipetuneError, UsageError


def place_of(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Number of this process and of all: as given, or those of ``torch.distributed`` or of JAX, where the program uses
    several processes of theirs, or those that torchrun has set.

    Raises:
        UsageError: only one was given, or there is no such rank.
    """
    if (rank is None) != (world_size is None):
        raise UsageError("rank and world_size belong together", hint="give both or none")
    if rank is None or world_size is None:
        rank, world_size = _of_program() or (_number("RANK", "0"), _number("WORLD_SIZE", "1"))
    if not 0 <= rank < world_size:
        raise UsageError(f"rank {rank} of {world_size} does not exist", hint="ranks are numbered from 0")
    return rank, world_size


def _of_program() -> tuple[int, int] | None:
    """The place in the processes that this program has joined; ``None``: in none, or nothing of the kind is imported.

    Nothing is imported here: a program that has joined any has imported what it did so with.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    jax = sys.modules.get("jax")
    if jax is not None:
        joined = getattr(getattr(jax, "distributed", None), "is_initialized", None)
        # An older JAX cannot be asked that, and counts its processes, which takes its devices.
        if joined is None or joined():
            return jax.process_index(), jax.process_count()
    return None


def _number(name: str, otherwise: str) -> int:
    text = os.environ.get(name) or otherwise
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name}={text!r} in the environment is no number", hint="give rank and world_size") from None


def agree(images: ImageSet | None, failure: Exception | None) -> None:
    """Compare what the ranks of ``torch.distributed`` have found, where its process group is there already.

    Why: a file that one rank cannot see gives it fewer batches, so that training hangs at the end of the epoch, or
    other numbers of classes. Every rank takes part, also one that has failed: the others would wait for it.

    Args:
        images: that this rank has found; ``None``: it has failed.
        failure: why; it is raised once the others know.

    Raises:
        PipetuneError: another rank has failed, or sees other images.
    """
    own = None if images is None else (images.fingerprint, len(images.images), images.classes)
    found = _of_all_ranks((own, None if failure is None else _said(failure)))
    if failure is not None:
        raise failure
    for rank, (one, reason) in enumerate(found):
        if one is None:
            raise PipetuneError(f"rank {rank}: {reason[0]}", hint=reason[1])
        if one != found[0][0]:
            seen = [f"{count} in {len(classes)} classes" for _, count, classes in (found[0][0], one)]
            raise PipetuneError(
                f"ranks see other images: rank 0 has {seen[0]}, rank {rank} has {seen[1]}",
                hint="give every rank the same files; wait until a copy has ended",
            )


def _said(failure: Exception) -> tuple[str, str | None]:
    """What other ranks say of a failure, and their hint."""
    if isinstance(failure, PipetuneError):
        return failure.message, failure.hint
    return f"{type(failure).__name__}: {failure}", None


def _of_all_ranks(own: Any) -> list[Any]:
    """What each rank has; empty where this process is alone, or the group is of another kind."""
    distributed = sys.modules.get("torch.distributed")
    if (
        distributed is None
        or not distributed.is_available()
        or not distributed.is_initialized()
        or distributed.get_world_size() < 2
    ):
        return []
    if not distributed.is_gloo_available():
        return []
    # A group on the CPU: of NCCL's each rank would have to have chosen its GPU by now.
    group = distributed.new_group(backend="gloo")
    try:
        found: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(found, own, group=group)
        return found
    finally:
        distributed.destroy_process_group(group)
