"""``pipetune sweep --batch-size auto``: the batch size is found before loaders are measured."""

from __future__ import annotations

from collections.abc import Callable

from pipetune.errors import PipetuneError, UsageError

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


def found_batch_size(
    model: str, image_size: int, precision: str, device: str, seed: int, say: Callable[[str], None]
) -> int:  # fmt: skip
    """The smallest batch size that is as fast as any, which is told, too.

    Raises:
        UsageError: the device is no GPU.
        PipetuneError: nothing could be measured.
        KeyboardInterrupt: asked to stop: the sweep has not begun.
    """
    from pipetune.scaling.batch_run import BatchOptions, find_batch_size

    def stop(asked: KeyboardInterrupt) -> None:
        raise asked

    found = find_batch_size(
        BatchOptions(model=model, image_size=image_size, precision=precision, device=device, seed=seed),
        lambda point: None, lambda size: say(f"trying batches of {size}"), stop,
    )  # fmt: skip
    if found.knee is None:
        raise PipetuneError(f"no batch size of {model} could be measured", hint="write the number: --batch-size 64")
    for note in found.notes:
        say(f"! {note}")
    if found.stopped is not None:
        say(f"! batches of {found.knee} are the best so far; no others were tried: {found.stopped}")
        return found.knee
    say(f"batches of {found.knee}: the smallest that are as fast as any; {found.largest} fit into the GPU's memory")
    return found.knee
