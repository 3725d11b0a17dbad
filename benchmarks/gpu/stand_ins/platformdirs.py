"""Stands in for the package platformdirs on a machine that lacks it and can install nothing.

The two functions that pipetune calls, as they are on Linux. ``benchmarks/gpu/suite.py`` puts this folder on the path
only where the real package is absent, and says so in its result.
"""

from __future__ import annotations

import os


def user_cache_dir(appname: str, appauthor: object = None) -> str:
    """``$XDG_CACHE_HOME/APPNAME``, or below ``~/.cache``."""
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), appname)


def user_data_dir(appname: str, appauthor: object = None) -> str:
    """``$XDG_DATA_HOME/APPNAME``, or below ``~/.local/share``."""
    return os.path.join(os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"), appname)
