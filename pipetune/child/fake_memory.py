"""The program that predicts a training step's memory for two batch sizes; one JSON line on standard output.

With torch's fake tensors, which have a shape and no contents: nothing is computed, and no device is touched for it. Of
that device it says how much memory is free.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from pipetune.errors import PipetuneError, UsageError
from pipetune.processes.parent_death import die_with_parent


def main() -> int:
    """Answer the request that the first argument is (JSON); the second one is our parent's PID."""
    request, parent = sys.argv[-2:]
    die_with_parent(int(parent))
    report = os.dup(1)
    os.dup2(2, 1)
    found: dict[str, Any] = {}
    try:
        asked = json.loads(request)
        found["memory"] = memory_of(asked["device"])
        found["peaks"] = predicted(
            asked["model"], asked["precision"], asked["image_size"], asked["batches"],
            checkpointing=asked["checkpointing"],
        )  # fmt: skip
    except PipetuneError as error:
        found = {"error": error.message, "hint": error.hint, "usage": isinstance(error, UsageError)}
    except Exception as error:  # torch's tools for this are new, and change
        hint = "is this torch 2.8 or later?" if "memory" in found else "nvidia-smi shows what else uses the GPU"
        found = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}", "hint": hint}
    with contextlib.suppress(OSError):
        os.write(report, json.dumps(found).encode() + b"\n")
    return 0


def memory_of(index: int) -> dict[str, int]:
    """Memory of a CUDA device, and what is free of it besides this process's own context (bytes)."""
    import torch

    with torch.cuda.device(index):
        free, total = torch.cuda.mem_get_info()
    return {"free": int(free), "total": int(total)}


def predicted(
    model: str, precision: str, image_size: int, batches: list[int], *, checkpointing: bool = False
) -> list[int]:
    """Peak memory of a step with each of these batch sizes (bytes), the optimizer's state included."""
    import torch
    import torchvision
    from torch._subclasses.fake_tensor import FakeTensorMode

    from pipetune.accelerator.train_step import TrainingStep, usable_precision

    precision = usable_precision(precision, torch.device("cuda"))
    peaks = []
    # A module of fake tensors cannot be moved, and lies where it is to be anyway. Values do not matter.
    torch.nn.Module.to = _stay
    for name in [name for name in vars(torch.nn.init) if name.endswith("_") and not name.startswith("_")]:
        setattr(torch.nn.init, name, _stay)
    get_model = torchvision.models.get_model
    with FakeTensorMode() as fake, contextlib.ExitStack() as after:
        torchvision.models.get_model = functools.partial(_with_fake_weights, get_model, fake)
        after.callback(setattr, torchvision.models, "get_model", get_model)
        for batch in batches:
            step = TrainingStep(model, precision, torch.device("cpu"), checkpointing=checkpointing)
            images = torch.zeros(batch, 3, image_size, image_size, dtype=torch.uint8)
            labels = torch.zeros(batch, dtype=torch.int64)
            step.run(images, labels)  # the optimizer's state comes with the first step
            peaks.append(_peak_of(step, images, labels))
    return peaks


def _with_fake_weights(get_model: Callable[..., Any], fake: Any, name: str, **options: Any) -> Any:
    """A model with fake weights. It is made with real ones, because some models compute their own form.

    What modules share, as the input and output of a language model do, they share afterwards.
    """
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.nn import Parameter

    with unset_fake_temporarily():
        model = get_model(name, **options)
        made: dict[int, Any] = {}
        kept = []  # or another one would get the number of one that is gone
        for module in model.modules():
            for values in (module._parameters, module._buffers):
                for key, real in values.items():
                    if real is None:
                        continue
                    if id(real) not in made:
                        kept.append(real)
                        one = made[id(real)] = fake.from_tensor(real.detach())
                        if isinstance(real, Parameter):
                            made[id(real)] = Parameter(one, requires_grad=real.requires_grad)
                    values[key] = made[id(real)]
    return model


def _stay(module: Any, *_: Any, **__: Any) -> Any:
    return module


def _peak_of(step: Any, images: Any, labels: Any) -> int:
    from torch.distributed._tools.mem_tracker import MemTracker

    tracker = MemTracker()
    tracker.track_external(step._model, step._optimizer, images, labels)
    with tracker:
        step.run(images, labels)
    return sum(int(kinds["Total"]) for kinds in tracker.get_tracker_snapshot("peak").values())


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)
