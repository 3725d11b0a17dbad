"""Finds the images of the data set that do not decode, by trying all of them."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from pipetune import registry
from pipetune.child.reporter import SEND_EVERY_S, Reporter
from pipetune.machine.host import usable_cores
from pipetune.records.sweep import Candidate, Workload

if TYPE_CHECKING:
    from pipetune.datasets.index import ImageSet


#: Longest text of a decoder about a bad image (characters).
_REASON_LIMIT = 200


def try_images(run: Reporter, candidate: Candidate, workload: Workload, images: ImageSet) -> None:
    """Decode every image once and send those that fail; in one thread where the library has threads of its own."""
    from concurrent.futures import ThreadPoolExecutor

    from pipetune.loaders.open_loader import open_trial

    run.enter("check")
    alone = registry.loader_for(candidate).native_workers
    try_decode = open_trial(candidate, workload)
    bad: list[tuple[int, str]] = []
    sent_ns = time.monotonic_ns()
    with ThreadPoolExecutor(1 if alone else max(1, math.ceil(usable_cores()))) as pool:
        reasons = pool.map(try_decode, images.images, chunksize=1)
        for position, reason in enumerate(reasons):
            if reason is not None:
                bad.append((position, " ".join(reason.split())[:_REASON_LIMIT]))
            if time.monotonic_ns() - sent_ns > SEND_EVERY_S * 1e9:
                run.sender.send("checked", done=position + 1, bad=bad)
                bad, sent_ns = [], time.monotonic_ns()
    run.sender.send("checked", done=len(images.images), bad=bad)
    run.sender.send("result")
    run.sender.send("closed", speed_after=None)
