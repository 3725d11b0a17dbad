"""Turns an exception, an exit status or a missed deadline into a :class:`Failure` with a hint what to try. Pure.

An error is recognised by the text that its library writes, and that text is always kept.
"""

from __future__ import annotations

import re
import signal
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pipetune.errors import PipetuneError, UsageError
from pipetune.records.sweep import Failure

_MESSAGE_LIMIT = 400

#: Kind of a failure of the device itself, as far as CUDA can tell, and of one that NVML has confirmed: it is gone.
DEVICE_ERROR, DEVICE_LOST = "device_error", "device_lost"
#: What CUDA and torch say of a device that has failed (in a running process) or is not there (in a new one). Not errors
#: of a kernel alone, such as an illegal memory access, which end the process and leave the device as it was.
_DEVICE_ERRORS = (
    "unspecified launch failure",
    "uncorrectable ECC error",
    "uncorrectable NVLink error",
    "CUDA error: unknown error",
    "CUDA unknown error",
    "device(s) is/are busy or unavailable",
    "no CUDA-capable device is detected",
    "invalid device ordinal",
    "No CUDA GPUs are available",
    "CUDA driver initialization failed",
)
#: How CUDA and its libraries report errors. A library has only a status for any kernel that could not be executed, such
#: as ``CUBLAS_STATUS_EXECUTION_FAILED``, on a lost device too.
_OF_CUDA = re.compile(r"CUDA error|\bCU[A-Z]+_STATUS_")
#: CUDA's words for memory of the device and for page-locked memory of the host alike.
_ANY_MEMORY = "CUDA error: out of memory"
#: NVIDIA's driver does not look at ``ulimit -l``: its ``os_lock_user_pages`` (kernel-open/nvidia/os-mlock.c of
#: open-gpu-kernel-modules) pins pages without a look at RLIMIT_MEMLOCK.
_LOCKED_HINT = (
    "the host has no more memory that can be page-locked: lower --workers or --prefetch, or raise the memory limit of "
    "the container (docker run --memory)"
)
#: What torch makes of an error in a loader worker or in its thread that locks pages: (who, error).
_CAUGHT = re.compile(r"(Caught .+?)\.\nOriginal Traceback.*^(\w[\w.]*(?::.*|$))", re.DOTALL | re.MULTILINE)
#: ``Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before … Error 719: …``
_UNEXPECTED = re.compile(r"Unexpected error from (\w+)\(\)\..*Error (\d+): (.+)", re.DOTALL)
#: ``terminate called after throwing an instance of 'c10::AcceleratorError'`` and in the next line what it was.
_WHAT = re.compile(r"^ *what\(\): +(.+)$", re.MULTILINE)
_LAST_WORDS = "see the loader worker's last lines on stderr; if there are none, check the memory (dmesg)"
#: Kinds of failures of workers that are started by spawn: the script starts itself in each of them; what they need
#: cannot be sent to them. And of workers that yield the same samples, or leave some out.
NO_MAIN_GUARD, CANNOT_PICKLE = "no_main_guard", "cannot_pickle"
REPEATED_SAMPLES, OTHER_EPOCH = "repeated_samples", "other_epoch"
#: A part of what Python says where a process that is being spawned starts processes (``multiprocessing/spawn.py``).
_UNGUARDED = "finished its bootstrapping phase"
GUARD_HINT = 'put what trains under if __name__ == "__main__":, then measure again'
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
    # Of the host: DALI's page-locked memory, too, and what torch says where the system refuses memory.
    (
        "out_of_memory",
        ("bytes on host.", "DefaultCPUAllocator: can't allocate memory", "C10 Out of Memory"),
        "lower --workers, --prefetch or --batch-size",
    ),
    (
        "out_of_gpu_memory",
        (
            "CUDA out of memory",
            "CUDA ran out of memory",
            "CUDA_ERROR_OUT_OF_MEMORY",
            _ANY_MEMORY,  # of a context, an event or a stream
            "CUDNN_STATUS_ALLOC_FAILED",
            "CUBLAS_STATUS_ALLOC_FAILED",
            "bytes on device ",  # DALI: "Can't allocate N bytes on device D."
        ),
        "lower --batch-size, or end other processes on this GPU (nvidia-smi)",
    ),
    # Python's, the system's and NumPy's words; after those of the device, whose exception is an OutOfMemoryError.
    (
        "out_of_memory",
        ("MemoryError", "Cannot allocate memory", "Unable to allocate "),
        "lower --workers, --prefetch or --batch-size",
    ),
    (DEVICE_ERROR, _DEVICE_ERRORS, "see what the driver says: nvidia-smi, and dmesg (Xid)"),
    (
        "out_of_files",
        ("Too many open files", "received 0 items of ancdata"),  # the second: torch, of descriptors sent by a worker
        "raise the limit (ulimit -n 65536), or lower --workers or --prefetch",
    ),
    ("out_of_disk", ("No space left on device",), "free some space on the disk, or in /dev/shm"),
    (NO_MAIN_GUARD, (_UNGUARDED,), GUARD_HINT),
    (
        CANNOT_PICKLE,
        ("spawn cannot pickle", "Can't pickle", "Can't get local object", "cannot pickle", "can't pickle"),
        "make it a function or class of the module, then measure again",
    ),
    ("wrong_library", ("but this process got ",), "see what is installed: pipetune doctor"),
    (
        "killed",
        ("is killed by signal",),
        "see the loader worker's last lines on stderr; 'Killed' there means out of memory",
    ),
    ("crashed", ("exited unexpectedly with exit code",), "see the loader worker's last lines on stderr"),
    ("crashed", ("exited unexpectedly",), _LAST_WORDS),
    (
        REPEATED_SAMPLES,
        ("would yield every sample", "each sample would come as often as there are workers"),
        "let it ask torch.utils.data.get_worker_info, and yield its own part",
    ),
    (
        OTHER_EPOCH,
        ("is written for no other number of workers",),
        "let it divide its samples by torch.utils.data.get_worker_info().num_workers",
    ),
)


def from_exception(error: BaseException, phase: str, install: str, stderr_tail: str = "") -> Failure:
    """The failure record of an exception in the child.

    Args:
        error: as raised by the loader, the backend or the accelerator.
        phase: of the child when it was raised (see :class:`Failure`).
        install: the command that installs the backend, for an import that failed.
    """
    text = _one_line(str(error))
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
    if _ANY_MEMORY in text and _locks_pages(error, text):
        return Failure(kind="out_of_locked_memory", phase=phase, message=_short(text), hint=_LOCKED_HINT,
                       stderr_tail=stderr_tail)  # fmt: skip
    if known := _known(text):
        kind, hint, words = known
        # Whatever stands before it, as in a traceback that a library has put into its message.
        message = text[text.rindex(words) :] if kind == "bad_image" else text
        return Failure(kind=kind, phase=phase, message=_short(message), hint=hint, stderr_tail=stderr_tail)
    if isinstance(error, PipetuneError):
        kind = "usage" if isinstance(error, UsageError) else "error"
        return Failure(kind=kind, phase=phase, message=_short(error.message), hint=error.hint, stderr_tail=stderr_tail)
    message = f"{type(error).__name__}: {text}"
    return Failure(kind="error", phase=phase, message=_short(message), stderr_tail=stderr_tail)


def recognise(texts: Iterable[str]) -> tuple[str, str] | None:
    """Kind and hint of the first of these texts that is known, a mere crash last; ``None``: none of them is."""
    found = [known[:2] for text in texts if (known := _known(text)) is not None]
    return next((pair for pair in found if pair[0] != "crashed"), found[0] if found else None)


def is_unguarded(output: str) -> bool:
    """Whether Python has said that a script without a ``__main__`` guard starts itself in its workers."""
    return _UNGUARDED in output


def from_signal(number: int, oom_kills: int | None) -> tuple[str, str | None]:
    """Kind and hint of the end of a process by a signal.

    Args:
        oom_kills: processes that the kernel has ended for want of memory meanwhile; ``None``: not known.
    """
    if number == signal.SIGKILL:
        if oom_kills is None:
            return "killed", f"the kernel does so when memory runs out (dmesg): {_MEMORY_HINT}"
        if oom_kills:
            return "out_of_memory", f"the kernel has ended it, because memory ran out (dmesg): {_MEMORY_HINT}"
        return "killed", _NOT_THE_KERNEL
    if number == signal.SIGBUS:
        return next((kind, hint) for kind, _, hint in _KNOWN if kind == "out_of_shared_memory")
    return "crashed", None


def from_exit(returncode: int, phase: str, stderr_tail: str, oom_kills: int | None = None) -> Failure:
    """The failure of a child that ended without a result and without an error message.

    Args:
        oom_kills: see :func:`from_signal`.
    """
    if returncode >= 0:
        message = f"the child ended with exit code {returncode} and no result"
        return Failure(kind="crashed", phase=phase, message=message, hint="see stderr_tail", stderr_tail=stderr_tail)
    name = signal.Signals(-returncode).name if -returncode in set(signal.Signals) else f"signal {-returncode}"
    if name == "SIGKILL":
        kind, hint = from_signal(signal.SIGKILL, oom_kills)
        message = "the child was killed (SIGKILL)"
        return Failure(kind=kind, phase=phase, message=message, hint=hint, stderr_tail=stderr_tail)
    message = f"the child was ended by {name}"
    # What C++ raises where nobody can catch it, as while torch gives page-locked memory back.
    raised = _WHAT.findall(stderr_tail) if name == "SIGABRT" else []
    if raised and (known := _known(raised[-1])):
        kind, hint, _ = known
        return Failure(kind=kind, phase=phase, message=_short(f"{message}: {raised[-1]}"), hint=hint,
                       stderr_tail=stderr_tail)  # fmt: skip
    return Failure(kind="crashed", phase=phase, message=message, hint="see stderr_tail", stderr_tail=stderr_tail)


def hung(phase: str, limit_s: float, stderr_tail: str, late: Sequence[int] = ()) -> Failure:
    """The failure of a child that was ended because it exceeded its time limit.

    Args:
        late: ranks that the others waited for.
    """
    waited = f"; the others waited for rank{'s' * (len(late) > 1)} {', '.join(map(str, late))}" if late else ""
    return Failure(
        kind="hung", phase=phase, message=f"no result within {limit_s:.0f} s; stopped in phase {phase!r}{waited}",
        hint="raise --timeout, or try fewer workers" if phase in ("warmup", "timed") else
        "try fewer workers, or raise --timeout", stderr_tail=stderr_tail,
    )  # fmt: skip


def garbled(phase: str, what: str, stderr_tail: str) -> Failure:
    """The failure of a child that sent something else than messages.

    Args:
        what: is wrong with it.
    """
    return Failure(
        kind="error", phase=phase, message=_short(f"what the child sent cannot be read: {what}"),
        hint="does something in the loader write to descriptors that it has not opened?", stderr_tail=stderr_tail,
    )  # fmt: skip


def of_rank(failure: Failure, rank: int) -> Failure:
    """The failure of one of several ranks, which ends the candidate."""
    return replace(failure, message=f"rank {rank}: {failure.message}")


def stopped(phase: str) -> Failure:
    """The failure of a child that was ended because pipetune was asked to stop without an exception."""
    return Failure(kind="interrupted", phase=phase, message="stopped before it had a result")


def _known(text: str) -> tuple[str, str, str] | None:
    """Kind, hint, and the words that a message is known by; ``None``: it is not."""
    return next(((kind, hint, words) for kind, texts, hint in _KNOWN for words in texts if words in text), None)


def _one_line(text: str) -> str:
    """A message on one line: of a worker's whole traceback its last line, without CUDA's advice to search the web."""
    caught = _CAUGHT.match(text)
    text = text if caught is None else f"{caught[1]}: {caught[2]}"
    if unexpected := _UNEXPECTED.search(text):
        text = f"CUDA error {unexpected[2]} in {unexpected[1]}: {unexpected[3]}"
    return " ".join(text.partition("\nSearch for `cuda")[0].split())


def _locks_pages(error: BaseException, text: str) -> bool:
    """Raised where pages are locked: by torch's thread for that, or by a line that asks for it."""
    frames = traceback.extract_tb(error.__traceback__)[-1:]
    return "pin memory thread" in text or any("pin_memory" in (frame.line or "") for frame in frames)


def may_be_lost(failure: Failure) -> bool:
    """Whether the device may be gone, so that NVML is to be asked. A kernel on a lost device may never end."""
    return failure.kind in (DEVICE_ERROR, "hung") or _OF_CUDA.search(failure.message) is not None


def says_out_of_gpu_memory(text: str) -> bool:
    """Whether a script's output or an error's text says that the device's memory has ended."""
    words = next(words for kind, words, _ in _KNOWN if kind == "out_of_gpu_memory")
    return any(word in text for word in words)


def may_be_a_bad_image(failure: Failure) -> bool:
    """Whether an image may be the cause: the decoder said so, or crashed or hung while decoding, as some do then."""
    decoding = failure.phase in ("first_batch", "warmup", "timed")
    for_memory = any(word in failure.message for word in ("SIGKILL", "Killed", "SIGBUS", "Bus error"))
    if failure.kind == "hung":
        return decoding or failure.phase == "open"  # where the batches for the ceiling are decoded
    return failure.kind == "bad_image" or (failure.kind in ("crashed", "killed") and decoding and not for_memory)


_MEMORY_HINT = "lower --workers, --prefetch or --batch-size"
_NOT_THE_KERNEL = (
    "the kernel has ended no process for want of memory meanwhile, so something else has: a job scheduler, "
    "systemd-oomd or kill -9"
)


def _short(text: str) -> str:
    return text if len(text) <= _MESSAGE_LIMIT else text[: _MESSAGE_LIMIT - 1] + "…"
