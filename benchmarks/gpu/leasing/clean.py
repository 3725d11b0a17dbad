"""Takes out of texts what would tell on which machine, and in whose folders, a result was measured.

Results are tracked. A host's name, a user's folders, serial numbers and UUIDs of devices say nothing about pipetune.
"""

from __future__ import annotations

import re
import socket
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.bench import ROOT

#: Absolute folders in a text. Those of the operating system are the same everywhere, and say which library was used.
_FOLDERS = re.compile(r"(?<![\w.:/<])/(?!(?:usr|lib|lib64|dev|proc|sys|etc|opt|bin)/)(?:[^\s/'\":,()<>\\]+/)+")
#: ``GPU-5d7a…`` and ``MIG-…`` (NVML's spelling), also without the prefix.
_UUIDS = re.compile(r"\b(?:GPU-|MIG-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
#: Lines of ``nvidia-smi -q``.
_NUMBERS = re.compile(r"((?:Serial Number|Board ID|GPU PDI|Chassis Serial Number)\s*: ).*")
#: A name that is shorter would be found in words.
_MIN_HOST_NAME = 4


def clean_text(text: str) -> str:
    """The text without the host's name, absolute folders, serial numbers and UUIDs; for logs and JSON."""
    return _FOLDERS.sub("…/", clean_names(text))


def clean_names(text: str) -> str:
    """The text without this process's host and folders, and without UUIDs: safe for pages, too, which have tags."""
    for name, instead in _names():
        text = text.replace(name, instead)
    if (host := _host()) is not None:
        text = host.sub("host", text)
    return _NUMBERS.sub(r"\1…", _UUIDS.sub("UUID", text))


def clean_json(value: Any) -> Any:
    """A JSON value whose texts are clean; hosts' names go with their keys."""
    if isinstance(value, dict):
        return {clean_text(str(key)): clean_json(inner) for key, inner in value.items() if key != "hostname"}
    if isinstance(value, list | tuple):
        return [clean_json(inner) for inner in value]
    return clean_text(value) if isinstance(value, str) else value


@cache
def _names() -> tuple[tuple[str, str], ...]:
    """Folders of this process, the longest first, and what is written instead."""
    named = {
        str(ROOT): "CHECKOUT",
        sys.prefix: "PYTHON",
        sys.base_prefix: "PYTHON",
        tempfile.gettempdir(): "TMP",
        str(Path.home()): "HOME",
    }
    kept = {name: instead for name, instead in named.items() if name.count("/") > 1 or instead == "TMP"}
    return tuple(sorted(kept.items(), key=lambda item: -len(item[0])))


@cache
def _host() -> re.Pattern[str] | None:
    name = socket.gethostname()
    if len(name) < _MIN_HOST_NAME or name == "localhost":
        return None
    return re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
