"""The seconds that a new process takes to its first step: part of stage ``probe``. Prints one JSON object."""

from __future__ import annotations

import sys

from benchmarks.gpu.commands import now_s, print_json
from benchmarks.gpu.workloads import IMAGE_SIZE, MODEL, batch_size


def main(device: str) -> None:
    """Import, context, model, warm-up, and a second warm-up, which shows what of the first was paid once."""
    began = now_s()
    import torch

    from pipetune.accelerator.torch_accelerator import TorchAccelerator  # with torchvision

    imported = now_s()
    torch.zeros(1, device=device)
    torch.cuda.synchronize(device)
    opened = now_s()
    index = int(device.partition(":")[2] or 0)
    accelerator = TorchAccelerator(MODEL, "auto", torch.device("cuda", index))
    torch.cuda.synchronize(device)
    built = now_s()
    shape = (batch_size(is_cuda=True), 3, IMAGE_SIZE, IMAGE_SIZE)
    accelerator.warm_up(shape)
    warm = now_s()
    accelerator.warm_up(shape)
    print_json(
        import_s=imported - began,
        context_s=opened - imported,
        model_s=built - opened,
        warm_up_s=warm - built,
        second_warm_up_s=now_s() - warm,
    )


if __name__ == "__main__":
    main(sys.argv[1])
