"""Tuned settings, applied to the arguments of a loader that is being made. Imports no torch.

A profile is JSON: the loaders that it is for, by identity, with the settings that each gets. A fresh start of a sweep
and ``pipetune run --tuned`` apply it in the same way, at construction, so that nothing stands between the loader and
the training loop afterwards.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipetune.hook.registry import Known, reference_to
from pipetune.records.script import LoaderIdentity
from pipetune.usercode.loader_view import worker_init_for
from pipetune.usercode.worker_start import worker_start


@dataclass(frozen=True, slots=True)
class Tuned:
    """One loader of a profile."""

    identity: LoaderIdentity
    settings: Mapping[str, Any]
    """Under the names of torch's ``DataLoader``: those to change."""
    alone_there: bool
    """No other loader was made by the same call."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What is applied."""

    loaders: tuple[Tuned, ...]
    checks: Mapping[str, Any]
    """What has to be as it was: see :func:`pipetune.hook.tuned.misfit`."""
    pil: Mapping[str, str] | None = None
    """Where the ``PIL`` is that takes the place of the script's: ``folder``, and ``tag`` of the Python that it is for;
    ``None``: the script's own stays."""


def read_profile(path: str) -> Profile:
    """The profile in a file.

    Raises:
        OSError, ValueError, KeyError, TypeError: it cannot be read, or is none.
    """
    stored = json.loads(Path(path).read_text(encoding="utf-8"))
    return Profile(
        tuple(
            Tuned(identity_of(one["identity"]), dict(one["settings"]), bool(one.get("alone_there", False)))
            for one in stored["loaders"]
        ),
        dict(stored.get("checks", {})),
        stored.get("pil"),
    )


def use_pil(profile: Profile) -> str | None:
    """Have ``import PIL`` find the profile's; returns why not, if there is one and this Python cannot load it."""
    if profile.pil is None:
        return None
    tag = profile.pil["tag"]
    if tag != sys.implementation.cache_tag:
        return f"it was built for {tag}, and this is {sys.implementation.cache_tag}"
    sys.path.insert(0, profile.pil["folder"])
    return None


def identity_of(stored: Mapping[str, Any]) -> LoaderIdentity:
    """An identity from JSON."""
    line, column = stored["position"]
    return LoaderIdentity(
        file=str(stored["file"]), function=str(stored["function"]), dataset=str(stored["dataset"]),
        sampler=str(stored["sampler"]), ordinal=int(stored["ordinal"]), position=(int(line), int(column)),
    )  # fmt: skip


#: Settings that are no arguments of ``DataLoader``.
NOT_ARGUMENTS = ("worker_cores", "opencv_threads", "decoder")


class Matcher:
    """Finds the settings of a loader that is being made."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._matched: dict[LoaderIdentity, list[Callable[[], Any]]] = {}
        """References to the data sets of loaders that were matched."""
        self.matched: set[LoaderIdentity] = set()
        """Identities of the profile whose loader was made."""

    def find(self, known: Known, dataset: Any) -> Tuned | None:
        """The entry of the profile that is for this loader; ``None``: there is none.

        Its identity is the same; or it is made again, from the same data set, or by a call that makes only this one.
        """
        for tuned in self._profile.loaders:
            wanted, found = tuned.identity, known.identity
            if wanted.key != found.key:
                continue
            same_set = any(there() is dataset for there in self._matched.get(wanted, ()))
            same_call = tuned.alone_there and wanted.position == found.position
            if wanted.ordinal == found.ordinal or same_set or same_call:
                others = [
                    one for one in self._matched.get(wanted, ()) if (at := one()) is not None and at is not dataset
                ]
                self._matched[wanted] = [*others, reference_to(dataset)]
                self.matched.add(wanted)
                return tuned
        return None


def applied(
    arguments: Mapping[str, Any], settings: Mapping[str, Any], all_cores: tuple[int, ...] | None = None
) -> dict[str, Any]:
    """The arguments of ``DataLoader`` with settings in place of some, so that torch accepts them together.

    Without workers torch refuses ``prefetch_factor``, ``persistent_workers`` and ``multiprocessing_context``.

    Args:
        arguments: by name, as the script passes them.
        all_cores: that the process began with.
    """
    workers = {name: settings[name] for name in NOT_ARGUMENTS if name in settings}
    changed = {**arguments, **{name: value for name, value in settings.items() if name not in workers}}
    start = arguments.get("worker_init_fn")
    before, now = int(arguments.get("num_workers") or 0), int(changed.get("num_workers") or 0)
    changed["worker_init_fn"] = worker_start(worker_init_for(start, before, now), workers, all_cores)
    if "start_method" in changed:
        changed["multiprocessing_context"] = changed.pop("start_method")
    if not changed.get("num_workers"):
        changed["prefetch_factor"] = None
        changed["multiprocessing_context"] = None
        changed["persistent_workers"] = False
        changed["timeout"] = 0
    return {name: value for name, value in changed.items() if name in arguments or value is not None}
