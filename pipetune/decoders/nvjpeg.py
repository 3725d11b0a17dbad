"""nvjpeg: NVIDIA's nvJPEG inside of torchvision (`decode_jpeg` of a batch, on a CUDA device); crops and resizing there.

torchvision decodes whole images, one batch at a time, with the JPEG engine where there is one. Not yet seen on a GPU.
Its function (``decode_jpegs_cuda.cpp``) takes memory on the current stream, and writes there from a stream of its own
without waiting for the current one: hence the streams of :mod:`pipetune.loaders.device_batch`. torchvision 0.29
deprecates the function in favour of TorchCodec's; until it goes, it is in every environment that trains.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torchvision.io import ImageReadMode, decode_jpeg

from pipetune.decoders.contract import DeviceDecode, Encoded
from pipetune.decoders.torchvision import load
from pipetune.errors import PipetuneError
from pipetune.records.sweep import Candidate

__all__ = ["load", "open_device_decoder"]

#: nvJPEG's number for a lack of memory (``NVJPEG_STATUS_ALLOCATOR_FAILURE``), as torchvision's errors end: ``'Failed to
#: decode batch: 5'``.
_ALLOCATOR_FAILURE = re.compile(r"Failed to [^:]*: 5\b")


def open_device_decoder(candidate: Candidate, device: torch.device) -> DeviceDecode:
    """See :class:`pipetune.decoders.contract.DeviceDecoder`."""

    def decode(encoded: Sequence[Encoded]) -> list[torch.Tensor | None]:
        try:
            return _decode_all(encoded, device)
        except RuntimeError as error:
            _raise_unless_of_image(error, device)
        # One image that does not decode fails the whole list.
        return [_decode_one(image, device) for image in encoded]

    return decode


def _decode_all(encoded: Sequence[Encoded], device: torch.device) -> list[torch.Tensor | None]:
    decoded = decode_jpeg([torch.from_numpy(image.data) for image in encoded], mode=ImageReadMode.RGB, device=device)
    return [_crop(pixels, image) for pixels, image in zip(decoded, encoded, strict=True)]


def _decode_one(image: Encoded, device: torch.device) -> torch.Tensor | None:
    try:
        return _decode_all([image], device)[0]
    except RuntimeError as error:
        _raise_unless_of_image(error, device)
        return None


def _crop(pixels: torch.Tensor, image: Encoded) -> torch.Tensor | None:
    """The window of a decoded image; ``None``: it is not of the shape that its header had."""
    if tuple(pixels.shape) != (3, image.height, image.width):
        return None
    top, left, height, width = image.window
    return pixels[:, top : top + height, left : left + width]


def _raise_unless_of_image(error: RuntimeError, device: torch.device) -> None:
    """Raise an error again that is not the image's: torchvision has no nvJPEG, the device lacks memory, which
    torchvision says in an error of its own, or it is lost, which the next wait says as well."""
    text = str(error)
    if "not compiled with nvJPEG" in text:  # a build for the CPU has the function as well
        raise PipetuneError(
            "this torchvision is a build without CUDA, and has no nvJPEG",
            hint="install the build for your CUDA: pip install torchvision --index-url "
            "https://download.pytorch.org/whl/cu130",
        ) from error
    if isinstance(error, torch.OutOfMemoryError) or "out of memory" in text:
        raise error
    if _ALLOCATOR_FAILURE.search(text):
        raise torch.OutOfMemoryError(f"CUDA out of memory: nvJPEG cannot allocate what it decodes with ({text})")
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
