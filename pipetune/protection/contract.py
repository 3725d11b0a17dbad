"""What every mechanism of protection offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from pipetune.records.written import WrittenFiles


class Unavailable(Exception):
    """This system does not allow a mechanism; the message is the reason, without a full stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be protected."""

    command: tuple[str, ...]
    """As the user wrote it: folders that it names are of interest."""
    cwd: Path
    """In which it is started; absolute."""
    open_places: tuple[Path, ...] = ()
    """Folders in which writing takes effect at once: pipetune's own. Absolute. This process's temporary
    folders (:func:`pipetune.processes.temporary_folder.prefix_of_folders`) are among them, also later ones."""


class Settled(NamedTuple):
    """What came of putting back and moving."""

    written: WrittenFiles
    is_complete: bool
    """``False``: something could not be put back or moved; what the mechanism has stored is still needed."""


class Protection(Protocol):
    """A mechanism at work, from before the first start of a script until after its last end."""

    mechanism: str
    """See :class:`pipetune.records.written.WrittenFiles`."""

    def wrap(self, command: Sequence[str]) -> list[str]:
        """The command that starts another one under protection: the process becomes that command (``exec``).

        Its standard streams, signals, exit code, working folder and user stay what they are without protection.
        """

    def variables(self) -> dict[str, str]:
        """Variables that the command needs in its environment."""

    def pulse_fd(self) -> int:
        """Descriptor of a file that a start's supervisor keeps open, and whose time it sets, until all has ended."""

    def require_room(self) -> None:
        """Refuse to go on where the disk that takes what the script writes is nearly full. May be called often.

        Raises:
            DiskNearlyFullError: see :class:`pipetune.protection.room.RoomWatch`.
        """

    def collect(self) -> WrittenFiles:
        """Put back what existed, move what is new to its place, and list both. Every start has ended.

        May be called again: what is done stays done. Never raises for a file: see :attr:`WrittenFiles.notes`.
        """

    def close(self) -> None:
        """Give up the lock, and remove what the mechanism has stored, unless something could not be put back."""
