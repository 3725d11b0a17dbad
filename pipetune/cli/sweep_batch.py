"""``pipetune sweep --batch-size auto``: the batch size is found before loaders are measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pipetune.errors import PipetuneError, UsageError

if TYPE_CHECKING:
    from pipetune.scaling.batch_run import BatchOptions

#: It is to be found.
AUTO_BATCH = 0


def parse_batch_size(text: str) -> int:
    """``64``, or ``auto``, which is :data:`AUTO_BATCH`.

    Raises:
        UsageError: neither.
    """
    if text.strip() == "auto":
        return AUTO_BATCH
    if not text.strip().isdecimal() or int(text) < 1:
        raise UsageError(f"{text} is no number of samples", hint="write --batch-size 64, or --batch-size auto")
    return int(text)


def found_batch_size(chosen: BatchOptions, say: Callable[[str], None]) -> int:
    """The smallest batch size that is as fast as any, which is told, too.

    What was measured is kept in a run folder of its own, as ``pipetune batch-size`` does: the sweep's is begun later.

    Raises:
        UsageError: the device is no GPU.
        PipetuneError: nothing could be measured.
        KeyboardInterrupt: asked to stop: the sweep has not begun.
    """
    from pipetune.scaling.batch_folder import open_batch_folder
    from pipetune.scaling.batch_run import find_batch_size

    def stop(asked: KeyboardInterrupt) -> None:
        raise asked

    with open_batch_folder(None, chosen) as folder:
        try:
            found = find_batch_size(
                chosen, lambda point: None, lambda size: say(f"trying batches of {size}"), stop, folder.keep
            )
        finally:
            if folder.path is not None:
                say(f"batch sizes are kept in {folder.path}")
            if folder.not_written is not None:
                say(f"! batch sizes are not kept: {folder.not_written}")
    if found.knee is None:
        raise PipetuneError(
            f"no batch size of {chosen.model} could be measured", hint="write the number: --batch-size 64"
        )
    for note in found.notes:
        say(f"! {note}")
    if found.stopped is not None:
        say(f"! batches of {found.knee} are the best so far; no others were tried: {found.stopped}")
        return found.knee
    say(f"batches of {found.knee}: the smallest that are as fast as any; {found.largest} fit into the GPU's memory")
    return found.knee
