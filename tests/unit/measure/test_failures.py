from __future__ import annotations

import signal

import pytest

from pipetune.errors import UsageError
from pipetune.measure import failures

INSTALL = "pip install x"


@pytest.mark.parametrize(
    ("error", "kind", "expected"),
    [
        (ImportError("No module named 'cv2'"), "not_installed", "cv2"),
        (MemoryError(), "out_of_memory", "out of memory"),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed."), "killed", "killed by signal"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out_of_gpu_memory", "Tried to allocate"),
        (RuntimeError("CUDA error: out of memory"), "out_of_gpu_memory", "CUDA error"),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), "out_of_gpu_memory", "CUDNN"),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            "out_of_gpu_memory",
            "cublasCreate",
        ),
        (RuntimeError("Can't allocate 1048576 bytes on device 0."), "out_of_gpu_memory", "on device 0"),
        (RuntimeError("Can't allocate 1048576 bytes on host."), "out_of_memory", "on host"),
        (RuntimeError("CUDA error: unspecified launch failure"), "device_error", "launch failure"),
        (RuntimeError("No CUDA GPUs are available"), "device_error", "No CUDA GPUs"),
        (
            RuntimeError("Unexpected error from cudaGetDeviceCount(). Error 101: invalid device ordinal"),
            "device_error",
            "CUDA error 101 in cudaGetDeviceCount: invalid device ordinal",
        ),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "error", "illegal memory access"),
        (OSError(24, "Too many open files"), "out_of_files", "Too many open files"),
        (
            RuntimeError("unable to allocate shared memory(shm) for file </torch_1>: No space left on device (28)"),
            "out_of_shared_memory",
            "/torch_1",
        ),
        (ValueError("strange"), "error", "ValueError: strange"),
        (UsageError("torchvision has no classifier named 'x'", hint="did you mean y?"), "usage", "no classifier"),
    ],
)
def test_known_failures_are_recognised_and_keep_their_text(error: Exception, kind: str, expected: str) -> None:
    failure = failures.from_exception(error, "open", INSTALL)
    assert failure.kind == kind
    assert expected in failure.message
    assert failure.phase == "open"
    if kind not in ("error",):
        assert failure.hint


@pytest.mark.parametrize(
    ("message", "may"),
    [
        ("CUDA error: unspecified launch failure", True),
        ("CUDA error: an illegal memory access was encountered", True),
        ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(handle)`", True),
        ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", True),
        ("cannot decode image /photos/CUDNN_STATUS.jpg", False),
        ("strange", False),
    ],
)
def test_after_an_error_of_cuda_or_of_its_libraries_the_device_may_be_lost(message: str, may: bool) -> None:
    assert failures.may_be_lost(failures.from_exception(RuntimeError(message), "timed", INSTALL)) == may


def test_after_a_child_that_hung_the_device_may_be_lost() -> None:
    assert failures.may_be_lost(failures.hung("timed", 5.0, ""))


def test_a_missing_package_is_reported_with_the_command_that_installs_it() -> None:
    assert failures.from_exception(ModuleNotFoundError("nvidia"), "open", INSTALL).hint == INSTALL


def test_a_bad_image_inside_a_workers_traceback_is_named_first() -> None:
    text = (
        "Caught BadImage in DataLoader worker process 0.\nTraceback …\nBadImage: cannot decode image '/d/a b.jpg': bad"
    )
    failure = failures.from_exception(RuntimeError(text), "warmup", INSTALL)
    assert failure.kind == "bad_image"
    assert failure.message == "cannot decode image '/d/a b.jpg': bad"


#: As torch 2.14 words it, on the stand-in CUDA runtime.
PIN_THREAD = """Caught AcceleratorError in pin memory thread for device 0.
Original Traceback (most recent call last):
  File "/torch/utils/data/_utils/pin_memory.py", line 57, in pin_memory
    return data.pin_memory(device)
           ^^^^^^^^^^^^^^^^^^^^^^^
torch.AcceleratorError: CUDA error: out of memory
Search for `cudaErrorMemoryAllocation' in https://docs.nvidia.com for more information.
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
"""


def test_page_locked_memory_of_the_host_is_told_from_memory_of_the_gpu() -> None:
    failure = failures.from_exception(RuntimeError(PIN_THREAD), "warmup", INSTALL)
    assert failure.kind == "out_of_locked_memory"
    assert failure.message == (
        "Caught AcceleratorError in pin memory thread for device 0: torch.AcceleratorError: CUDA error: out of memory"
    )
    assert failure.hint is not None
    assert failure.hint.startswith("the host has no more memory that can be page-locked: lower --workers")


def test_a_line_that_locks_pages_tells_what_ran_out() -> None:
    class Batch:
        def pin_memory(self) -> None:
            raise RuntimeError("CUDA error: out of memory")

    with pytest.raises(RuntimeError) as caught:
        Batch().pin_memory()
    caught.tb.tb_next = None  # what torch raises comes from C++, without a frame of its own
    assert failures.from_exception(caught.value, "open", INSTALL).kind == "out_of_locked_memory"


@pytest.mark.parametrize(
    ("returncode", "kind", "expected"),
    [(-signal.SIGSEGV, "crashed", "SIGSEGV"), (-signal.SIGKILL, "killed", "SIGKILL"), (3, "crashed", "exit code 3")],
)
def test_a_child_without_a_last_word(returncode: int, kind: str, expected: str) -> None:
    failure = failures.from_exit(returncode, "timed", "last words")
    assert failure.kind == kind
    assert expected in failure.message
    assert failure.stderr_tail == "last words"


def test_a_child_that_was_killed_is_told_with_what_the_kernel_counts() -> None:
    assert "memory runs out" in (failures.from_exit(-signal.SIGKILL, "timed", "").hint or "")
    assert "something else" in (failures.from_exit(-signal.SIGKILL, "timed", "", 0).hint or "")
    assert failures.from_exit(-signal.SIGKILL, "timed", "", 1).kind == "out_of_memory"


def test_what_nobody_could_catch_is_read_from_the_last_words() -> None:
    tail = (
        "terminate called after throwing an instance of 'c10::AcceleratorError'\n  what():  CUDA error: out of memory\n"
    )
    failure = failures.from_exit(-signal.SIGABRT, "warmup", f"{tail}Search for it\nframe #0: in libc10.so")
    assert (failure.kind, failure.message) == (
        "out_of_gpu_memory",
        "the child was ended by SIGABRT: CUDA error: out of memory",
    )
    assert failures.from_exit(-signal.SIGABRT, "warmup", "  what():  strange").kind == "crashed"


def test_endless_text_is_cut() -> None:
    assert len(failures.from_exception(ValueError("x" * 10**6), "open", INSTALL).message) <= 400


def test_a_hung_child_says_where() -> None:
    assert "'first_batch'" in failures.hung("first_batch", 9, "").message
