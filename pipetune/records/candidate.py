"""Candidate: one configuration of the input pipeline, and the key that names it in files. Standard library only."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeVar

C = TypeVar("C")

#: Backends whose loader cannot be chosen, also where a candidate was stored before candidates had a ``loader``.
_OWN_LOADERS = {
    "dali": "dali",
    "dali-cpu": "dali",
    "nvjpeg": "device",
    "nvimagecodec": "device",
    "own": "user",
}
#: What that time called ``worker_kind``.
_LOADERS = {"process": "torch", "thread": "threads"}


def _accepts_worker_kind(candidate: type[C]) -> type[C]:
    """Let code of earlier versions construct a candidate with ``worker_kind='thread'``."""
    init = candidate.__init__

    @functools.wraps(init)
    def with_old_name(self: C, *args: Any, worker_kind: str | None = None, **values: Any) -> None:
        if worker_kind is not None:
            values["loader"] = _loader_before(str(values.get("backend")), worker_kind)
        init(self, *args, **values)

    candidate.__init__ = with_old_name  # type: ignore[assignment]
    return candidate


def _loader_before(backend: str, worker_kind: str) -> str:
    return _OWN_LOADERS.get(backend) or _LOADERS.get(worker_kind, "torch")


@_accepts_worker_kind
@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One configuration of the input pipeline, and the unit that the search moves through.

    :mod:`pipetune.candidates.settings` says of each setting which values it has and what they mean.
    """

    backend: str
    """What decodes: a name in :data:`pipetune.registry.BACKENDS`; ``own``: whatever the user's own loader does."""
    num_workers: int
    """Loader workers, which are processes or threads as the loader has them; 0: the training process decodes itself."""
    prefetch_depth: int
    """Batches each worker keeps ready: torch ``prefetch_factor``; of ``dali`` (``prefetch_queue_depth``) and
    ``device``, whose workers share one queue, batches that are kept ready in all; 0 without workers."""
    batch_size: int
    """Samples per batch."""
    pin_memory: bool = False
    """Copy each batch into page-locked memory, from where the copy to a CUDA device can be asynchronous."""
    loader: str = ""
    """What makes the batches: a name in :data:`pipetune.registry.LOADERS`. ``torch``: a ``DataLoader`` and its
    processes; ``threads``: threads of the training process, which need a decoder that releases the GIL while it works,
    and hand their batches over without a copy; ``dali``; ``device``: threads that read, and a decoder on the CUDA
    device; ``user``. Unless given, the one that the backend needs, or
    ``torch``."""
    transfer: str = "float32"
    """``float32``: normalised by the loader; ``uint8``: a quarter of the bytes, and the accelerator normalises, which
    counts into its time."""
    reuse_buffers: bool = False
    """Samples are decoded in place, into batches whose memory is used again; ``False``: torch collates them into new
    memory. Threads always work in place."""
    channels_last: bool = False
    """The images of a batch lie in memory row by row and pixel by pixel (NHWC), as convolutions on GPUs want them; for
    batches that are made in place."""
    allocator: str = "default"
    """The malloc implementation of the training process (:mod:`pipetune.candidates.allocators`): ``default``, ``glibc``
    with thresholds that keep large blocks, ``tcmalloc``."""
    in_order: bool = True
    """Batches come in the order of the shuffle; ``False``: whichever is ready first, so that one slow image does not
    hold up the others."""
    start_method: str = "fork"
    """How loader processes are started: ``fork``, ``forkserver`` or ``spawn``."""
    persistent_workers: bool = True
    """Loader workers live on from one epoch to the next; ``False``, torch's default: they end and start with each."""
    hw_decoder_load: float | None = None
    """On a GPU with a JPEG engine: the share of the images that the engine decodes; ``None``: the library's default."""
    decode_region: str = "window"
    """``window``: only the crop of each image is decoded; ``whole``: the image, which is then cropped. For libraries
    that can do both; a JPEG engine may take whole images only."""
    transforms_on: str = "worker"
    """Where images are augmented, if the workload has more than crops and flips (:attr:`Workload.augment`): ``worker``:
    by whatever loads them, image by image; ``device``: by the accelerator, in time that counts into its own."""

    worker_cores: str = "inherited"
    """Of the user's own loader: cores that a worker may run on: those that the training process has when it starts
    them, which a library may have reduced, or ``all`` that it began with."""
    opencv_threads: int | None = None
    """Of the user's own loader: OpenCV's threads in each worker (0: none besides the worker); ``None``: as it is."""
    decoder: str = "own"
    """Of the user's own script: what decodes: its own code; ``crop``: jpeg-roi, only the crop of each image, where
    ``ImageFolder``'s transform begins with ``RandomResizedCrop``; ``simd``: Pillow-SIMD in place of Pillow."""
    keep_workers: bool = False
    """Of the user's own script: ``persistent_workers=True``, where the script has not set it: workers live on from one
    epoch to the next. ``False``: as the script has it."""

    def __post_init__(self) -> None:
        if not self.loader:
            object.__setattr__(self, "loader", _loader_before(self.backend, "process"))

    @property
    def in_place(self) -> bool:
        """Samples are decoded into their places in a batch: nothing is collated."""
        return self.reuse_buffers or self.loader in ("threads", "device")

    @property
    def worker_kind(self) -> str:
        """``thread`` with the loader ``threads``, else ``process``: the setting that became ``loader``."""
        return "thread" if self.loader == "threads" else "process"

    @property
    def key(self) -> str:
        """Short, unique and safe as a file name, e.g. ``opencv-w2-p4-b64-u8`` (see :data:`KEY_WORDS`)."""
        point = f"{self.backend}-w{self.num_workers}-p{self.prefetch_depth}-b{self.batch_size}"
        for word in KEY_WORDS:
            value: Any = getattr(self, word.name)
            if value not in word.silent:
                point += f"-{word.written.format(value)}"
        return point


class KeyWord(NamedTuple):
    """What a key says of one setting."""

    name: str
    silent: tuple[Any, ...]
    """Values that are not written."""
    written: str = "{}"
    """How another one is written."""


#: The settings in a key, in this order. Keys name candidates in stored runs, so an entry never changes: what is silent
#: stays silent, even should it no longer be the setting's default. A new setting is added at the end, with today's
#: default as its silent value.
KEY_WORDS: tuple[KeyWord, ...] = (
    KeyWord("pin_memory", (False,), "pin"),
    KeyWord("loader", ("torch", "dali", "user", "device"), "thread"),
    KeyWord("reuse_buffers", (False,), "reuse"),
    KeyWord("transfer", ("float32",), "u8"),
    KeyWord("channels_last", (False,), "nhwc"),
    KeyWord("allocator", ("default",)),
    KeyWord("in_order", (True,), "any"),
    KeyWord("start_method", ("fork",)),
    KeyWord("persistent_workers", (True,), "restart"),
    KeyWord("hw_decoder_load", (None,), "hw{:g}"),
    KeyWord("worker_cores", ("inherited",), "{}cores"),
    KeyWord("opencv_threads", (None,), "cv{}"),
    KeyWord("decoder", ("own",)),
    KeyWord("decode_region", ("window",), "{}"),
    KeyWord("transforms_on", ("worker",), "aug{}"),
    KeyWord("keep_workers", (False,), "kept"),
)


def candidate_to_dict(candidate: Candidate) -> dict[str, Any]:
    """The candidate in plain JSON types, with ``worker_kind`` for readers that know no ``loader``."""
    values = {field.name: getattr(candidate, field.name) for field in fields(candidate)}
    return {**values, "worker_kind": candidate.worker_kind}


def with_loader(data: Mapping[str, Any]) -> dict[str, Any]:
    """A stored candidate's values with its ``loader``, also where an earlier version wrote ``worker_kind`` alone."""
    kind = str(data.get("worker_kind", "process"))
    return {**data, "loader": data.get("loader") or _loader_before(str(data.get("backend")), kind)}
