"""Turns an exception, an exit status or a missed deadline into a :class:`Failure` with a hint what to try. Pure.

An error is recognised by the text that its library writes, and that text is always kept.
"""

from __future__ import annotations

import signal

from pipetune.errors import PipetuneError, UsageError
from pipetune.records.sweep import Failure

_MESSAGE_LIMIT = 400

_LAST_WORDS = "see the loader worker's last lines on stderr; if there are none, check the memory (dmesg)"
#: (kind, texts of which one occurs, hint); the first match counts. The texts are those of PyTorch, DALI and CUDA.
_KNOWN: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("bad_image", ("cannot decode image ",), "remove or repair this file, or leave this backend out"),
    (
        "out_of_shared_memory",
        (
            "unable to allocate shared memory",
            "insufficient shared memory",
            "killed by signal: Bus error",
            "unable to write to file </torch",
        ),
        "give /dev/shm more space (docker run --shm-size=8g), or lower --batch-size, --prefetch or --workers",
    ),
    ("out_of_gpu_memory", ("CUDA out of memory", "CUDA_ERROR_OUT_OF_MEMORY"), "lower --batch-size"),
    ("out_of_files", ("Too many open files",), "raise the limit (ulimit -n 65536), or lower --workers or --prefetch"),
    ("out_of_disk", ("No space left on device",), "free some space on the disk, or in /dev/shm"),
    ("wrong_library", ("but this process got ",), "see what is installed: pipetune doctor"),
    (
        "killed",
        ("is killed by signal",),
        "see the loader worker's last lines on stderr; 'Killed' there means out of memory",
    ),
    ("crashed", ("exited unexpectedly",), _LAST_WORDS),
)


def from_exception(error: BaseException, phase: str, install: str, stderr_tail: str = "") -> Failure:
    """The failure record of an exception in the child.

    Args:
        error: as raised by the loader, the backend or the accelerator.
        phase: of the child when it was raised (see :class:`Failure`).
        install: the command that installs the backend, for an import that failed.
    """
    text = " ".join(str(error).split())
    if isinstance(error, ImportError):
        message = f"{type(error).__name__}: {text}"
        return Failure(
            kind="not_installed", phase=phase, message=_short(message), hint=install, stderr_tail=stderr_tail
        )
    if isinstance(
        error, (EOFError, ConnectionError)
    ):  # from multiprocessing: a worker died while it handed a batch over
        message = f"a loader worker ended while it handed over a batch ({type(error).__name__})"
        return Failure(kind="crashed", phase=phase, message=message, hint=_LAST_WORDS, stderr_tail=stderr_tail)
    if isinstance(error, MemoryError):
        return Failure(kind="out_of_memory", phase=phase, message="out of memory", hint=_MEMORY_HINT,
                       stderr_tail=stderr_tail)  # fmt: skip
    for kind, texts, hint in _KNOWN:
        for known in texts:
            if known in text:
                # A worker's error arrives inside its whole traceback; the message is what follows the known text.
                message = text[text.rindex(known) :] if kind == "bad_image" else text
                return Failure(kind=kind, phase=phase, message=_short(message), hint=hint, stderr_tail=stderr_tail)
    if isinstance(error, PipetuneError):
        kind = "usage" if isinstance(error, UsageError) else "error"
        return Failure(kind=kind, phase=phase, message=_short(error.message), hint=error.hint, stderr_tail=stderr_tail)
    message = f"{type(error).__name__}: {text}"
    return Failure(kind="error", phase=phase, message=_short(message), stderr_tail=stderr_tail)


def from_exit(returncode: int, phase: str, stderr_tail: str) -> Failure:
    """The failure of a child that ended without a result and without an error message."""
    if returncode >= 0:
        message = f"the child ended with exit code {returncode} and no result"
        return Failure(kind="crashed", phase=phase, message=message, hint="see stderr_tail", stderr_tail=stderr_tail)
    name = signal.Signals(-returncode).name if -returncode in set(signal.Signals) else f"signal {-returncode}"
    if name == "SIGKILL":
        message, hint = "the child was killed (SIGKILL), as the kernel does when memory runs out", _MEMORY_HINT
        return Failure(kind="killed", phase=phase, message=message, hint=hint, stderr_tail=stderr_tail)
    message = f"the child was ended by {name}"
    return Failure(kind="crashed", phase=phase, message=message, hint="see stderr_tail", stderr_tail=stderr_tail)


def hung(phase: str, limit_s: float, stderr_tail: str) -> Failure:
    """The failure of a child that was ended because it exceeded its time limit."""
    return Failure(
        kind="hung", phase=phase, message=f"no result within {limit_s:.0f} s; stopped in phase {phase!r}",
        hint="try fewer workers, or raise --timeout", stderr_tail=stderr_tail,
    )  # fmt: skip


def stopped(phase: str) -> Failure:
    """The failure of a child that was ended because pipetune was asked to stop without an exception."""
    return Failure(kind="interrupted", phase=phase, message="stopped before it had a result")


def may_be_a_bad_image(failure: Failure) -> bool:
    """Whether an image may be the cause: the decoder said so, or crashed while decoding, as some do on broken files."""
    decoding = failure.phase in ("first_batch", "warmup", "timed")
    for_memory = any(word in failure.message for word in ("SIGKILL", "Killed", "SIGBUS", "Bus error"))
    return failure.kind == "bad_image" or (failure.kind in ("crashed", "killed") and decoding and not for_memory)


_MEMORY_HINT = "lower --workers, --prefetch or --batch-size"


def _short(text: str) -> str:
    return text if len(text) <= _MESSAGE_LIMIT else text[: _MESSAGE_LIMIT - 1] + "…"
