"""Makes one batch on a device: files in the page cache or on a disk -> images that are decoded, cropped and resized.

Two streams of the device's are used, by all threads. ``decoding`` is the current stream where a decoder is called, and
nothing else is queued there: decoded images are in memory that belongs to it, and a library that decodes on a stream
of its own may get that memory again at once, whatever is queued on torch's streams. So decoded images are let go only
when all has ended that reads them. ``finishing`` waits for ``decoding`` and does the rest. A thread waits until its
batch is complete, without the GIL.

A file that is no plain JPEG, or that the device does not decode, is decoded on the CPU, by the same thread.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from pipetune.decoders.contract import BadImage, DeviceDecode, Encoded, Photo
from pipetune.decoders.crop import Crops
from pipetune.decoders.device_pixels import Finisher, find_stored_window, resize_into, upload
from pipetune.decoders.jpeg_kind import is_plain_jpeg
from pipetune.decoders.layout import Layout
from pipetune.loaders.batch_files import BatchFiles
from pipetune.loaders.contract import Batch
from pipetune.loaders.photos import Photos
from pipetune.loaders.windows import Task

#: Decoded pixels that one call of a decoder may make (bytes), so that large photographs do not fill the device.
MAX_DECODED_BYTES = 256 << 20
#: Where the CPU has decoded more than half of so many samples in a row, a warning says so, once.
_MIN_JUDGED = 256

#: What is known of an image: nothing yet, the device decodes it, it is left to the CPU.
_UNKNOWN, _ON_DEVICE, _ON_CPU = 0, 1, 2


class BatchMaker:
    """Makes batches, several threads at a time.

    Args:
        photos: the data set, with the function that decodes on the CPU.
        decode: decodes on the device; called by one thread at a time.
        layout: of the batches.
        device: a CUDA device; the CPU in tests.
    """

    def __init__(self, photos: Photos, decode: DeviceDecode, layout: Layout, device: torch.device) -> None:
        self._photos = photos
        self._decode = decode
        self._device = device
        self._finish = Finisher(layout, device)
        self._size = layout.size
        self._files = BatchFiles()
        self._lock = threading.Lock()
        on_cuda = device.type == "cuda"
        self._decoding = torch.cuda.Stream(device) if on_cuda else None
        self._finishing = torch.cuda.Stream(device) if on_cuda else None
        self._kinds = np.zeros(len(photos), np.uint8)
        self._counting = threading.Lock()  # the other one is held while a whole batch is decoded
        self._samples = self._samples_on_cpu = 0
        self._has_warned = False

    def __call__(self, task: Task, stopped: Callable[[], bool] = lambda: False) -> Batch:
        """The batch of some samples, complete; an incomplete one if ``stopped`` returns true meanwhile.

        Raises:
            BadImage: neither the device nor the CPU decodes a file.
        """
        sample_indices, crops = task
        left = list(range(len(sample_indices)))  # places of the samples that are left to the CPU
        # A thread begins with device 0, which must not get a context because a stream of another device is left.
        with self._current_device(), torch.cuda.stream(self._finishing):
            resized = self._finish.new_batch(len(sample_indices))
            for chunk in _chunks(self._read(sample_indices, crops, stopped)):
                done = self._fill(resized, chunk)
                left = [place for place in left if place not in done]
            if left and not stopped():
                crops = self._fill_on_cpu(resized, sample_indices, left, crops, stopped)
            self._count(len(sample_indices), len(left))
            images = self._finish(resized, crops)
            self._wait()
        return Batch(images, torch.from_numpy(self._photos.labels(sample_indices)))

    def try_sample(self, sample_index: int) -> str | None:
        """Why a sample does not decode; ``None``: it does."""
        height, width = (int(edge) for edge in reversed(self._photos.sizes[sample_index % len(self._photos)]))
        try:
            self(([sample_index], np.array([[0, 0, height, width, 0]])))
        except BadImage as error:
            return str(error.__cause__ or error)
        return None

    def _read(self, sample_indices: Sequence[int], crops: Crops, stopped: Callable[[], bool]) -> Iterator[_Sample]:
        """Those samples that the device may decode, with their files."""
        self._files.begin()
        kinds = self._kinds
        for place, (sample_index, crop) in enumerate(zip(sample_indices, crops.tolist(), strict=True)):
            position = sample_index % len(kinds)
            if stopped() or kinds[position] == _ON_CPU:
                continue
            photo = self._photos.photo(sample_index)
            data = self._files.read(photo) if photo.is_jpeg else None
            if kinds[position] == _UNKNOWN:
                kinds[position] = _ON_DEVICE if data is not None and is_plain_jpeg(data) else _ON_CPU
            if data is not None and kinds[position] == _ON_DEVICE:
                yield _Sample(place, position, photo.orientation, _encoded(photo, data, crop))

    def _fill(self, resized: torch.Tensor, samples: list[_Sample]) -> set[int]:
        """Decode some samples into their places; returns the places of those that the device has decoded."""
        with self._lock, torch.cuda.stream(self._decoding):
            windows = self._decode([sample.encoded for sample in samples])
            if self._decoding is not None and self._finishing is not None:
                self._finishing.wait_stream(self._decoding)
        done = set()
        for sample, window in zip(samples, windows, strict=True):
            if window is None:
                self._kinds[sample.position] = _ON_CPU
            else:
                resize_into(window, sample.orientation, resized[sample.place])
                done.add(sample.place)
        self._wait()  # the windows are let go now
        return done

    def _fill_on_cpu(
        self,
        resized: torch.Tensor,
        sample_indices: Sequence[int],
        places: list[int],
        crops: Crops,
        stopped: Callable[[], bool],
    ) -> Crops:
        """Decode some samples on the CPU into their places; returns the windows, none of these to be mirrored again."""
        pixels = np.zeros((len(places), self._size, self._size, 3), np.uint8)
        for place, out in zip(places, pixels, strict=True):
            if stopped():
                break
            self._photos.decode(sample_indices[place], out)
        made = upload(pixels, self._device).permute(0, 3, 1, 2)
        resized[upload(np.array(places), self._device)] = made.to(torch.float32)
        crops = crops.copy()
        crops[places, 4] = 0
        return crops

    def _current_device(self) -> AbstractContextManager[object]:
        return torch.cuda.device(self._device) if self._device.type == "cuda" else contextlib.nullcontext()

    def _wait(self) -> None:
        """Wait until all has ended that this thread has queued."""
        if self._finishing is not None:
            done = torch.cuda.Event(blocking=True)
            done.record(self._finishing)
            done.synchronize()

    def _count(self, samples: int, on_cpu: int) -> None:
        with self._counting:
            self._samples += samples
            self._samples_on_cpu += on_cpu
            total, left = self._samples, self._samples_on_cpu
            if self._has_warned or total < _MIN_JUDGED:
                return
            self._samples = self._samples_on_cpu = 0
            self._has_warned = 2 * left > total
            if not self._has_warned:
                return
        warnings.warn(
            f"the CPU decoded {left} of {total} images, because they are no sequential colour JPEGs or the device "
            "refuses them: another decoder may be faster",
            stacklevel=2,
        )


class _Sample(NamedTuple):
    """A sample that the device may decode."""

    place: int
    """In its batch."""
    position: int
    """Number of the image in the data set."""
    orientation: int
    encoded: Encoded


def _encoded(photo: Photo, data: npt.NDArray[np.uint8], crop: list[int]) -> Encoded:
    window = find_stored_window(crop, photo.orientation, photo.height, photo.width)
    turned = photo.orientation >= 5  # EXIF: these swap width and height
    height, width = (photo.width, photo.height) if turned else (photo.height, photo.width)
    return Encoded(data, height, width, window)


def _chunks(samples: Iterator[_Sample]) -> Iterator[list[_Sample]]:
    """The samples in groups whose decoded images take no more than :data:`MAX_DECODED_BYTES`, or one by one."""
    group: list[_Sample] = []
    size = 0
    for sample in samples:
        pixels = 3 * sample.encoded.height * sample.encoded.width
        if group and size + pixels > MAX_DECODED_BYTES:
            yield group
            group, size = [], 0
        group.append(sample)
        size += pixels
    if group:
        yield group
