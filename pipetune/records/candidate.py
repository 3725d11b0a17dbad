"""Candidate: one configuration of the input pipeline, and the key that names it in files. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One configuration of the input pipeline, and the unit that the search moves through.

    :mod:`pipetune.candidates.settings` says of each setting which values it has and what they mean.
    """

    backend: str
    """Name of a decode backend in :data:`pipetune.registry.BACKENDS`; ``own``: the user's own loader."""
    num_workers: int
    """Loader workers (see ``worker_kind``; 0: the training process decodes itself), threads inside DALI."""
    prefetch_depth: int
    """Batches each worker keeps ready: torch ``prefetch_factor``, DALI ``prefetch_queue_depth``; 0 without workers."""
    batch_size: int
    """Samples per batch."""
    pin_memory: bool = False
    """Copy each batch into page-locked memory, from where the copy to a CUDA device can be asynchronous."""
    worker_kind: str = "process"
    """``process``: processes of a torch ``DataLoader``; ``thread``: threads of the training process, which need a
    decoder that releases the GIL while it works, and hand their batches over without a copy."""
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
    """DALI on a GPU with a JPEG engine: the share of the images that the engine decodes; ``None``: DALI's default."""

    @property
    def key(self) -> str:
        """Short, unique and safe as a file name, e.g. ``opencv-w2-p4-b64-u8`` (see :data:`KEY_WORDS`)."""
        point = f"{self.backend}-w{self.num_workers}-p{self.prefetch_depth}-b{self.batch_size}"
        for name, silent, word in KEY_WORDS:
            value: Any = getattr(self, name)
            if value != silent:
                point += f"-{word.format(value)}"
        return point


#: What a key says of each setting, in this order: its name, the value that is not written, how another one is written.
#: Keys name candidates in stored runs, so an entry never changes: what is not written here stays unwritten, even should
#: it no longer be the setting's default. A new setting is added at the end, with today's default as its silent value.
KEY_WORDS: tuple[tuple[str, Any, str], ...] = (
    ("pin_memory", False, "pin"),
    ("worker_kind", "process", "{}"),
    ("reuse_buffers", False, "reuse"),
    ("transfer", "float32", "u8"),
    ("channels_last", False, "nhwc"),
    ("allocator", "default", "{}"),
    ("in_order", True, "any"),
    ("start_method", "fork", "{}"),
    ("persistent_workers", True, "restart"),
    ("hw_decoder_load", None, "hw{:g}"),
)
