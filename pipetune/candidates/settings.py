"""SETTINGS: one line per setting of a loader. Other modules read all that they need of a setting from here.

It feeds the help of ``--vary`` and its values (:mod:`pipetune.candidates.varied`), which settings have an effect
(:func:`pipetune.candidates.space.canonical`), a candidate in words (:mod:`pipetune.candidates.describe`) and the
arguments of torch's ``DataLoader`` (:mod:`pipetune.candidates.torch_arguments`). The default is that of the field of
:class:`Candidate`; how a key writes a value is frozen in :data:`pipetune.records.candidate.KEY_WORDS`.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipetune.augmentation.recipes import PLACES
from pipetune.candidates import allocators
from pipetune.records.sweep import Candidate
from pipetune.registry import DALI, DEVICE, THREADS, TORCH, USER, Backend, find_backend, loader_for

#: The setting that is one of the two axes of a candidate.
LOADER = "loader"
#: The setting that says where images are augmented.
TRANSFORMS_ON = "transforms_on"
#: The setting by which a script's workers live on from epoch to epoch.
KEEP_WORKERS = "keep_workers"
#: Value of ``decoder``: Pillow-SIMD in place of Pillow, which takes a process of its own.
SIMD = "simd"


def python_start(version: str = platform.python_version()) -> str:
    """How Python of this version, as ``'3.14.0'``, starts processes on Linux where nobody says how; unknown: as 3.13.

    A candidate says how, so what was measured is the same everywhere. Where this is another way it has to be written.
    """
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    return "forkserver" if numbers >= [3, 14] else "fork"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting of a loader besides decode backend, workers and prefetch depth: a field of :class:`Candidate`."""

    name: str
    values: tuple[Any, ...]
    """Values that a sweep can try; the default first."""
    about: str
    """What the values mean."""
    loaders: tuple[str, ...]
    """Loaders on which it has an effect."""
    needs_workers: bool = False
    """It has no effect where the training process loads for itself."""
    needs_cuda: bool = False
    """It has no effect without a CUDA device."""
    needs_setting: Mapping[str, str] = field(default_factory=dict)
    """Of a loader: another setting that has to be on."""
    needs_backend: Callable[[Backend], bool] | None = None
    """What a decode backend has to offer for it; ``None``: nothing."""
    by_default: bool = False
    """A sweep tries its values unless ``--vary`` says otherwise: they change much, and suit any training loop."""
    tried_first: Any = None
    """The value with which a sweep begins in place of the default, and which is kept where the setting is not varied;
    ``None``: the default."""
    words: Callable[[Any], str] | None = str
    """A value that is not the default, in a candidate's description; ``None``: the word for workers says it."""
    argument: str | None = None
    """The argument of torch's ``DataLoader`` that it is."""
    without_workers: Any = None
    """That argument where there are no workers."""
    unwritten: tuple[Any, ...] = ()
    """Values of that argument which code for a training script need not write, because torch does so by itself."""
    available: Callable[[], tuple[Any, ...]] | None = None
    """The values that this machine offers; ``None``: all of them."""
    of_script: bool = False
    """It exists in a user's own training script only."""
    of_augmentation: bool = False
    """The setting has no effect unless images are augmented by more than crops and flips (:attr:`Workload.augment`)."""
    limits: tuple[float, float] | None = None
    """Minimum and maximum number that it may be fixed at; ``None``: one of its values only."""

    @property
    def tried(self) -> tuple[Any, ...]:
        """The values in the order in which a sweep tries them, as far as this machine offers them."""
        values = self.values if self.available is None else self.available()
        return tuple(sorted(values, key=lambda value: value != self.tried_first)) if self.tried_first else values

    @property
    def default(self) -> Any:
        """Its value unless something else is chosen."""
        return self.values[0]


#: In the order in which a sweep tries them: what changes most comes first.
SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(name=TRANSFORMS_ON, values=PLACES,
                about="images augmented by what loads them, or by the accelerator, where --augment asks for more than "
                "crops and flips",
                loaders=(TORCH, THREADS), by_default=True, of_augmentation=True,
                words=lambda _: "augmented on the device"),
        Setting(name=LOADER, values=(TORCH, THREADS),
                about="loader workers are processes of torch's DataLoader, or threads of the training process",
                loaders=(TORCH, THREADS), needs_workers=True, by_default=True, words=None),
        Setting(name="transfer", values=("float32", "uint8"),
                about="images normalised by the loader, or bytes that the accelerator normalises",
                loaders=(TORCH, THREADS, DALI, DEVICE), by_default=True),
        Setting(name="reuse_buffers", values=(False, True),
                about="new memory for each batch, or samples decoded in place in memory that is used again",
                loaders=(TORCH,), by_default=True, words=lambda _: "memory reused"),  # threads always do
        Setting(name="allocator", values=allocators.NAMES, about="malloc implementation of the training process",
                loaders=(TORCH, THREADS, DALI, DEVICE, USER), by_default=True, available=allocators.available),
        Setting(name="channels_last", values=(False, True), about="images as three planes, or pixel by pixel (NHWC)",
                loaders=(TORCH, THREADS, DALI, DEVICE), needs_setting={TORCH: "reuse_buffers"},
                words=lambda _: "NHWC"),
        Setting(name="in_order", values=(True, False),
                about="batches in the order of the shuffle, or as they get ready",
                loaders=(TORCH, THREADS, DEVICE, USER), needs_workers=True, words=lambda _: "any order",
                argument="in_order", without_workers=True, unwritten=(True,)),
        Setting(name="start_method", values=("fork", "forkserver", "spawn"), about="how loader processes are started",
                loaders=(TORCH, USER), needs_workers=True, argument="multiprocessing_context",
                unwritten=(python_start(),)),
        Setting(name="persistent_workers", values=(True, False),
                about="loader processes live on from epoch to epoch, or not",
                loaders=(TORCH, USER), needs_workers=True, words=lambda _: "workers restart",
                argument="persistent_workers", without_workers=False),
        # Whole images first: on some GPUs nvImageCodec 0.9.0 ends the process when it decodes a crop of one, with DALI
        # as well (https://github.com/NVIDIA/nvImageCodec/issues/55). A candidate that crashes is one that is left out.
        Setting(name="decode_region", values=("window", "whole"),
                about="on a GPU, only the crop of each image is decoded, or all of it, which a JPEG engine may need "
                "and a sweep tries first",
                loaders=(DALI, DEVICE), needs_cuda=True, needs_backend=lambda backend: backend.steers_jpeg_engine,
                by_default=True, tried_first="whole", words=lambda _: "whole images"),
        Setting(name="hw_decoder_load", values=(None, 0.5, 0.8, 1.0),
                about="share of the images that a GPU's JPEG engine decodes",
                loaders=(DALI, DEVICE), needs_cuda=True, needs_backend=lambda backend: backend.steers_jpeg_engine,
                by_default=True, words=lambda share: f"JPEG engine {100 * share:.0f} %",
                limits=(0.0, 1.0)),
        Setting(name="worker_cores", values=("inherited", "all"),
                about="cores of a loader worker: the training process's, or all that it began with",
                loaders=(USER,), needs_workers=True, words=lambda _: "workers on all cores", of_script=True),
        Setting(name="opencv_threads", values=(None, 0),
                about="OpenCV's threads in a loader worker: as they are, or none of its own",
                loaders=(USER,), needs_workers=True, words=lambda count: f"{count or 'no'} OpenCV threads",
                of_script=True),
        Setting(name="decoder", values=("own", "crop", SIMD),
                about="of a script: its own decoding; only the crop of each image, where its ImageFolder is cropped at "
                "random (RandomResizedCrop); or Pillow-SIMD in place of Pillow",
                loaders=(USER,), words=lambda value: "Pillow-SIMD" if value == SIMD else "only crops decoded",
                of_script=True),
        Setting(name=KEEP_WORKERS, values=(False, True),
                about="of a script: workers that live from epoch to epoch as it says, or with persistent_workers=True",
                loaders=(USER,), needs_workers=True, words=lambda _: "workers kept", of_script=True),
    )
}  # fmt: skip

#: Names and values of earlier versions, which options and stored runs may have: name -> current name and values.
OLD_NAMES: dict[str, tuple[str, dict[Any, Any]]] = {"worker_kind": (LOADER, {"process": TORCH, "thread": THREADS})}

#: Chosen values of settings: name -> values, the one that is tried first in front.
ChosenValues = tuple[tuple[str, tuple[Any, ...]], ...]


def has_effect(setting: Setting, candidate: Candidate) -> bool:
    """Whether the candidate's batches are made differently with another value of the setting."""
    loader = loader_for(candidate).name
    if loader not in setting.loaders or (setting.needs_workers and not candidate.num_workers):
        return False
    if setting.needs_backend is not None and not setting.needs_backend(find_backend(candidate.backend)):
        return False
    needed = setting.needs_setting.get(loader)
    return needed is None or bool(getattr(candidate, needed))


def augments(candidate: Candidate) -> bool:
    """Whether the candidate's loader can augment images itself, beyond crops and flips."""
    return loader_for(candidate).name in SETTINGS[TRANSFORMS_ON].loaders


def needs_own_process(candidate: Candidate) -> bool:
    """Whether it differs in what a process has from its start, so that a training which runs cannot take it on."""
    return candidate.allocator != allocators.DEFAULT or candidate.decoder == SIMD


def can_have_effect(setting: Setting, candidate: Candidate, undecided: Collection[str]) -> bool:
    """Whether it has an effect on the candidate, or may have one with other values of settings yet undecided."""
    return (
        LOADER in undecided
        or not set(setting.needs_setting.values()).isdisjoint(undecided)
        or has_effect(setting, candidate)
    )


def current_name(name: str) -> str:
    """The setting's name, where it may be that of an earlier version."""
    return OLD_NAMES[name][0] if name in OLD_NAMES else name


def current_value(name: str, value: Any) -> Any:
    """The value of a setting whose name and value may be those of an earlier version."""
    return OLD_NAMES[name][1].get(value, value) if name in OLD_NAMES else value
