"""``pipetune.batch_size``: the batch size to train with, from a notebook or a script."""

from __future__ import annotations

from collections.abc import Sequence

from pipetune.errors import UsageError
from pipetune.records.batch_size import BatchSizes


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
) -> BatchSizes:
    """The smallest batch that is as fast as any, and the largest that fits the GPU::

        found = pipetune.batch_size("resnet50", device="cuda:0")
        run = pipetune.sweep("/data/train", batch_size=found.knee)

        found = pipetune.batch_size(["python", "train.py", "--data", "/data/x"])  # in its own training loop

    The other arguments are the options of ``pipetune batch-size``; ``pipetune batch-size --help`` says what each means.

    Raises:
        UsageError: an argument that cannot be used, named as the command's option.
        PipetuneError: the memory could not be predicted, or nothing could be measured.
        KeyboardInterrupt: asked to stop.
    """
    from pipetune.scaling.batch_run import BatchOptions, find_batch_size
    from pipetune.scaling.batch_script import ScriptOptions, find_script_batch_size

    def stop(asked: KeyboardInterrupt) -> None:
        raise asked

    if not isinstance(model, str):
        defaults = BatchOptions()
        given = {"image_size": image_size, "precision": precision, "device": device, "dataset": dataset, "seed": seed,
                 "checkpointing": checkpointing, "compile": compile}  # fmt: skip
        for name, value in given.items():
            if value != getattr(defaults, name):
                raise UsageError(f"{name}={value!r} is for a model: a script has its own", hint=f"omit {name}")
        if not model:
            raise UsageError("the command is empty", hint='write ["python", "train.py"]')
        script = ScriptOptions(command=tuple(model), memory=memory, seconds=seconds)
        return find_script_batch_size(script, lambda point: None, lambda size: None, stop)
    return find_batch_size(
        BatchOptions(
            model=model, image_size=image_size, precision=precision, device=device, memory=memory, dataset=dataset,
            seconds=seconds, seed=seed, checkpointing=checkpointing, compile=compile,
        ),
        lambda point: None, lambda size: None, stop,
    )  # fmt: skip
