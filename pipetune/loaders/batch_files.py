"""The files of one batch in memory that each thread uses again: new memory for each costs page faults."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from pipetune.decoders.contract import Photo, bad_image, is_shortage

#: Memory that a thread begins with, and the most that it keeps (bytes).
_FIRST_BYTES = 8 << 20
_MAX_KEPT_BYTES = 512 << 20


class BatchFiles:
    """Reads files, several threads at a time. What a thread has read is valid until it begins another batch."""

    def __init__(self) -> None:
        self._own = threading.local()

    def begin(self) -> None:
        """Begin a batch in this thread: the memory of the one before is used again."""
        self._own.used = 0

    def read(self, photo: Photo) -> npt.NDArray[np.uint8]:
        """The bytes of a file.

        Raises:
            BadImage: the file cannot be read.
        """
        try:
            data = np.frombuffer(photo.read(), np.uint8)
        except OSError as error:
            if is_shortage(error):
                raise
            raise bad_image(photo.path, error) from error
        place = self._take(len(data))
        np.copyto(place, data)
        return place

    def _take(self, size: int) -> npt.NDArray[np.uint8]:
        memory: npt.NDArray[np.uint8] | None = getattr(self._own, "memory", None)
        if size > _MAX_KEPT_BYTES:
            return np.empty(size, np.uint8)
        if memory is None or self._own.used + size > len(memory):
            # What was read so far keeps the memory that it lies in.
            length = max(_FIRST_BYTES, size, min(_MAX_KEPT_BYTES, 2 * len(memory) if memory is not None else 0))
            memory = self._own.memory = np.empty(length, np.uint8)
            self._own.used = 0
        start = self._own.used
        self._own.used = start + size
        return memory[start : start + size]
