"""How many files per second a disk delivers that is named by its bytes and reads per second."""

from __future__ import annotations

from statistics import fmean

from pipetune.answering.base import Base
from pipetune.answering.questions import HARD_DISK
from pipetune.predicting.reads import requests_of
from pipetune.records.prediction import Disk
from pipetune.registry import BACKENDS, USER


def reads_of(base: Base, file_bytes: float) -> float:
    """Requests for a file in the mean, where files have so many bytes in the mean."""
    if base.images is None or not base.images.images or not base.mean_bytes:
        return requests_of(file_bytes, in_pieces=False)
    in_pieces = not base.images.in_shards and (
        base.candidate.loader == USER or BACKENDS[base.candidate.backend].reads_in_pieces
    )
    factor = file_bytes / base.mean_bytes
    return fmean(requests_of(factor * image.size_bytes, in_pieces=in_pieces) for image in base.images.images)


def disk_rate(disk: Disk, file_bytes: float, reads: float) -> float:
    """Files per second. A hard disk does nothing else while it seeks, others read and seek at the same time.

    Args:
        reads: requests for a file: see :func:`reads_of`.
    """
    bytes_s = 0.0 if disk.bytes_per_s is None else file_bytes / disk.bytes_per_s
    seeks_s = 0.0 if disk.requests_per_s is None else reads / disk.requests_per_s
    return 1 / (bytes_s + seeks_s if disk.name == HARD_DISK else max(bytes_s, seeks_s))
