"""Memory of a CUDA device as torch's allocator has it: a limit, and what tensors took of it."""

from __future__ import annotations

from pipetune.records.sweep import AcceleratorSpec


def limit_memory(spec: AcceleratorSpec, limit_bytes: int) -> None:
    """Have torch fail beyond this, as on a smaller device: it gives back what it has cached before it does so."""
    import torch

    index = spec.device_index or 0
    total = torch.cuda.get_device_properties(index).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), index)


def allocated_bytes(spec: AcceleratorSpec) -> int | None:
    """Most memory that tensors took at a time; what was reserved has what fragments leave unused beside it.

    Returns:
        ``None``: it is no CUDA device.
    """
    if spec.kind != "cuda":
        return None
    import torch

    return int(torch.cuda.max_memory_allocated(spec.device_index or 0))
