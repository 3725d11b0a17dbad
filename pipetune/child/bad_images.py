"""Finds the images of the data set that do not decode, or not in a reasonable time, by trying all of them."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from pipetune import registry
from pipetune.child.reporter import SEND_EVERY_S, Reporter
from pipetune.machine.host import usable_cores
from pipetune.records.sweep import Candidate, Workload

if TYPE_CHECKING:
    from pipetune.datasets.index import ImageFile, ImageSet


#: Longest text of a decoder about a bad image (characters).
_REASON_LIMIT = 200
#: An image whose decoding takes longer is a bad one (s): the largest that decoders accept takes about two.
LONGEST_S = 20.0
#: So many threads may be stuck in images before the rest is left untried.
_MOST_STUCK = 32


def try_images(run: Reporter, candidate: Candidate, workload: Workload, images: ImageSet) -> None:
    """Decode every image once and send those that fail; in one thread where the library has threads of its own."""
    from pipetune.loaders.open_loader import open_trial

    run.enter("check")
    alone = registry.loader_for(candidate).native_workers
    try_decode = open_trial(candidate, workload)
    threads = 1 if alone else max(1, math.ceil(usable_cores()))
    bad: list[tuple[int, str]] = []
    done, sent_ns = 0, time.monotonic_ns()
    for done, (position, reason) in enumerate(each_tried(try_decode, images.images, threads, replaceable=not alone), 1):
        if reason is not None:
            bad.append((position, " ".join(reason.split())[:_REASON_LIMIT]))
        if time.monotonic_ns() - sent_ns > SEND_EVERY_S * 1e9:
            run.sender.send("checked", done=done, bad=bad)
            bad, sent_ns = [], time.monotonic_ns()
    run.sender.send("checked", done=done, bad=bad)
    run.sender.send("result")
    run.sender.send("closed", speed_after=None)


def each_tried(
    try_decode: Callable[[ImageFile], str | None], images: Sequence[ImageFile], threads: int, *, replaceable: bool,
    longest_s: float = LONGEST_S,
) -> Iterator[tuple[int, str | None]]:  # fmt: skip
    """Yield each image's position and why it does not decode (``None``: it does), in the order in which they end.

    Args:
        try_decode: may be called by several threads at once where there are several.
        threads: at a time.
        replaceable: another thread goes on where one is stuck in an image; otherwise the rest is left untried.
        longest_s: after which an image counts as bad (s).
    """
    results: queue.SimpleQueue[tuple[int, str | None] | Exception] = queue.SimpleQueue()
    positions, lock = iter(range(len(images))), threading.Lock()
    under_way: dict[int, float] = {}

    def work() -> None:
        while True:
            with lock:
                position = next(positions, None)
                if position is None:
                    return
                under_way[position] = time.monotonic()
            try:
                reason = try_decode(images[position])
            except Exception as error:  # of no image: memory has run out
                results.put(error)
                return
            with lock:
                if under_way.pop(position, None) is None:
                    return  # it was given up, and another thread has taken this one's place
            results.put((position, reason))

    def begin() -> None:
        # A daemon: one that is stuck must not hold up this process's end.
        threading.Thread(target=work, name="pipetune-check", daemon=True).start()

    for _ in range(threads):
        begin()
    left, stuck = len(images), 0
    while left:
        try:
            result = results.get(timeout=min(0.5, longest_s / 4))
            if isinstance(result, Exception):
                raise result
            yield result
            left -= 1
        except queue.Empty:
            with lock:
                late = [at for at, began in under_way.items() if time.monotonic() - began > longest_s]
                for position in late:
                    del under_way[position]
            for position in late:
                yield position, f"not decoded after {longest_s:.0f} s"
                left, stuck = left - 1, stuck + 1
                if not replaceable or stuck > _MOST_STUCK:
                    return
                begin()
