"""Makes one batch on a device: files in the page cache or on a disk -> images that are decoded, cropped and resized.

Two streams of the device's are used, by all threads. ``decoding`` is the current stream where a decoder is called, and
nothing else is queued there: decoded images are in memory that belongs to it, and a library that decodes on a stream
of its own may get that memory again at once, whatever is queued on torch's streams. So decoded images are let go only
when all has ended that reads them. ``finishing`` waits for ``decoding`` and does the rest. A thread waits until its
batch is complete, without the GIL.

A file that is no plain JPEG, or that the device does not decode, is decoded on the CPU, by the same thread.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

from pipetune.decoders.contract import BadImage, DeviceDecode, Encoded, Photo
from pipetune.decoders.crop import Crops
from pipetune.decoders.device_pixels import Finisher, find_stored_window, resize_into, upload
from pipetune.decoders.jpeg_kind import is_plain_jpeg
from pipetune.decoders.layout import Layout
from pipetune.loaders.contract import Batch
from pipetune.loaders.photos import Photos
from pipetune.loaders.windows import Task

#: Decoded pixels that one call of a decoder may make (bytes), so that large photographs do not fill the device.
MAX_DECODED_BYTES = 256 << 20
#: Where the CPU has decoded more than half of at least so many samples, a warning says so.
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
        self._lock = threading.Lock()
        on_cuda = device.type == "cuda"
        self._decoding = torch.cuda.Stream(device) if on_cuda else None
        self._finishing = torch.cuda.Stream(device) if on_cuda else None
        self._kinds = np.zeros(len(photos), np.uint8)
        self._counts = {_ON_DEVICE: 0, _ON_CPU: 0}

    def __call__(self, task: Task, stopped: Callable[[], bool] = lambda: False) -> Batch:
        """The batch of some samples, complete; an incomplete one if ``stopped`` returns true meanwhile.

        Raises:
            BadImage: neither the device nor the CPU decodes a file.
        """
        sample_indices, crops = task
        left = list(range(len(sample_indices)))  # places of the samples that are left to the CPU
        with torch.cuda.stream(self._finishing):
            resized = self._finish.new_batch(len(sample_indices))
            for places, encoded in _chunks(self._read(sample_indices, crops, stopped)):
                left = self._fill(resized, sample_indices, places, encoded, left)
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

    def _read(
        self, sample_indices: Sequence[int], crops: Crops, stopped: Callable[[], bool]
    ) -> Iterator[tuple[int, Encoded]]:
        """The places and files of those samples that the device may decode."""
        for place, sample_index in enumerate(sample_indices):
            position = sample_index % len(self._photos)
            if stopped() or self._kinds[position] == _ON_CPU:
                continue
            photo = self._photos.photo(sample_index)
            if photo.is_jpeg and (data := self._photos.read(sample_index)) is not None:
                if self._kinds[position] == _UNKNOWN:
                    self._kinds[position] = _ON_DEVICE if is_plain_jpeg(data) else _ON_CPU
                if self._kinds[position] == _ON_DEVICE:
                    yield place, _encoded(photo, data, crops[place].tolist())
            else:
                self._kinds[position] = _ON_CPU

    def _fill(
        self, resized: torch.Tensor, sample_indices: Sequence[int], places: list[int], encoded: list[Encoded],
        left: list[int],
    ) -> list[int]:  # fmt: skip
        """Decode some samples into their places; returns the places that are left."""
        with self._lock, torch.cuda.stream(self._decoding):
            windows = self._decode(encoded)
            if self._decoding is not None and self._finishing is not None:
                self._finishing.wait_stream(self._decoding)
        for place, window in zip(places, windows, strict=True):
            if window is None:
                self._kinds[sample_indices[place] % len(self._photos)] = _ON_CPU
            else:
                orientation = self._photos.photo(sample_indices[place]).orientation
                resize_into(window, orientation, resized[place])
        self._wait()  # the windows are let go now
        done = {place for place, window in zip(places, windows, strict=True) if window is not None}
        return [place for place in left if place not in done]

    def _fill_on_cpu(
        self, resized: torch.Tensor, sample_indices: Sequence[int], places: list[int], crops: Crops,
        stopped: Callable[[], bool],
    ) -> Crops:  # fmt: skip
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

    def _wait(self) -> None:
        """Wait until all has ended that this thread has queued."""
        if self._finishing is not None:
            done = torch.cuda.Event(blocking=True)
            done.record(self._finishing)
            done.synchronize()

    def _count(self, samples: int, on_cpu: int) -> None:
        with self._lock:
            if not self._counts:
                return
            self._counts[_ON_DEVICE] += samples - on_cpu
            self._counts[_ON_CPU] += on_cpu
            total, most = sum(self._counts.values()), self._counts[_ON_CPU]
            if total < _MIN_JUDGED:
                return
            self._counts.clear()
        if 2 * most > total:
            warnings.warn(
                f"the CPU decodes {most} of the first {total} images, because they are no sequential colour JPEGs or "
                "the device refuses them: another decoder may be faster",
                stacklevel=2,
            )


def _encoded(photo: Photo, data: npt.NDArray[np.uint8], crop: list[int]) -> Encoded:
    window = find_stored_window(crop, photo.orientation, photo.height, photo.width)
    turned = photo.orientation >= 5  # EXIF: these swap width and height
    height, width = (photo.width, photo.height) if turned else (photo.height, photo.width)
    return Encoded(data, height, width, window)


def _chunks(samples: Iterator[tuple[int, Encoded]]) -> Iterator[tuple[list[int], list[Encoded]]]:
    """The samples in groups whose decoded images take no more than :data:`MAX_DECODED_BYTES`, or one by one."""
    places: list[int] = []
    group: list[Encoded] = []
    size = 0
    for place, encoded in samples:
        pixels = 3 * encoded.height * encoded.width
        if group and size + pixels > MAX_DECODED_BYTES:
            yield places, group
            places, group, size = [], [], 0
        places.append(place)
        group.append(encoded)
        size += pixels
    if group:
        yield places, group
