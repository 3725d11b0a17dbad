"""Chooses the first mechanism that this system allows, and settles what an earlier one has left."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipetune.errors import PipetuneError, UsageError
from pipetune.protection.contract import Protection, Request, Settled, Unavailable
from pipetune.protection.guard import open_guard, settle_guard
from pipetune.protection.kept_files import find_end_ns, settle_kept
from pipetune.protection.notify import open_supervised
from pipetune.protection.overlay import open_overlay
from pipetune.protection.settle_overlay import settle_overlay
from pipetune.protection.state import FOLDER, STATE, InUseError, ProtectionFolder
from pipetune.records.written import GUARD, OVERLAY, SUPERVISED, WrittenFiles

#: Environment variable with the names of the only mechanisms that may be tried, for tests: ``guard`` or
#: ``supervised,guard``.
ONLY = "PIPETUNE_PROTECTION"

#: Name -> begins protection, or raises Unavailable; in the order in which they are tried.
OPENERS: Mapping[str, Callable[[ProtectionFolder, Request], Protection]] = MappingProxyType(
    {OVERLAY: open_overlay, SUPERVISED: open_supervised, GUARD: open_guard}
)
#: Name -> puts back and moves what a killed pipetune has left, by what stands in the state.
SETTLERS: Mapping[str, Callable[[ProtectionFolder, Mapping[str, Any]], Settled]] = MappingProxyType(
    {
        OVERLAY: settle_overlay,
        SUPERVISED: lambda folder, _: settle_kept(folder, SUPERVISED, ended_ns=find_end_ns(folder)),
        GUARD: lambda folder, state: settle_guard(folder, state, find_end_ns(folder)),
    }
)


def choose_protection(run: Path, request: Request) -> Protection:
    """Begin the first mechanism that works here.

    Args:
        run: the run folder, locked by this process; what an earlier start has left in it is settled already.

    Raises:
        UsageError: none works here; it says why each does not.
        PipetuneError: the disk refuses.
    """
    allowed = [name for name in os.environ.get(ONLY, "").split(",") if name]
    folder = _open_folder(run)
    reasons = []
    for name, begin in OPENERS.items():
        if allowed and name not in allowed:
            continue
        try:
            return begin(folder, request)
        except Unavailable as reason:
            reasons.append(f"{name}: {reason}")
        except OSError as error:
            reasons.append(f"{name}: {error.strerror or error}")
    folder.close()
    raise UsageError(
        f"the files that your script may overwrite cannot be protected here ({'; '.join(reasons)})",
        hint="with --allow-writes it is tuned without protection: run it in a folder that does not matter",
    )


def is_unsettled(run: Path) -> bool:
    """Whether a pipetune that was killed has left something to put back in this run folder."""
    return (run / FOLDER).is_dir()


def puts_back_later(run: Path) -> bool:
    """Whether the sweep that runs in this folder has let its script change files, which it puts back at its end."""
    try:
        state = json.loads((run / FOLDER / STATE).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(state, dict) and state.get("mechanism") in (SUPERVISED, GUARD)


def settle_protection(run: Path) -> WrittenFiles | None:
    """Put back and move what a pipetune that was killed has left in a run folder; ``None``: there was nothing.

    Args:
        run: the run folder. It belongs to this user, because what stands in it decides which files are written.

    Raises:
        PipetuneError: processes of the script still run, another version of pipetune has begun it, or the disk refuses.
    """
    if not is_unsettled(run):
        return None
    folder = _open_folder(run)
    try:
        folder.require_ended()
    except InUseError:
        folder.close(keep=True)
        raise _in_use(run) from None
    state = folder.read_state()
    settle = None if state is None else SETTLERS.get(str(state.get("mechanism")))
    if state is None or settle is None:
        has_state = (folder.path / STATE).exists()
        folder.close(keep=has_state)
        if not has_state:
            return None
        raise PipetuneError(
            f"{folder.path / STATE} cannot be read: files of yours may be as a killed sweep has left them",
            hint=f"use the version of pipetune that made it; the first versions are in {folder.path}",
        )
    is_complete = False
    try:
        written, is_complete = settle(folder, state)
    finally:
        folder.close(keep=not is_complete)
    return written


def _open_folder(run: Path) -> ProtectionFolder:
    try:
        return ProtectionFolder(run)
    except InUseError:
        raise _in_use(run) from None
    except OSError as error:
        raise PipetuneError(f"cannot write to {run}: {error.strerror}", hint="check its permissions") from error


def _in_use(run: Path) -> PipetuneError:
    return PipetuneError(
        f"processes of the script in {run} still run", hint="end them, then write the same command again"
    )
