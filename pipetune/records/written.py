"""What a script wrote while it was tuned. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

#: Names of the mechanisms, in the order in which they are tried, and of the absence of one.
OVERLAY, SUPERVISED, GUARD, UNPROTECTED = "overlay", "supervised", "guard", "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFiles:
    """Files that a script made, changed or removed: absolute paths, each tuple sorted."""

    mechanism: str
    """What kept files harmless that existed before: ``overlay``, ``supervised``, ``guard``, or ``none``
    (``--allow-writes``: the files are as the script left them)."""
    created: tuple[str, ...] = ()
    """Files that did not exist before. They are where the script wrote them."""
    changed: tuple[str, ...] = ()
    """Files that existed before, and were written, replaced, or got another mode or time."""
    removed: tuple[str, ...] = ()
    """Files that existed before, and were removed or renamed."""
    unrestored: tuple[str, ...] = ()
    """Those of the changed and removed ones that could not be put back; a note says why."""
    notes: tuple[str, ...] = ()
    """What could not be put back or moved, or is not known, one sentence each."""

    def __bool__(self) -> bool:
        return bool(self.created or self.changed or self.removed or self.notes)


def merge_written(first: WrittenFiles, then: WrittenFiles) -> WrittenFiles:
    """What was written in one go and in a later one."""

    def join(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted({*one, *other}))

    return WrittenFiles(
        mechanism=then.mechanism,
        created=join(first.created, then.created),
        changed=join(first.changed, then.changed),
        removed=join(first.removed, then.removed),
        unrestored=join(first.unrestored, then.unrestored),
        notes=tuple(dict.fromkeys((*first.notes, *then.notes))),
    )
