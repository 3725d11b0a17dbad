"""Pillow-SIMD in a process of the user's script, in place of the Pillow that it has.

The hook puts the folder of it first on the import path. Not PYTHONPATH: another Python that the command starts could
not load it, and would have no Pillow at all.
"""

from __future__ import annotations

import sys

from pipetune.errors import UsageError
from pipetune.install.find import PILLOW_SIMD, Pillow, find_pillow_simd, is_simd, side_directory, why_refused
from pipetune.records.script import ScriptLoader


def pil_for_hook() -> dict[str, str]:
    """What the hook is told: the folder, and the Python that it is for.

    Raises:
        UsageError: it is not installed any more, or others could have written it.
    """
    found = find_pillow_simd()
    if found is None:
        refused = why_refused(side_directory(PILLOW_SIMD))
        raise UsageError("Pillow-SIMD is not installed" if refused is None else f"Pillow-SIMD is not used: {refused}",
                         hint="pipetune doctor --install pillow-simd")  # fmt: skip
    return {"folder": found.folder, "tag": sys.implementation.cache_tag}


def why_no_simd(loader: ScriptLoader, installed: Pillow | None) -> str | None:
    """Why Pillow-SIMD is not tried in a script; ``None``: it can be.

    Args:
        installed: what :func:`pipetune.install.find.find_pillow_simd` has found.
    """
    if loader.pil is None:
        return "the script has not imported PIL"
    if is_simd(loader.pil):
        return f"the script has it already ({loader.pil})"
    if installed is None:
        return "it is not installed: pipetune doctor --install pillow-simd"
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if loader.python.split(".")[:2] != ours.split("."):
        return f"it was built for Python {ours}, and the script runs under {loader.python}"
    return None
