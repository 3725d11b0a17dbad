"""Stands for nvJPEG in the children of these tests: pixels come to the device by copies, on a stream of its own.

In the stand-in CUDA runtime kernels compute nothing, so cropping and resizing are replaced as well: the whole image is
copied into its place. Images have to be as large as the training crop.
"""

from __future__ import annotations

from typing import Any

import torch

from pipetune.decoders import nvjpeg
from pipetune.decoders.device_pixels import Finisher
from pipetune.loaders import device_batch

real = nvjpeg.decode_jpeg


class FakeNvJpeg:
    """As torchvision's: memory is taken on the current stream, and written on another that is waited for."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self.current: set[int] = set()
        """Streams on which it was called."""

    def __call__(self, encoded: list[torch.Tensor], mode: Any, device: torch.device) -> list[torch.Tensor]:
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        stream, current = self._streams[device], torch.cuda.current_stream(device)
        self.current.add(current.cuda_stream)
        decoded = []
        for data in encoded:
            pixels = real(data, mode=mode, device="cpu").contiguous().pin_memory()
            image = torch.empty_like(pixels, device=device)
            with torch.cuda.stream(stream):
                image.copy_(pixels, non_blocking=True)
            decoded.append(image)
        done = torch.cuda.Event()
        done.record(stream)
        current.wait_event(done)
        return decoded


def install() -> FakeNvJpeg:
    """Take nvJPEG's place, and that of all kernels behind it."""
    fake = FakeNvJpeg()

    def copy_into(window: torch.Tensor, orientation: int, out: torch.Tensor) -> None:
        assert window._base is not None
        out.copy_(window._base)

    def new_batch(self: Finisher, count: int) -> torch.Tensor:
        size = self._layout.size
        return torch.empty((count, 3, size, size), dtype=torch.uint8, device=self._device)

    def finish(self: Finisher, resized: torch.Tensor, crops: Any) -> torch.Tensor:
        images = torch.empty_like(resized)
        return images.copy_(resized)

    nvjpeg.decode_jpeg = fake  # type: ignore[assignment]
    device_batch.resize_into = copy_into
    Finisher.new_batch = new_batch  # type: ignore[method-assign]
    Finisher.__call__ = finish  # type: ignore[method-assign]
    return fake
