"""The user's command as a child process that behaves as if the shell had started it, even if pipetune dies.

It stays in pipetune's process group and has its stdin, stdout and stderr. The terminal's SIGTSTP, SIGCONT and SIGWINCH
keep their defaults here: the terminal and the shell send them to the whole group, so that both processes stop, continue
and resize by themselves. A signal that was sent to pipetune alone is forwarded: see :meth:`JobProcess.wait`.

Why ``subprocess`` and not ``psutil.Popen``: only the forwarding of signals is added, and psutil has none.
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

#: ``PR_SET_PTRACER`` of ``prctl(2)``: a process and those that it starts may read the caller's memory.
_PR_SET_PTRACER = 0x59616D61
#: ``si_code`` of a signal that the kernel sent: of those here, the terminal's.
_SI_KERNEL = 0x80
_ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
#: Schedulers announce the end of a job's time limit with SIGUSR1 or SIGUSR2.
_FORWARDED = _ENDING | {signal.SIGUSR1, signal.SIGUSR2}
_WAITED_FOR = _FORWARDED | {signal.SIGCHLD}

_EXAMPLE = "write it as the shell would start it: pipetune watch -- python train.py"


class JobProcess:
    """The running job. A context manager, whose end is :meth:`close`.

    ``pid`` is the job's; ``interrupted`` is the first of SIGINT, SIGTERM, SIGHUP and SIGQUIT that pipetune received.
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
        """Wait until the job has ended, at most ``timeout_s``, and forward signals that arrive. Main thread only.

        A signal that was sent to the whole process group reaches the job twice, directly and forwarded: it cannot be
        distinguished from one sent to pipetune alone, and twice is better than never.

        Returns:
            The exit code (see :attr:`exit_code`), or None after ``timeout_s``.
        """
        deadline_s = time.monotonic() + timeout_s
        while (code := self.exit_code) is None:
            came = signal.sigtimedwait(_WAITED_FOR, max(0.0, deadline_s - time.monotonic()))
            if came is None:
                return self.exit_code
            self._take(came)
        return code

    def close(self) -> None:
        """Restore pipetune's signal mask and handlers. A job that still runs keeps running.

        Signals that have arrived since the last :meth:`wait` are forwarded as there, and do not reach pipetune's
        handlers: an exception from a handler would replace the one that may be the reason for closing.
        """
        if self._closed:
            return
        self._closed = True
        while (came := signal.sigtimedwait(_WAITED_FOR, 0)) is not None:
            self._take(came)
        _release_signals(self._mask_before, self._ignored)

    def _take(self, came: signal.struct_siginfo) -> None:
        number = signal.Signals(came.si_signo)
        if number not in _FORWARDED or came.si_pid == self.pid:  # the job sent it (``kill 0``)
            return
        if number in _ENDING and number not in self._ignored and self.interrupted is None:
            self.interrupted = number
        with contextlib.suppress(ProcessLookupError, PermissionError):  # ended meanwhile; another user's, as sudo's is
            if not (came.si_code == _SI_KERNEL and self._has_got(number)):
                self._process.send_signal(number)

    def _has_got(self, typed: signal.Signals) -> bool:
        """Whether the terminal sent its signal to the job as well: a second Ctrl-C would abort what the first began.

        The terminal sends signals to the whole foreground group, which a job may have left. SIGHUP it sends to the
        session's leader alone, which is pipetune where no shell is in between (``ssh -t``, containers).
        """
        if typed == signal.SIGHUP and os.getsid(0) == os.getpid():
            return False
        return os.getpgid(self.pid) == os.getpgrp()


def start_job(command: Sequence[str]) -> JobProcess:
    """Start the command, and from now on keep the signals that end or notify pipetune for :meth:`JobProcess.wait`.

    They are blocked, and no handler is installed, so that no exception can interrupt the handling of the job. Threads
    that are started later inherit the mask, as they must: a signal goes to any thread that does not block it. Threads
    that exist already would receive signals, and could hold locks that are never released in the child: call this
    before any is started, those of an imported numpy included. Later child processes inherit the mask, too: only
    SIGKILL ends them for certain.

    Raises:
        UsageError: there is no such command, or it cannot be executed.
        RuntimeError: there are other threads already.
    """
    if not command:
        raise UsageError("there is no command to start", hint=_EXAMPLE)
    if threading.active_count() > 1:
        raise RuntimeError("the job must be started before any thread is")
    # Signals that are ignored from the start (SIGHUP by nohup, SIGINT in a shell's background) are ignored in the job,
    # too, as without pipetune. They are blocked and forwarded all the same: the kernel keeps ignored signals while they
    # are blocked, and the job may have a handler of its own. They only do not interrupt pipetune.
    ignored = {number for number in _WAITED_FOR if signal.getsignal(number) == signal.SIG_IGN}
    mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    become_job = _preparation(mask_before, ignored)
    if signal.SIGCHLD in ignored:  # otherwise the kernel would drop the job's exit code
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    try:
        # Without ``close_fds``: files that the shell opened for the job, as in ``<(...)``, are inherited; files that
        # Python opened never are. Unlike other children, the job outlives pipetune: it is the user's.
        process = subprocess.Popen(command, close_fds=False, preexec_fn=become_job)  # noqa: PLW1509 - there are none
    except OSError as error:
        _release_signals(mask_before, ignored)
        raise UsageError(f"cannot start {command[0]!r}: {error.strerror}", hint=_EXAMPLE) from error
    except BaseException:
        _release_signals(mask_before, ignored)
        raise
    return JobProcess(process, mask_before, ignored)


def _preparation(mask: Set[int], ignored: Set[int]) -> Callable[[], None]:
    """The function that the child runs between fork and exec; everything it needs is loaded here, in the parent."""
    prctl = ctypes.CDLL(None).prctl
    # With Yama's ptrace_scope 1 only an ancestor may read a stack, and py-spy is the job's sibling. The permission
    # survives exec, but processes that the job starts do not inherit it. Kernels without Yama return EINVAL.
    permission = (_PR_SET_PTRACER, ctypes.c_ulong(os.getpid()))

    def become_job() -> None:
        prctl(*permission)
        # Before the mask: a Ctrl-C at this moment must end the child, not run a handler that exec removes.
        for number in _WAITED_FOR:
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return become_job


def _release_signals(mask_before: Set[int], ignored: Set[int]) -> None:
    if signal.SIGCHLD in ignored:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask_before)
