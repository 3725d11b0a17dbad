"""The user's command as a child of ours: it must behave as if the shell had started it, whatever becomes of us.

It stays in our process group and has our stdin, stdout and stderr. The terminal's SIGTSTP, SIGCONT and SIGWINCH keep
their defaults here: the terminal and the shell send them to the whole group, so that both stop, go on and learn of a
new size without us. What may be meant for the job and was sent to us alone is passed on: see :meth:`JobProcess.wait`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence, Set
from types import TracebackType

from pipetune.errors import UsageError

#: "This process, and those that it starts, may read my memory"; ``PR_SET_PTRACER`` of ``prctl(2)``.
_PR_SET_PTRACER = 0x59616D61
#: ``si_code`` of a signal that no process sent: of these, the terminal's.
_SI_KERNEL = 0x80
_ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
_FORWARDED = _ENDING | {signal.SIGUSR1, signal.SIGUSR2}  # schedulers announce the end of the allotted time with these
_WAITED_FOR = _FORWARDED | {signal.SIGCHLD}

_EXAMPLE = "write it as the shell would start it: pipetune watch -- python train.py"


class JobProcess:
    """The running job. A context manager, whose end is :meth:`close`.

    ``pid`` is the job's; ``interrupted`` is the first of SIGINT, SIGTERM, SIGHUP and SIGQUIT that we have got, or None.
    """

    def __init__(self, process: subprocess.Popen[bytes], mask_before: Set[int], ignored: Set[int]) -> None:
        self.pid = process.pid
        self.interrupted: signal.Signals | None = None
        self._process = process
        self._mask_before = mask_before
        self._ignored = ignored
        self._closed = False

    def __enter__(self) -> JobProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def exit_code(self) -> int | None:
        """As a shell reports it, 128 + N for a job that signal N ended; None while it runs."""
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code

    def wait(self, timeout_s: float) -> int | None:
        """Sleep until the job has ended, at most for ``timeout_s``, and pass on what signals arrive. Main thread only.

        A signal that somebody sent to our process group reaches the job twice, by itself and through us: nothing tells
        it from one that was sent to us alone, and one time too many is better than never.

        Returns:
            The exit code (see :attr:`exit_code`), or None when the time is over.
        """
        deadline_s = time.monotonic() + timeout_s
        while (code := self.exit_code) is None:
            came = signal.sigtimedwait(_WAITED_FOR, max(0.0, deadline_s - time.monotonic()))
            if came is None:
                return self.exit_code
            self._take(came)
        return code

    def close(self) -> None:
        """Put our signal mask and handlers back as they were. A job that still runs is left alone: it goes on.

        Signals that have arrived since the last :meth:`wait` go where it would have sent them, and not to our handlers:
        whoever closes is ending already, and an exception from a handler would cover the one that brought us here.
        """
        if self._closed:
            return
        self._closed = True
        while (came := signal.sigtimedwait(_WAITED_FOR, 0)) is not None:
            self._take(came)
        _release_signals(self._mask_before, self._ignored)

    def _take(self, came: signal.struct_siginfo) -> None:
        number = signal.Signals(came.si_signo)
        if number not in _FORWARDED or came.si_pid == self.pid:  # a job that ends its group (``kill 0``) knows of it
            return
        if number in _ENDING and number not in self._ignored and self.interrupted is None:
            self.interrupted = number
        with contextlib.suppress(ProcessLookupError, PermissionError):  # ended meanwhile; another user's, as sudo's is
            if not (came.si_code == _SI_KERNEL and self._has_got(number)):
                self._process.send_signal(number)

    def _has_got(self, typed: signal.Signals) -> bool:
        """Whether the terminal sent its signal to the job too: a second Ctrl-C would cut short what the first began.

        It sends them to the whole foreground group, which a job may have left. But that the terminal is gone (SIGHUP)
        it tells the leader of the session alone, which we are where no shell is in between (``ssh -t``, containers).
        """
        if typed == signal.SIGHUP and os.getsid(0) == os.getpid():
            return False
        return os.getpgid(self.pid) == os.getpgrp()


def start_job(command: Sequence[str]) -> JobProcess:
    """Start the command, and from now on keep the signals that end or notify us for :meth:`JobProcess.wait`.

    They are blocked, and no handler is installed: no exception of theirs can come between us and the job. Threads that
    we start later inherit this, as they must, for a signal goes to any thread that does not block it. Threads that
    exist already would take signals from us, and could hold locks that nobody releases in the child: call this before
    any is started, those of an imported numpy included. Processes that we start later inherit it too: only SIGKILL ends
    them for certain.

    Raises:
        UsageError: there is no such command, or it cannot be executed.
        RuntimeError: there are other threads already.
    """
    if not command:
        raise UsageError("there is no command to start", hint=_EXAMPLE)
    if threading.active_count() > 1:
        raise RuntimeError("the job must be started before any thread is")
    # What was ignored when we were started (SIGHUP by nohup, SIGINT for a shell's background) the job inherits ignored,
    # as it would without us. It is blocked and passed on all the same: the kernel keeps ignored signals while they are
    # blocked, and the job, which may have set up a handler of its own, decides. It just does not interrupt us.
    ignored = {number for number in _WAITED_FOR if signal.getsignal(number) == signal.SIG_IGN}
    mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    become_job = _preparation(mask_before, ignored)
    if signal.SIGCHLD in ignored:  # then the kernel would throw the job's exit code away
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    try:
        # Without ``close_fds``: what the shell opened for the job, as in ``<(...)``, is inherited, and what Python
        # opened here is not, in any case. The job is not to die with us, as our other children do: it is the user's.
        process = subprocess.Popen(command, close_fds=False, preexec_fn=become_job)  # noqa: PLW1509 - there are none
    except OSError as error:
        _release_signals(mask_before, ignored)
        raise UsageError(f"cannot start {command[0]!r}: {error.strerror}", hint=_EXAMPLE) from error
    except BaseException:
        _release_signals(mask_before, ignored)
        raise
    return JobProcess(process, mask_before, ignored)


def _preparation(mask: Set[int], ignored: Set[int]) -> Callable[[], None]:
    """What the child does between fork and exec; all that needs loading is loaded here, in the parent."""
    prctl = ctypes.CDLL(None).prctl
    # Where Yama's ptrace_scope is 1 only a parent may read a stack, and py-spy is the job's sister. The permission
    # outlives the exec, but processes that the job starts do not inherit it. Kernels without Yama answer EINVAL.
    permission = (_PR_SET_PTRACER, ctypes.c_ulong(os.getpid()))

    def become_job() -> None:
        prctl(*permission)
        # Before the mask: a Ctrl-C typed just now must end the child and not be noted by a handler that exec removes.
        for number in _WAITED_FOR:
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return become_job


def _release_signals(mask_before: Set[int], ignored: Set[int]) -> None:
    if signal.SIGCHLD in ignored:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask_before)
