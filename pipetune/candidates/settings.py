"""The settings of a loader: their values, and which a sweep tries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One setting of a loader besides backend, workers and prefetch depth: a field of :class:`Candidate`."""

    values: tuple[Any, ...]
    """What it can be, the usual one first."""
    about: str
    by_default: bool = False
    """A sweep tries its values unless it is told otherwise: they decide, and any training loop can live with them."""


#: In the order in which they are tried: what changes most comes first.
KNOBS: dict[str, Knob] = {
    "worker_kind": Knob(values=("process", "thread"), about="loader workers are processes or threads", by_default=True),
    "transfer": Knob(
        values=("float32", "uint8"), about="normalised by the loader, or bytes that the accelerator normalises",
        by_default=True,
    ),
    "reuse_buffers": Knob(
        values=(False, True), about="new memory for each batch, or samples made in place in memory that is used again",
        by_default=True,
    ),
    "allocator": Knob(
        values=("default", "glibc", "tcmalloc"), about="who hands out memory in the training process", by_default=True
    ),
    "channels_last": Knob(values=(False, True), about="images as three planes, or pixel by pixel (NHWC)"),
    "in_order": Knob(values=(True, False), about="batches in the order of the shuffle, or as they get ready"),
    "start_method": Knob(values=("fork", "forkserver", "spawn"), about="how loader processes are started"),
    "persistent_workers": Knob(values=(True, False), about="loader processes live on from epoch to epoch, or not"),
    "hw_decoder_load": Knob(
        values=(None, 0.5, 0.8, 1.0), about="share of the images that a GPU's JPEG engine decodes (DALI)"
    ),
}  # fmt: skip


#: Chosen values of knobs: name -> values, the one that is tried first in front.
Settings = tuple[tuple[str, tuple[Any, ...]], ...]
