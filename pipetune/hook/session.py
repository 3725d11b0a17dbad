"""The hook of a process that is measured: knows the script's loaders, finds the one that is trained on, and relays."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from pipetune.hook import dali, fastai, ffcv
from pipetune.hook import profile as profiles
from pipetune.hook.backward import gradients_enabled, tell_backward, trains_elsewhere
from pipetune.hook.built import BuiltSource
from pipetune.hook.built_loaders import BuiltLoaders
from pipetune.hook.channel import Channel, ChannelClosedError
from pipetune.hook.decoder import NotPossibleError, swap_for
from pipetune.hook.describe import class_name, describe_calls
from pipetune.hook.describe_trained import describe_device, describe_loader
from pipetune.hook.division import division_of
from pipetune.hook.feed import Feed, Other, Pass
from pipetune.hook.guards import explain_missing_guard, loads_for_all_ranks
from pipetune.hook.iteration_report import FETCH, WORKER, IterationReports
from pipetune.hook.loaderless import OPTIMIZER, StepsWithoutLoader
from pipetune.hook.loop_iterator import iterator_class
from pipetune.hook.made_anew import is_made_anew
from pipetune.hook.quiet import refuse_checkpoints
from pipetune.hook.registry import Known, Loaders
from pipetune.hook.relay import Relay
from pipetune.hook.seams import (
    DATALOADER,
    STATEFUL,
    GetIterator,
    patch_loader,
    sampler_class,
    when_imported,
)
from pipetune.hook.source import Source
from pipetune.hook.which import WhichTrains
from pipetune.measure.script.protocol import CLOSED, FROM_START, REFUSE_SAVES, SETTINGS_FILE
from pipetune.usercode.loop_clock import clock_for

#: So many loaders are reported, to say how far a script came.
_MOST_REPORTED = 20
#: Why a loader is not measured from which the other ranks take no batches.
FOR_ALL_RANKS = (
    "Accelerate loads in rank 0 for all ranks (dispatch_batches, which is its choice for an IterableDataset), so the "
    "others ask no loader; for the sweep, pass DataLoaderConfiguration(dispatch_batches=False)"
)


class _NotMeasuredError(Exception):
    """Why a loader cannot be measured, in words for the user."""


def enter(folder: str) -> None:
    """Connect, and wait for torch's loader to be imported."""
    channel = Channel(folder)
    try:
        channel.send("started")
    except ChannelClosedError as error:  # another host or container, or a process that outlived the sweep
        sys.stderr.write(f"pipetune: the sweep cannot be reached from here ({error}); the script runs as it is\n")
        return
    profile = _profile_in(folder)
    if profile is not None:
        profiles.use_pil(profile)  # whether it was taken is said when the script trains
    session = Session(channel, profile, _request_in(folder), folder)
    when_imported((WORKER, FETCH), IterationReports(folder).on_module)
    when_imported((OPTIMIZER,), session.on_optimizers)
    modules = (DATALOADER, STATEFUL, fastai.LOAD, fastai.OPTIMIZER, dali.PIPELINE, dali.PYTORCH, ffcv.LOADER)
    when_imported(modules, session.on_module)


def _profile_in(folder: str) -> profiles.Profile | None:
    place = os.path.join(folder, SETTINGS_FILE)
    return profiles.read_profile(place) if Path(place).exists() else None


def _request_in(folder: str) -> dict[str, Any] | None:
    """What is to be measured from the loader's first batch on."""
    place = Path(folder, SETTINGS_FILE)
    found: dict[str, Any] | None = json.loads(place.read_text()).get(FROM_START) if place.exists() else None
    return found


class Session:
    """One process of the script.

    Args:
        request: is measured from the first batch of the profile's loader on; ``None``: when the training is recognised,
            it is asked for.
        folder: with what is reported of iterable data sets; ``None``: nothing is.
    """

    def __init__(
        self, channel: Channel, profile: profiles.Profile | None, request: dict[str, Any] | None = None,
        folder: str | None = None,
    ) -> None:  # fmt: skip
        self._request = request
        self._channel, self._folder = channel, folder
        self._cores_at_first = tuple(sorted(os.sched_getaffinity(0)))
        self._matcher = None if profile is None else profiles.Matcher(profile)
        self._loaders = Loaders()
        self._which = WhichTrains()
        self._iterator_class: Any = None
        self._end_looking: Callable[[], None] | None = None
        """Ends what was begun to find the loader that is trained on."""
        self._for_all_ranks: set[int] = set()
        """Loaders that are read in one rank for all of them."""
        self._swapped: set[int] = set()
        self._reported = 0
        self._built = BuiltLoaders(self, self._loaders, self._matcher)
        self.trained: Feed | None = None
        """The loader that is measured, once it is known."""
        self._gave_up = False
        self._is_alone = False
        """The call that made the loader that is trained on had made no other one before."""
        self._loaderless = StepsWithoutLoader(lambda known: self.report("loaderless", **known))

    def report(self, kind: str, **fields: Any) -> None:
        """Send what is not worth an error."""
        try:
            self._channel.send(kind, **fields)
        except ChannelClosedError:
            os._exit(CLOSED)  # nobody measures any more

    def on_module(self, module: ModuleType) -> None:
        """torch's loader, or torchdata's, has been imported."""
        if module.__name__ == DATALOADER:
            self._iterator_class = iterator_class(module)
            kind: Any = module.DataLoader
            patch_loader(kind, self, self.complain)
            self.report("torch")
        elif module.__name__ == fastai.LOAD:
            fastai.patch_load(module, self, self.complain, iterators=True)
        elif module.__name__ == fastai.OPTIMIZER:
            fastai.patch_optimizer(module, self._stepped)
        elif module.__name__ in (dali.PIPELINE, dali.PYTORCH, ffcv.LOADER):
            self._built.on_module(module)
        else:
            patch_loader(module.StatefulDataLoader, self, self.complain)

    def on_optimizers(self, module: ModuleType) -> None:
        """torch's optimizers have been imported."""
        module.register_optimizer_step_post_hook(lambda *_: self._loaderless.stepped())

    def complain(self, error: BaseException) -> None:
        """Tell of an error of ours."""
        self.report("complaint", message=f"{type(error).__name__}: {error}")

    def arguments(self, frame: FrameType | None, arguments: dict[str, Any]) -> tuple[dict[str, Any] | None, Any]:
        """See :class:`pipetune.hook.seams.Guest`."""
        dataset = arguments.get("dataset")
        known = self._loaders.identify(frame, dataset, sampler_class(arguments))
        tuned = None if known is None or self._matcher is None else self._matcher.find(known, dataset)
        return (
            arguments if tuned is None else profiles.applied(arguments, tuned.settings, self._cores_at_first)
        ), known

    def made(self, loader: Any, known: Known | None) -> None:
        """See :class:`pipetune.hook.seams.Guest`."""
        if known is not None:
            self._loaders.add(loader, known)
            if hasattr(loader, "fake_l"):
                self._loaders.add(loader.fake_l, known)
        self.report_loader(known, class_name(loader.dataset))

    def report_loader(self, known: Known | None, dataset: str, library: str | None = None) -> None:
        """Tell of a loader that was made, to say how far a script came."""
        if self._reported < _MOST_REPORTED:
            self._reported += 1
            where = None if known is None else f"{known.site.file}:{known.site.line}"
            self.report("loader", where=where, dataset=dataset, library=library)

    def iterator(self, loader: Any, original: GetIterator) -> Any:
        """See :class:`pipetune.hook.seams.Guest`."""
        if self.trained is not None:
            if self._is_trained(loader):
                again = Pass(self.trained, loader, lambda: original(loader))
                iterator = self._iterator_class(again)
                again.iterated_with(iterator)
                return iterator
            return self._iterator_class(Other(self.trained, loader, original(loader)))
        self.look_for_steps()
        self._decode_differently(loader)
        # Of a loader that is gone another one may have the number.
        (self._for_all_ranks.add if loads_for_all_ranks(sys._getframe(1)) else self._for_all_ranks.discard)(id(loader))
        try:
            feed = Feed(self, loader, Source(loader, original, self._cores_at_first))
            iterator = self._iterator_class(feed)
            feed.iterated_with(iterator)
            if self._request is not None and self._is_in_profile(loader):
                feed.relay = self.begin(feed)
            return iterator
        except Exception as error:  # of ours; one of the script's comes again
            self.complain(error)
            return original(loader)

    def _is_trained(self, loader: Any) -> bool:
        """Whether it is the loader that is measured, or that one made anew for an epoch."""
        assert self.trained is not None
        first = self.trained.loader
        return loader is first or is_made_anew(self._loaders, first, loader, was_alone=self._is_alone)

    def _is_in_profile(self, loader: Any) -> bool:
        """Whether it is the loader that a start's request is for, on the accelerator and with the ranks that it has."""
        known, request = self._loaders.of(loader), self._request or {}
        if known is None or self._matcher is None or self._matcher.find(known, loader.dataset) is None:
            return False
        return (clock_for(None).name == "cuda", _ranks()[1]) == (request["device"] == "cuda", request["ranks"])

    def _stepped(self) -> None:
        self._which.stepped()
        if self.trained is not None and self.trained.relay is not None:
            self.trained.relay.stepped()

    def look_for_steps(self) -> None:
        """Notice from now on when an optimizer steps."""
        if self._end_looking is None:
            self._end_looking = tell_backward(self._which.computed_gradients)
            atexit.register(self._report_batches)
            optimizer = sys.modules["torch.optim.optimizer"]
            optimizer.register_optimizer_step_post_hook(lambda *_: self._stepped())
            self.report("iterated")

    def _decode_differently(self, loader: Any) -> None:
        """In a fresh start whose settings have another decoder, put it in before the first iterator is made."""
        known = self._loaders.of(loader)
        tuned = None if known is None or self._matcher is None else self._matcher.find(known, loader.dataset)
        if tuned is not None and tuned.settings.get("decoder") == "crop" and id(loader.dataset) not in self._swapped:
            self._swapped.add(id(loader.dataset))
            try:
                swap_for(loader.dataset).put_in()
            except NotPossibleError as error:  # else something else would be measured than was asked for
                self.report("refused", message=f"another decoder is not possible: {error}")
                os._exit(0)

    def _report_batches(self) -> None:
        """The script ends: tell what was measured until now, or how far it came without a training."""
        if self.trained is not None and self.trained.relay is not None:
            self.trained.relay.script_ends()
        if self.trained is None:
            with contextlib.suppress(ChannelClosedError):
                self._channel.send("untrained", **self._which.describe(), elsewhere=trains_elsewhere())

    def trains(self, feed: Feed, *, first: bool) -> bool:
        """Whether the loader that asks for a batch is known to be trained on."""
        self._loaderless.batch_taken()
        return not self._gave_up and self._which.asked(
            id(feed.loader), gradients=gradients_enabled(), elsewhere=trains_elsewhere(), first=first
        )

    def took(self, feed: Feed) -> None:
        """A batch was taken while the loader that is trained on is not known."""
        if not self._gave_up:
            known = self._known(feed)
            where = None if known is None else f"{known.site.file}:{known.site.line}"
            self._which.took(id(feed.loader), gradients=gradients_enabled(), where=where)

    def begin(self, feed: Feed) -> Relay | None:
        """The loader that is trained on is known: from now on it is measured; ``None``: it cannot be."""
        self._loaderless.end()
        self._end_unless_guarded()
        try:
            return self._begin(feed)
        except Exception as error:  # of ours, or of a data set that does not like to be looked at
            self._gave_up, self.trained = True, None
            why = str(error) if isinstance(error, _NotMeasuredError) else f"{type(error).__name__}: {error}"
            self.report("refused", message=f"its loader cannot be measured: {why}")
            return None
        finally:
            if self._end_looking is not None:
                self._end_looking()

    def _end_unless_guarded(self) -> None:
        """End a worker that trains, because it was spawned and runs the whole script."""
        explanation = explain_missing_guard()
        if explanation is not None:
            sys.stderr.write(f"{explanation}\n")
            sys.stderr.flush()
            self.report("unguarded")
            os._exit(1)

    def _begin(self, feed: Feed) -> Relay:
        # What may raise comes before anything is changed.
        clock, (rank, ranks) = clock_for(None), _ranks()
        if ranks > 1 and id(feed.loader) in self._for_all_ranks:
            raise _NotMeasuredError(FOR_ALL_RANKS)
        division = division_of(feed.loader, self._folder) if isinstance(feed.source, Source) else None
        undivided = division is not None and division.is_undivided(feed.source.inner, feed.loader)
        found = {**self._described(feed), "gpu_uuid": clock.gpu_uuid(), "clock": clock.name, **describe_device(clock)}
        found["undivided"] = undivided
        self.trained, self._is_alone = feed, found["alone_there"]
        if os.environ.get(REFUSE_SAVES):
            refuse_checkpoints(self._on_checkpoint)
        relay = Relay(self._channel, feed.source, clock, follows=rank > 0, ranks=ranks, division=division)
        request, self._request = self._request, None
        self.report("ready", **found, rank=rank, ranks=ranks, measures=request is not None and feed.is_new)
        if request is not None and feed.is_new:
            relay.measure_from_start(request)
        return relay

    def _known(self, feed: Feed) -> Known | None:
        is_dali = isinstance(feed.source, BuiltSource) and not isinstance(feed.source, ffcv.EpochSource)
        return self._loaders.of(next(iter(getattr(feed.loader, "_pipes", ())), None) if is_dali else feed.loader)

    def _described(self, feed: Feed) -> dict[str, Any]:
        known = self._known(feed)
        if isinstance(feed.source, ffcv.EpochSource):
            found = ffcv.described(feed.loader, known)
        elif isinstance(feed.source, BuiltSource):
            found = dali.described(feed.loader, known)
        else:
            found = describe_loader(feed.loader, known)
        return {
            "identity": None if known is None else asdict(known.identity),
            "where": None if known is None else f"{known.site.file}:{known.site.line}",
            "calls": [] if known is None else describe_calls(known.site),
            "alone_there": known is not None and self._loaders.alone_at(known),
            **found,
            "others_trained": max(0, len(self._which.trained_on()) - 1), "torch": str(sys.modules["torch"].__version__),
            "cores": [len(os.sched_getaffinity(0)), len(self._cores_at_first)],
            "has_cv2": "cv2" in sys.modules, "pil": getattr(sys.modules.get("PIL"), "__version__", None),
        }  # fmt: skip

    def _on_checkpoint(self, target: str) -> None:
        if self.trained is not None and self.trained.relay is not None:
            self.trained.relay.out_of_memory()  # some trainers save when they end with an error
        self.report("checkpoint", target=target)
        if self.trained is not None and self.trained.relay is not None:
            self.trained.relay.end(0)
        os._exit(0)


def _ranks() -> tuple[int, int]:
    """This process's rank and how many there are, as torch knows them or as its launcher said."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    return 0, 1
