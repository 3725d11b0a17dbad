"""Starts NVML, or says why it cannot be, with the next thing to try."""

from __future__ import annotations

from typing import Any

from pipetune.errors import PipetuneError

_HINTS = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": (
        "no_library",
        "the NVIDIA driver's library libnvidia-ml.so.1 is not installed",
        "install the driver, or start the container with --gpus all",
    ),
    "NVML_ERROR_DRIVER_NOT_LOADED": (
        "no_driver",
        "the NVIDIA driver is not loaded",
        "run nvidia-smi for details; load it with: sudo modprobe nvidia",
    ),
    "NVML_ERROR_NO_PERMISSION": (
        "no_permission",
        "NVML refuses this user",
        "check the rights of /dev/nvidiactl and /dev/nvidia0",
    ),
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": (
        "version_mismatch",
        "the NVIDIA library and the loaded driver are of different versions",
        "reboot, or reload the nvidia kernel modules",
    ),
}


class NvmlUnavailable(PipetuneError):
    """No GPU can be read through NVML.

    ``reason`` is for programs: ``no_binding``, ``no_library``, ``no_driver``, ``no_permission``, ``version_mismatch``,
    ``no_such_gpu``, ``no_answer`` (:mod:`pipetune.machine.nvml.gpu_state`) or ``nvml_error``.
    """

    def __init__(self, message: str, *, reason: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


def start_nvml() -> Any:
    """Import and initialise the binding; its ``nvmlShutdown`` ends it.

    Raises:
        NvmlUnavailable: no binding, library, driver or permission.
    """
    try:
        import pynvml
    except ImportError as error:
        raise NvmlUnavailable(
            "the Python binding for NVML is not installed", reason="no_binding", hint="pip install nvidia-ml-py"
        ) from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise unavailable(pynvml, error) from error
    return pynvml


def unavailable(library: Any, error: Any) -> NvmlUnavailable:
    """An NVML error as one line with the next thing to try."""
    for name, (reason, message, hint) in _HINTS.items():
        if error.value == getattr(library, name):
            return NvmlUnavailable(message, reason=reason, hint=hint)
    return NvmlUnavailable(f"NVML: {error}", reason="nvml_error", hint="run nvidia-smi for details")
