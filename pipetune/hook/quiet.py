"""What a script must not do while it is measured, because its training is not meant: write checkpoints over real ones.

Only where nothing else keeps the user's files as they are (:data:`pipetune.measure.script.protocol.REFUSE_SAVES`).
``torch.save`` of a path writes from C++, where no audit hook sees it; so the functions themselves are replaced. A
script that gets there while it is measured is ended there, with everything that was measured on its way already.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

#: Methods by which libraries save checkpoints, besides ``torch.save`` to a file: module, class, method, number of the
#: argument with the path (``None``: it has none). Lightning saves into memory first, transformers removes older ones.
_SAVING = (
    ("lightning.fabric.plugins.io.torch_io", "TorchCheckpointIO", "save_checkpoint", 1),
    ("lightning_fabric.plugins.io.torch_io", "TorchCheckpointIO", "save_checkpoint", 1),
    ("transformers.trainer", "Trainer", "_save_checkpoint", None),
    ("transformers.trainer", "Trainer", "save_model", None),
)


def refuse_checkpoints(on_save: Callable[[str], None]) -> None:
    """Have ``on_save`` called, with what is written to, instead of each checkpoint; it must not return.

    In this process only: a loader worker that is forked from it may save samples.
    """
    torch: Any = sys.modules["torch"]
    original = torch.serialization.save
    owner = os.getpid()

    @functools.wraps(original)
    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        in_memory = not isinstance(f, (str, bytes)) and not hasattr(f, "__fspath__") and not hasattr(f, "name")
        if in_memory or os.getpid() != owner:
            original(obj, f, *args, **kwargs)
            return
        target = f if isinstance(f, (str, bytes)) else getattr(f, "__fspath__", lambda: getattr(f, "name", f))()
        on_save(str(target))

    torch.serialization.save = torch.save = save
    for module_name, class_name, method, place in _SAVING:
        kind = getattr(sys.modules.get(module_name), class_name, None)
        if kind is not None:
            setattr(kind, method, _refusing(getattr(kind, method), on_save, place, owner))
    safetensors: Any = sys.modules.get("safetensors.torch")
    if safetensors is not None:
        # Called by save_file, which others import by its name.
        safetensors.serialize_file = _refusing_file(safetensors.serialize_file, on_save, owner)


def _refusing(original: Any, on_save: Callable[[str], None], place: int | None, owner: int) -> Any:
    @functools.wraps(original)
    def save(self: Any, *args: Any, **kwargs: Any) -> Any:
        if os.getpid() != owner:
            return original(self, *args, **kwargs)
        on_save("a checkpoint" if place is None or len(args) <= place else str(args[place]))

    return save


def _refusing_file(original: Any, on_save: Callable[[str], None], owner: int) -> Any:
    def serialize_file(tensors: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
        return original(tensors, filename, *args, **kwargs) if os.getpid() != owner else on_save(str(filename))

    return serialize_file
