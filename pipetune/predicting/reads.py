"""How many requests a disk gets for a file that is not in memory. Pure.

Source: Linux's readahead (mm/readahead.c, get_init_ra_size and get_next_ra_size) with its default of 128 KiB, which
most disks have (``read_ahead_kb``). A file that is asked for at once is fetched in requests of that size. One that is
read from its beginning in small pieces, as ``PIL.Image.open`` reads a file, gets 16 KiB first, then twice as many each
time: throttled to 150 reads per second, a disk delivered 65 files/s of 73 KB in the mean to Pillow, and not 150.
"""

from __future__ import annotations

import math

_LARGEST, _FIRST = 128 << 10, 16 << 10


def requests_of(file_bytes: float, *, in_pieces: bool) -> int:
    """Requests for a file of so many bytes.

    Args:
        in_pieces: it is read in small pieces, and not at once.
    """
    if not in_pieces:
        return max(1, math.ceil(file_bytes / _LARGEST))
    requests, at, window = 0, 0, _FIRST
    while at < file_bytes or not requests:
        requests, at, window = requests + 1, at + window, min(2 * window, _LARGEST)
    return requests
