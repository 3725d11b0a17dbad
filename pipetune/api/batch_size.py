"""``pipetune.batch_size``: the batch size to train with, from a notebook or a script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipetune.errors import UsageError
from pipetune.records.batch_size import BatchSizes

if TYPE_CHECKING:
    from pipetune.scaling.batch_folder import BatchFolder


def batch_size(
    model: str | Sequence[str] = "resnet50",
    *,
    image_size: int = 224,
    precision: str = "auto",
    device: str = "auto",
    memory: float = 0.92,
    dataset: str = "synthetic:caltech256?n=64",
    seconds: float = 1.5,
    seed: int = 0,
    checkpointing: bool = False,
    compile: bool = False,
    allow_writes: bool = False,
    out: str | Path | None = None,
) -> BatchSizes:
    """The smallest batch that is as fast as any, and the largest that fits the GPU::

        found = pipetune.batch_size("resnet50", device="cuda:0")
        run = pipetune.sweep("/data/train", batch_size=found.knee)

        found = pipetune.batch_size(["python", "train.py", "--data", "/data/x"])  # in its own training loop

    Each batch size is kept when it was measured: ``pipetune report`` shows a folder (``out``;
    ``pipetune-runs/TIME-batch-size-MODEL`` unless given) in whatever state it was left.

    The other arguments are the options of ``pipetune batch-size``; ``pipetune batch-size --help`` says what each means.

    Raises:
        UsageError: an argument that cannot be used, named as the command's option.
        PipetuneError: the memory could not be predicted, or nothing could be measured.
        KeyboardInterrupt: asked to stop.
    """
    from pipetune.scaling.batch_folder import open_batch_folder
    from pipetune.scaling.batch_run import BatchOptions, find_batch_size
    from pipetune.scaling.batch_script import ScriptOptions, find_script_batch_size

    def stop(asked: KeyboardInterrupt) -> None:
        raise asked

    def silent(_: object) -> None:
        """Nothing is shown."""

    place = None if out is None else Path(out)
    if not isinstance(model, str):
        defaults = BatchOptions()
        given = {"image_size": image_size, "precision": precision, "device": device, "dataset": dataset, "seed": seed,
                 "checkpointing": checkpointing, "compile": compile}  # fmt: skip
        for name, value in given.items():
            if value != getattr(defaults, name):
                raise UsageError(f"{name}={value!r} is for a model: a script has its own", hint=f"omit {name}")
        if not model:
            raise UsageError("the command is empty", hint='write ["python", "train.py"]')
        script = ScriptOptions(command=tuple(model), memory=memory, seconds=seconds, allow_writes=allow_writes)
        with open_batch_folder(place, script) as folder, folder.protect_files(script) as files:
            return _written(find_script_batch_size(script, silent, silent, stop, keep=folder.keep, files=files), folder)
    if allow_writes:
        raise UsageError("allow_writes=True is for a script", hint="omit it")
    chosen = BatchOptions(
        model=model,
        image_size=image_size,
        precision=precision,
        device=device,
        memory=memory,
        dataset=dataset,
        seconds=seconds,
        seed=seed,
        checkpointing=checkpointing,
        compile=compile,
    )
    with open_batch_folder(place, chosen) as folder:
        return _written(find_batch_size(chosen, silent, silent, stop, folder.keep), folder)


def _written(found: BatchSizes, folder: BatchFolder) -> BatchSizes:
    """What was found.

    Raises:
        PipetuneError: the disk refused to keep it.
    """
    if folder.not_written is not None:
        raise folder.not_written
    return found
