"""Where this user's data and cache lie: ``XDG_DATA_HOME`` and ``XDG_CACHE_HOME``, ``HOME``, then the list of users.

A container is often started under a user ID that no list of users knows, and without ``HOME``. Such a user has no
folders: what would be read from there is not installed, and what has to be written there is refused with a hint.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pipetune.errors import UsageError


def data_folder() -> Path | None:
    """Where libraries lie that pipetune has built; ``None``: this user has no folder."""
    import platformdirs

    return _folder(lambda: platformdirs.user_data_dir("pipetune", appauthor=False))


def cache_folder() -> Path | None:
    """Where lies what can be made again; ``None``: this user has no folder."""
    import platformdirs

    return _folder(lambda: platformdirs.user_cache_dir("pipetune"))


def no_folder(what: str, variable: str) -> UsageError:
    """The error where one of them is needed and this user has none.

    Args:
        what: needs it, e.g. ``synthetic images``.
        variable: of the environment, that names a folder.
    """
    return UsageError(
        f"there is no place for {what}: HOME is not set, and the system knows no user {os.geteuid()}",
        hint=f"set {variable} to a folder that you may write to",
    )


def _folder(find: Callable[[], str]) -> Path | None:
    try:
        found = Path(find())
    except (RuntimeError, KeyError, OSError):  # as pathlib and pwd say that there is no home
        return None
    return found if found.is_absolute() else None  # older versions leave "~" as it is
