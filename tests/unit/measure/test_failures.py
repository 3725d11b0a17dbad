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


def test_a_missing_package_is_reported_with_the_command_that_installs_it() -> None:
    assert failures.from_exception(ModuleNotFoundError("nvidia"), "open", INSTALL).hint == INSTALL


def test_a_bad_image_inside_a_workers_traceback_is_named_first() -> None:
    text = (
        "Caught BadImage in DataLoader worker process 0.\nTraceback …\nBadImage: cannot decode image '/d/a b.jpg': bad"
    )
    failure = failures.from_exception(RuntimeError(text), "warmup", INSTALL)
    assert failure.kind == "bad_image"
    assert failure.message == "cannot decode image '/d/a b.jpg': bad"


@pytest.mark.parametrize(
    ("returncode", "kind", "expected"),
    [(-signal.SIGSEGV, "crashed", "SIGSEGV"), (-signal.SIGKILL, "killed", "memory"), (3, "crashed", "exit code 3")],
)
def test_a_child_without_a_last_word(returncode: int, kind: str, expected: str) -> None:
    failure = failures.from_exit(returncode, "timed", "last words")
    assert failure.kind == kind
    assert expected in failure.message
    assert failure.stderr_tail == "last words"


def test_endless_text_is_cut() -> None:
    assert len(failures.from_exception(ValueError("x" * 10**6), "open", INSTALL).message) <= 400


def test_a_hung_child_says_where() -> None:
    assert "'first_batch'" in failures.hung("first_batch", 9, "").message
