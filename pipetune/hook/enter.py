"""The hook's way into a process: called by ``sitecustomize`` at the start of each interpreter of the user's command.

``PIPETUNE_HOOK`` is ``relay:FOLDER`` while pipetune measures (the folder has a socket and, in a fresh start, the
settings to apply), or ``tuned:FILE`` when the script trains with what was found.
"""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
from collections.abc import Iterator

from pipetune.measure.script.protocol import RELAY, TUNED
from pipetune.protection.state import KEEP

#: What each kind of guest needs, imported at once: later, the script's folder comes first on the import path.
_MODULES = {
    RELAY: ("pipetune.hook.session", "pipetune.hook.relay", "pipetune.hook.quiet"),
    TUNED: ("pipetune.hook.tuned",),
}


def enter(value: str, before: set[str]) -> None:
    """Prepare this process.

    Args:
        value: of the environment variable.
        before: names of the modules that were imported before this one, which imports some itself.
    """
    kind, _, place = value.partition(":")
    path = list(sys.path)
    # Of our imports, none may find a module of the script's that has the name of one of Python's.
    sys.path[:] = [entry for entry in path if entry in _standard_places()]
    try:
        modules = [importlib.import_module(name) for name in _MODULES[kind]]
        kept = os.environ.get(KEEP)
        if kept:
            importlib.import_module("pipetune.hook.keep_files").enter(kept)
    finally:
        sys.path[:] = path
    forget_shadowed(set(sys.modules) - before, list(script_places()))
    modules[0].enter(place)


def _standard_places() -> set[str]:
    places = sysconfig.get_paths()
    library = places["stdlib"]
    zipped = f"{sys.base_prefix}/lib/python{sys.version_info[0]}{sys.version_info[1]}.zip"
    return {library, places["platstdlib"], f"{library}/lib-dynload", f"{places['platstdlib']}/lib-dynload", zipped}


def script_places() -> Iterator[str]:
    """Folders that come before the standard library when the script imports something."""
    script = sys.argv[0] if sys.argv else ""  # set before site is imported; "-c", "-m" or "" where there is none
    if not sys.flags.safe_path:
        yield os.getcwd() if script in ("", "-", "-c", "-m") else os.path.dirname(os.path.realpath(script))
    yield from filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))


def forget_shadowed(names: set[str], places: list[str]) -> None:
    """Forget modules of Python's that we have imported, where the script has one of that name, which it would get."""
    for name in names:
        top = name.partition(".")[0]
        if top == "pipetune":
            continue
        if any(os.path.exists(f"{place}/{top}.py") or os.path.isdir(f"{place}/{top}") for place in places):
            sys.modules.pop(name, None)
