"""The settings of a candidate as a script's loader gets them: what differs from its own, and the profile of a start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pipetune.candidates.settings import SIMD
from pipetune.install.find import is_simd
from pipetune.measure.script.pil import pil_for_hook
from pipetune.measure.script.protocol import FROM_START
from pipetune.measure.script.ready import ScriptError, not_applied
from pipetune.measure.script.session import ScriptSession
from pipetune.records.script import ScriptLoader
from pipetune.records.sweep import Candidate, Failure


def find_changed_settings(candidate: Candidate, own: Candidate, loader: ScriptLoader | None) -> dict[str, Any]:
    """What a candidate changes of a script's loader, under torch's names; ``{}``: it is the script's own.

    Args:
        own: what the script has.
        loader: of the script; ``None``: it was not started yet.
    """
    changed: dict[str, Any] = {}
    if (candidate.num_workers, candidate.prefetch_depth) != (own.num_workers, own.prefetch_depth):
        changed["num_workers"] = candidate.num_workers
        changed["prefetch_factor"] = candidate.prefetch_depth if candidate.num_workers else None
    script = {} if loader is None else loader.settings
    for name in ("pin_memory", "in_order", "start_method", "worker_cores", "opencv_threads", "decoder"):
        now = getattr(own, name)
        if name in ("in_order", "start_method"):
            if not candidate.num_workers:
                continue
            # Without workers its own candidate has none, and the script has one for workers that it would start.
            now = now if own.num_workers or script.get(name) is None else script[name]
        if getattr(candidate, name) not in (now, SIMD):
            changed[name] = getattr(candidate, name)
    if candidate.keep_workers:
        changed["persistent_workers"] = True
    return changed


def make_profile(
    loader: ScriptLoader | None, settings: Mapping[str, Any], *, simd: bool, request: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """The settings as the hook applies them when the loader is made; ``None``: there are none.

    Args:
        simd: Pillow-SIMD is to take the place of Pillow.
        request: is measured from the loader's first batch on; ``None``: what to measure is asked for.

    Raises:
        ScriptError: the loader cannot be recognised in another start.
    """
    pil = {"pil": pil_for_hook()} if simd else {}
    if not settings and request is None:
        return {"loaders": [], **pil} if simd else None
    asked = {} if request is None else {FROM_START: dict(request)}
    if not settings and (loader is None or loader.identity is None):
        return {"loaders": [], **pil}  # it is recognised by its training
    if loader is None or loader.identity is None:
        raise ScriptError("the script's loader is made where no call of the script's can be seen")
    tuned = {"identity": asdict(loader.identity), "settings": dict(settings), "alone_there": loader.alone_there}
    return {"loaders": [tuned], **pil, **asked}


def why_not_applied(
    settings: Mapping[str, Any], loader: ScriptLoader | None, session: ScriptSession, *, simd: bool
) -> Failure | None:
    """Why a fresh start does not have the settings that it was to have; ``None``: it has them."""
    ready = session.ready[0].ready or {}
    differs = not_applied(settings, loader, ready)
    if differs is not None:
        return Failure(
            kind="usage", phase="open", hint="does the script make other loaders the first time?",
            message=f"the script's loader was not recognised in another start: it has {differs}",
        )  # fmt: skip
    if simd and not is_simd(ready.get("pil") or ""):
        return Failure(kind="usage", phase="open", message=f"the script has imported another PIL ({ready.get('pil')})",
                       hint="is its own folder of packages put first on sys.path?")  # fmt: skip
    return None
