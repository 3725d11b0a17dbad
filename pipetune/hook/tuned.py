"""Gives a script's loaders the settings that a sweep has found, when they are made; nothing stays in the loop.

One line per loader says what was changed, or why it was left as it is, on standard error of the first rank.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import multiprocessing
import os
import sys
import weakref
from collections.abc import Mapping
from types import FrameType, ModuleType
from typing import Any

from pipetune.hook import dali, fastai, ffcv
from pipetune.hook.built import Library, SettingsFor, patch_constructor
from pipetune.hook.profile import Matcher, Profile, Tuned, applied, read_profile, use_pil
from pipetune.hook.registry import Known, Loaders
from pipetune.hook.seams import DATALOADER, STATEFUL, GetIterator, patch_loader, sampler_class, when_imported

_CONTEXT = "multiprocessing_context"
#: Arguments that may be changed, with torch's defaults: what a loader gets back whose state asks for its own workers.
_RESTORED: dict[str, Any] = {
    "num_workers": 0, "prefetch_factor": None, "pin_memory": False, "persistent_workers": False, "in_order": True,
    "timeout": 0, "worker_init_fn": None, _CONTEXT: None,
}  # fmt: skip
#: What is shown of a loader, in this order.
_SHOWN = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "in_order", "multiprocessing_context")


def enter(place: str) -> None:
    """Read the settings, and wait for torch's loader to be imported."""
    try:
        guest = _Guest(read_profile(place))
    except FileNotFoundError:  # the run folder was removed since
        # A loader's spawned workers, which would each say it again, are started with this word.
        if "--multiprocessing-fork" not in sys.orig_argv:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                sys.stderr.write(f"pipetune: this process trains with its own settings: {place} is gone\n")
        return
    when_imported((DATALOADER, STATEFUL, fastai.LOAD, dali.PIPELINE, ffcv.LOADER), guest.on_module)


def misfit(profile: Profile, cores_at_start: int) -> str | None:
    """Why nothing is changed here; ``None``: this is what it was measured with."""
    refused = profile.checks.get("refused")
    if refused:
        return str(refused)
    cores = profile.checks.get("cores")
    if cores is not None and cores != cores_at_start:
        return f"it was measured with {cores} cores, and this process has {cores_at_start}"
    ranks, now = profile.checks.get("ranks"), ranks_here()
    if ranks is not None and now is not None and ranks != now:
        return f"it was measured with {ranks} rank{'s' * (ranks != 1)} on this host, and {now} train now"
    torch, was = sys.modules.get("torch"), profile.checks.get("torch")
    if torch is not None and was is not None and str(torch.__version__) != was:
        return f"it was measured with torch {was}, and this is {torch.__version__}"
    return None


def ranks_here() -> int | None:
    """Training processes on this host, as torchrun says, or torch, where there is one host; ``None``: not known."""
    said = os.environ.get("LOCAL_WORLD_SIZE", "")
    if said.isdecimal():
        return int(said)
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    if os.environ.get("SLURM_STEP_NUM_NODES", "1") != "1":
        return None
    return int(distributed.get_world_size())


class _Guest:
    """See :class:`pipetune.hook.seams.Guest`."""

    def __init__(self, profile: Profile) -> None:
        self._profile, self._matcher, self._loaders = profile, Matcher(profile), Loaders()
        self._reported: set[str] = set()
        self._cores = tuple(sorted(os.sched_getaffinity(0)))
        self._to_decode: dict[int, Known] = {}
        self._before: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()
        self._collected = False
        self._no_pil = None if misfit(profile, len(self._cores)) else use_pil(profile)

    def on_module(self, module: ModuleType) -> None:
        """torch's loader, or torchdata's, has been imported."""
        kind: Any
        if module.__name__ == fastai.LOAD:
            fastai.patch_load(module, self, self._left, iterators=False)
            return
        if module.__name__ == dali.PIPELINE:
            self._patch_built(module.Pipeline, dali.LIBRARY)
            return
        if module.__name__ == ffcv.LOADER:
            self._patch_built(module.Loader, ffcv.LIBRARY)
            return
        if module.__name__ == STATEFUL:
            kind = module.StatefulDataLoader
            self._leave_states_alone(kind)
        else:
            kind = module.DataLoader
            atexit.register(self._at_exit)
        decodes = any(one.settings.get("decoder") == "crop" for one in self._profile.loaders)
        patch_loader(kind, self, self._left, iterators=decodes)

    def _left(self, error: BaseException) -> None:
        self._say(f"a loader was left as it is: {error}")

    def arguments(self, frame: FrameType | None, arguments: dict[str, Any]) -> tuple[dict[str, Any] | None, Any]:
        """The arguments with the tuned settings."""
        dataset = arguments.get("dataset")
        known = self._loaders.identify(frame, dataset, sampler_class(arguments))
        tuned = None if known is None else self._matcher.find(known, dataset)
        if known is None or tuned is None:
            return None, None
        reason = misfit(self._profile, len(self._cores))
        if reason is not None:
            self._say(f"{_place(known)}: left as it is: {reason}")
            return None, None
        changed = applied(arguments, tuned.settings, self._cores)
        self._say(f"{_place(known)}: {_difference(arguments, changed, tuned.settings)}{self._of_pil()}")
        if tuned.settings.get("decoder") == "crop":
            self._to_decode[id(dataset)] = known
        return changed, (known, tuned, arguments)

    def _patch_built(self, kind: Any, library: Library) -> None:
        patch_constructor(kind, library, self._settings_for(library), lambda _: None, self._left)

    def _settings_for(self, library: Library) -> SettingsFor:
        """The tuned settings of another library's loader that is being made."""

        def settings_for(frame: FrameType | None, given: Mapping[str, Any]) -> Mapping[str, Any] | None:
            reads = library.reads()
            known = self._loaders.identify(frame, reads, library.name)
            tuned = None if known is None else self._matcher.find(known, reads)
            if known is None or tuned is None:
                return None
            reason = misfit(self._profile, len(self._cores))
            if reason is not None:
                self._say(f"{_place(known)}: left as it is: {reason}")
                return None
            before = {**library.defaults, **given}
            parts = [
                f"{own} {before.get(own)} -> {new}"
                for own, new in library.changed(tuned.settings).items()
                if before.get(own) != new
            ]
            self._say(f"{_place(known)}: {', '.join(parts) or 'has these settings already'}")
            return tuned.settings

        return settings_for

    def _of_pil(self) -> str:
        """What became of the other Pillow, to be added to a loader's line."""
        pil = self._profile.pil
        if pil is None:
            return ""
        package = sys.modules.get("PIL")
        found = str(getattr(package, "__file__", "")).startswith(pil["folder"])
        reason = self._no_pil or ("PIL is not imported yet" if package is None else "the script imports another PIL")
        return f", Pillow-SIMD {package.__version__}" if package and found else f", without Pillow-SIMD: {reason}"

    def made(self, loader: Any, known: tuple[Known, Tuned, dict[str, Any]]) -> None:
        """Collect garbage before the first workers; remember what a loader with a state of its own would have had.

        Python goes through all objects once a quarter as many have come to those that stay. A process that torch's
        imports have left just below that, to which ours add, has each worker do so in its first moments, in every
        epoch, and copy the memory that it shares: 0.2 s of 1.5 s, measured with 64 batches. Afterwards none is due.
        """
        if not self._collected and bool(getattr(loader, "num_workers", 0)):
            self._collected = True
            gc.collect()
        if hasattr(loader, "load_state_dict"):
            own = {name: known[2].get(name, default) for name, default in _RESTORED.items()}
            self._before[loader] = {**own, "where": _place(known[0])}

    def iterator(self, loader: Any, original: GetIterator) -> Any:
        """torch's own; before the first one of a loader that gets another decoder, that is put in.

        Not when the loader is made, because some scripts set their transforms later.
        """
        known = self._to_decode.pop(id(loader.dataset), None)
        if known is not None:
            from pipetune.hook.decoder import NotPossibleError, swap_for

            try:
                swap = swap_for(loader.dataset)
                swap.put_in()
                self._say(f"{_place(known)}: jpeg-roi decodes the crops ({min(swap.psnr_db, 99):.0f} dB on its files)")
            except NotPossibleError as error:
                self._say(f"{_place(known)}: its own decoder is left, because {error}")
            except Exception as error:  # of the user's data set, which differs from the sweep's
                self._say(f"{_place(known)}: its own decoder is left, because of {type(error).__name__}: {error}")
        return original(loader)

    def _leave_states_alone(self, kind: Any) -> None:
        """A state that was saved with as many workers as the script has is not resumed with others: that loader gets
        its own settings back. One that was saved with those that were found keeps them."""
        load = kind.load_state_dict

        def load_state_dict(loader: Any, *args: Any, **kwargs: Any) -> Any:
            saved = _workers_of_state(args[0] if args else kwargs.get("state_dict"))
            before = self._before.get(loader)
            if before is not None and saved == before["num_workers"] != loader.num_workers:
                del self._before[loader]
                workers = before["num_workers"]
                before["prefetch_factor"] = (before["prefetch_factor"] or 2) if workers else None
                # Not by setattr: torch refuses to change some of them.
                vars(loader).update({name: before[name] for name in _RESTORED if name != _CONTEXT})
                loader.multiprocessing_context = before[_CONTEXT]
                self._say(f"{before['where']}: left as it is: a state is loaded, which asks for {workers} workers")
            return load(loader, *args, **kwargs)

        kind.load_state_dict = load_state_dict

    def _at_exit(self) -> None:
        spawned = multiprocessing.parent_process() is not None  # a loader worker, say
        if not self._matcher.matched and self._loaders.count and not spawned:
            names = ", ".join(f"{one.identity.file}, {one.identity.function}" for one in self._profile.loaders)
            self._say(
                f"nothing was changed: none of {self._loaders.count} loaders that were made is the one of {names}"
            )

    def _say(self, line: str) -> None:
        if line in self._reported or os.environ.get("LOCAL_RANK", "0") != "0":
            return
        self._reported.add(line)
        with contextlib.suppress(OSError, ValueError, AttributeError):  # it may be lost, the script goes on
            sys.stderr.write(f"pipetune: {line}\n")


def _workers_of_state(state: Any) -> int | None:
    """Workers that a state of a ``StatefulDataLoader`` was saved with; ``None``: it is empty, or of another form.

    Source: torchdata's stateful_dataloader.py: the main process's snapshot has the number, if there are workers.
    """
    if not isinstance(state, Mapping) or not state:
        return None
    snapshot = state.get("_snapshot")
    if not isinstance(snapshot, Mapping):
        return 0
    main = snapshot.get("_main_snapshot")
    count = main.get("_num_workers") if isinstance(main, Mapping) else None
    return count if isinstance(count, int) else None


def _place(known: Known) -> str:
    file, here = known.site.file, os.getcwd().rstrip("/") + "/"
    return f"{file.removeprefix(here)}:{known.site.line}"


def _difference(before: dict[str, Any], after: dict[str, Any], others: Mapping[str, Any]) -> str:
    """What changes, in words. ``others``: settings that are no arguments."""
    defaults = {"num_workers": 0, "pin_memory": False, "persistent_workers": False, "in_order": True}
    parts = []
    for name in _SHOWN:
        if name == "prefetch_factor":
            if not after.get("num_workers"):
                continue  # torch takes none then
            old, new = ((values.get(name) if values.get("num_workers") else None) or 2 for values in (before, after))
        else:
            old, new = (values.get(name, defaults.get(name)) for values in (before, after))
        if old != new:
            parts.append(f"{name} {old} -> {new}")
    parts += [f"{name} {value}" for name, value in others.items() if name in ("worker_cores", "opencv_threads")]
    return ", ".join(parts) or "has these settings already"
