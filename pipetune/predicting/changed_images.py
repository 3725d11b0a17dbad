"""What smaller images or smaller crops change of the costs of loading. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipetune.records.explanation import (
    AUGMENT,
    COLLATE,
    DECODE,
    FETCH,
    HAND_OVER,
    NORMALISE,
    TRANSFORM,
    StageCost,
)
from pipetune.registry import find_backend

#: CPU time of decoding a JPEG (ms) per million pixels and per million bytes. Fitted to 1,481 real files on two
#: cores: median error 4 %, 90 % within 12.5 %. Only the ratio of two such times is used.
_MS_PER_MEGAPIXEL, _MS_PER_MEGABYTE = 0.94, 6.6
#: Cropping reads as many pixels of the source as this share of the image, in the mean of ``RandomResizedCrop``'s scales
#: of 0.08 to 1; each costs that much of what a pixel of the result does: 0.34 to 0.51 in the
#: measurements of :attr:`pipetune.registry.Backend.per_image`.
_CROPPED, _SOURCE_PIXEL = 0.45, 0.4
# These two are fitted to 23 questions about crops and edges of five decoders (``whatif_error.py``).
#: Of reading a file in memory this share goes with its bytes, the rest is opening it.
_READING_BYTES = 0.4
#: What handing a batch over takes besides its bytes, as so many pixels of float32 for each image: in batches of 32 from
#: worker processes, crops of 128 px took 0.13 ms of CPU time each and crops of 288 px 0.46 ms (torchvision, two cores).
#: Where the memory of batches is used again they took 0.01 ms, both of them (OpenCV).
_HANDING_OVER = 10_000
#: Of a stage that decodes and transforms in one go, this share is decoding.
_DECODING = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """The images of a data set in the mean."""

    pixels: float
    size_bytes: float
    crop: int
    """Edge of the training crop (px)."""

    @property
    def decode_ms(self) -> float:
        """CPU time that decoding one would take on a usual machine."""
        return (_MS_PER_MEGAPIXEL * self.pixels + _MS_PER_MEGABYTE * self.size_bytes) / 1e6

    @property
    def transform_pixels(self) -> float:
        """What cropping and resizing one costs besides what each image does, in pixels of the result."""
        return self.crop**2 + _SOURCE_PIXEL * _CROPPED * self.pixels


def load_ratio(
    stages: Sequence[StageCost], before: Pictures, after: Pictures, decoder: str, *, reuse_buffers: bool = False
) -> float:
    """Loading time per sample with other images, as a share of what it was.

    Args:
        decoder: name of the decode backend.
        reuse_buffers: the memory of batches is used again.

    Raises:
        ValueError: the stages' costs are unknown.
    """
    costs = [(cost.stages, max(0.0, cost.cpu_s_per_1000_samples)) for cost in stages]
    total = sum(cost for _, cost in costs)
    if total <= 0:
        raise ValueError("no stage has a cost")
    each = stage_ratios(before, after, decoder, reuse_buffers=reuse_buffers)
    return sum(cost * _ratio_of(names, each) for names, cost in costs) / total


def stage_ratios(before: Pictures, after: Pictures, decoder: str, *, reuse_buffers: bool = False) -> dict[str, float]:
    """The same of each stage."""
    decode, transform = find_backend(decoder).per_image
    return {
        FETCH: 1 - _READING_BYTES + _READING_BYTES * after.size_bytes / before.size_bytes,
        DECODE: (decode + after.decode_ms) / (decode + before.decode_ms),
        TRANSFORM: (transform + after.transform_pixels) / (transform + before.transform_pixels),
        **dict.fromkeys((AUGMENT, NORMALISE, COLLATE), (after.crop / before.crop) ** 2),
        HAND_OVER: 1.0 if reuse_buffers else (_HANDING_OVER + after.crop**2) / (_HANDING_OVER + before.crop**2),
    }


def _ratio_of(names: Sequence[str], each: Mapping[str, float]) -> float:
    """Of stages that were measured together."""
    weights = {DECODE: _DECODING, TRANSFORM: 1 - _DECODING} if set(names) >= {DECODE, TRANSFORM} else {}
    if weights:
        return sum(share * each[name] for name, share in weights.items())
    return sum(each[name] for name in names) / len(names)
