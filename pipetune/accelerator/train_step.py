"""The training step that real accelerators run: a torchvision classifier, cross entropy, SGD with momentum.

Batches are channels last (NHWC), the optimizer is the fused one on CUDA devices, and forward pass and loss run under
autocast where the precision asks for it. ``compiled`` has ``torch.compile`` generate the kernels of the model's forward
and backward pass; without it, each operator launches its own kernels (eager). The optimizer, the loss and the
normalisation of uint8 images are eager in both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torchvision

from pipetune.accelerator.checkpointing import checkpoint_blocks
from pipetune.accelerator.compiled_model import CompiledModel, compiling
from pipetune.accelerator.device_transforms import DeviceTransforms
from pipetune.accelerator.model_names import unknown_model
from pipetune.augmentation.recipes import BASIC

_AUTOCAST = {"fp32": None, "amp": torch.float16, "bf16": torch.bfloat16}


def usable_precision(precision: str, device: torch.device) -> str:
    """``auto``: bf16 on GPUs that compute in it (compute capability 8.0 on), float16 on older ones, fp32 on the CPU."""
    if precision != "auto":
        return precision
    if device.type != "cuda":
        return "fp32"
    return "bf16" if torch.cuda.get_device_capability(device) >= (8, 0) else "amp"


def move_to(batch: Any, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """The batch on the device, channels last; asynchronous when it comes from page-locked memory."""
    images = batch.images.to(device, non_blocking=True, memory_format=torch.channels_last)
    return images, batch.labels.to(device, non_blocking=True)


class Batch(NamedTuple):
    """The part of a batch that a step needs."""

    images: torch.Tensor
    labels: torch.Tensor


class NoStep:
    """Copies batches to a device, and does nothing with them there."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def move(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """See :func:`move_to`."""
        return move_to(batch, self.device)

    def warm_up(self, batch: Any, steps: int) -> None:
        """Copy the batch: nothing else is done for the first time."""
        self.move(batch)

    def run(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Nothing."""


class TrainingStep:
    """Forward, backward and optimizer step, channels last, with autocast as ``precision`` says.

    Args:
        model: a classifier of ``torchvision.models``; random weights.
        precision: ``fp32``, ``amp`` (float16 with loss scaling) or ``bf16``.
        device: where the parameters live.
        checkpointing: activations are computed again in the backward pass.
        compiled: ``torch.compile`` compiles the model (:mod:`pipetune.accelerator.compiled_model`).
        transforms: are done to each batch first; ``None``: uint8 images are normalised.

    Raises:
        UsageError: torchvision has no such classifier; the nearest names are suggested.
    """

    def __init__(
        self, model: str, precision: str, device: torch.device, *, checkpointing: bool = False, compiled: bool = False,
        transforms: DeviceTransforms | None = None,
    ) -> None:  # fmt: skip
        names = tuple(torchvision.models.list_models(module=torchvision.models))
        if model not in names:
            raise unknown_model(model, names)
        self.device = device
        self._transforms = DeviceTransforms(BASIC, 0, 1, device) if transforms is None else transforms
        self._samples = 0
        self._model = torchvision.models.get_model(model, weights=None).to(device)
        self._model = self._model.to(memory_format=torch.channels_last).train()
        if checkpointing:
            checkpoint_blocks(self._model)
        self._forward: Callable[[torch.Tensor], Any] = CompiledModel(self._model) if compiled else self._model
        self._is_compiled = compiled
        self._loss = torch.nn.CrossEntropyLoss()
        # fused: a fused optimizer takes the scaler's "found inf" on the device; the others make the scaler wait for
        # the device in every step, which would hide the overlap that is being measured.
        self._optimizer = torch.optim.SGD(
            self._model.parameters(), lr=1e-3, momentum=0.9, fused=True if device.type == "cuda" else None
        )
        precision = usable_precision(precision, device)
        self._autocast = _AUTOCAST[precision]
        # A modest first scale: an overflow in the very first step would leave the fused optimizer's momentum unwritten.
        scaled = precision == "amp" and device.type == "cuda"
        self._scaler = torch.amp.GradScaler(device.type, init_scale=2.0**10, enabled=scaled)

    def move(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """See :func:`move_to`. Bytes are copied as they are; :meth:`run` normalises them."""
        return move_to(batch, self.device)

    def warm_up(self, batch: Any, steps: int) -> None:
        """Run a few steps on a batch of the size of those to come; a model that is to be compiled is compiled in them.

        Raises:
            PipetuneError: ``torch.compile`` failed.
        """
        with compiling() if self._is_compiled else contextlib.nullcontext():
            for _ in range(steps):
                self.run(*self.move(batch))

    def run(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """One optimizer step, with what is done to a batch before it. Enqueues only, on a CUDA device."""
        # Which samples they are does not matter here: those of other batches draw in the same way.
        first, self._samples = self._samples, self._samples + len(images)
        images, labels = self._transforms(images, labels, range(first, self._samples))
        autocast: Any = contextlib.nullcontext()
        if self._autocast is not None:
            autocast = torch.autocast(self.device.type, dtype=self._autocast)
        with autocast:
            output = self._forward(images)
            # inception_v3 and googlenet return auxiliary heads beside their logits.
            logits = output if isinstance(output, torch.Tensor) else output.logits
            loss = self._loss(logits, _fitting(labels, logits.shape[1]))
        self._optimizer.zero_grad(set_to_none=True)
        self._scaler.scale(loss).backward()
        self._scaler.step(self._optimizer)
        self._scaler.update()


def _fitting(labels: torch.Tensor, outputs: int) -> torch.Tensor:
    """The labels for a model with so many outputs: a folder may have other classes than its 1000, or more.

    Which label it is does not matter here.
    """
    if labels.ndim == 1:
        return labels % outputs
    return torch.nn.functional.pad(labels, (0, outputs - labels.shape[1]))
