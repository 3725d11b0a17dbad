from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from pipetune.errors import UsageError
from pipetune.processes.user_job import start_job

# In place of the command. What pytest was started with may be ignored (nohup, a shell's background) and would be
# inherited.
BEGIN = """
import os, signal, sys
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
from pipetune.errors import UsageError
from pipetune.processes.user_job import start_job
"""
# Waits so long that only a signal can have woken it.
RUN = """
def mask(): return signal.pthread_sigmask(signal.SIG_BLOCK, ())
before = mask()
try:
    with start_job(sys.argv[1:]) as job:
        code = job.wait(600)
except UsageError as error:
    print(error, file=sys.stderr)
    code = error.exit_code
else:
    print("interrupted", job.interrupted and int(job.interrupted), file=sys.stderr)
sys.exit(code if mask() == before else 99)
"""
RUNNER = BEGIN + RUN

# A job that says which signals it gets. They are blocked and taken one by one, so that none is missed. SIGUSR1 ends
# it: sent to the runner when the others have been, it comes after all that the runner had to pass on.
COUNTING = """
import os, signal, sys
signal.alarm(60)
numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
exec(os.environ.get("FIRST", ""))
print("ready", os.getpid(), sys.stdin.isatty(), flush=True)
got = []
while (number := signal.sigwait(numbers)) != signal.SIGUSR1:
    got.append(int(number))
    print("got", int(number), flush=True)
print("all", *got, flush=True)
sys.exit(3)
"""
COUNTS = [sys.executable, "-c", COUNTING]

# A job that comes to its end when its stdin does.
LASTING = """
import pathlib, signal, sys
signal.alarm(60)
print("ready", flush=True)
sys.stdin.read()
pathlib.Path(sys.argv[1]).write_text("came to its end")
"""

#: Those above are the C library's own and real-time signals: whoever started the tests may have ignored one of them.
STANDARD = (1 << 31) - 1


def run(command: Sequence[str], given: bytes = b"", runner: str = RUNNER) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", runner, *command], input=given, capture_output=True, check=False)


class Running:
    """A runner, which leads a session, and what its job says."""

    def __init__(self, process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
        self.process = process
        self._said = said
        self._rest = b""

    def until(self, word: str) -> str:
        """The rest of the line in which it comes, the next time it does."""
        while (at := self._rest.find(word.encode())) < 0 or b"\n" not in self._rest[at:]:
            more = os.read(self._said.fileno(), 4096)
            assert more, f"ended without {word!r}: {self._rest!r}"
            self._rest += more
        line, self._rest = self._rest[at + len(word) :].split(b"\n", 1)
        return line.decode().strip()

    def in_the_end(self) -> str:
        """What the runner has to say."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def all_that_came(self) -> str:
        """Which signals the job has got by now; ends it."""
        self.process.send_signal(signal.SIGUSR1)
        came = self.until("all")
        assert self.process.wait() == 3
        return came


@contextlib.contextmanager
def started(command: Sequence[str], runner: str = RUNNER, **environment: str) -> Iterator[Running]:
    process = subprocess.Popen(
        [sys.executable, "-c", runner, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, **environment}, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    with ended(process):
        yield Running(process, process.stdout)


@contextlib.contextmanager
def started_at_a_terminal(command: Sequence[str], **environment: str) -> Iterator[tuple[Running, IO[bytes]]]:
    """The same with a terminal of its own, and our end of it: what is written there is typed."""
    ours, theirs = os.openpty()
    take_it = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    process = subprocess.Popen(
        [sys.executable, "-c", take_it + RUNNER, *command], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE,
        env={**os.environ, **environment}, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    with ended(process), open(ours, "r+b", buffering=0) as terminal:
        yield Running(process, terminal), terminal


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):  # the group is the job's, too
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for end in (process.stdin, process.stdout, process.stderr):
            if end is not None:
                end.close()


@pytest.mark.parametrize(
    ("ends", "code"),
    [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 137), ("kill -TERM $$", 143), ("kill -INT $$", 130)],
)
def test_the_exit_code_is_the_one_that_a_shell_reports(ends: str, code: int) -> None:
    done = run(["sh", "-c", ends])
    assert (done.returncode, done.stderr) == (code, b"interrupted None\n")


def test_it_is_known_even_where_the_kernel_was_asked_not_to_keep_it() -> None:
    after = "assert signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN\nsys.exit(code)"
    ignoring = BEGIN + "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n" + RUN.replace("sys.exit(code", after + "#")
    assert run(["sh", "-c", "exit 3"], runner=ignoring).returncode == 3


def test_input_and_output_are_the_jobs_own() -> None:
    given = bytes(range(256)) * 400
    done = run(["cat"], given)
    assert done.stdout == given


def test_files_that_the_shell_opened_for_the_job_reach_it() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"from the shell")
    os.close(writing)
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, "cat", f"/dev/fd/{reading}"], pass_fds=[reading], capture_output=True, check=True
    )
    os.close(reading)
    assert done.stdout == b"from the shell"


def test_the_job_starts_with_no_signal_blocked_or_ignored() -> None:
    lines = run(["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"]).stdout.decode().split()
    assert (lines[0], lines[2]) == ("SigBlk:", "SigIgn:")
    assert [int(mask, 16) & STANDARD for mask in lines[1::2]] == [0, 0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_to_pipetune_alone_reaches_the_job_once(number: int) -> None:
    with started(COUNTS) as running:
        running.until("ready")
        running.process.send_signal(number)
        assert running.until("got") == str(int(number))
        assert running.all_that_came() == str(int(number))
        assert running.in_the_end() == f"interrupted {int(number)}\n"


def test_a_schedulers_note_is_passed_on_and_interrupts_nothing() -> None:
    with started(COUNTS) as running:
        running.until("ready")
        running.process.send_signal(signal.SIGUSR2)
        assert running.until("got") == str(int(signal.SIGUSR2))
        assert running.all_that_came() == str(int(signal.SIGUSR2))
        assert running.in_the_end() == "interrupted None\n"


def test_a_job_that_a_signal_ends_has_its_exit_code() -> None:
    with started([sys.executable, "-c", LASTING, "/nowhere"]) as running:
        running.until("ready")
        running.process.terminate()
        assert running.process.wait() == 143


def test_a_signal_of_the_job_to_its_group_is_not_forwarded() -> None:
    # Wait until the job has taken its own: two that are pending at the same time would be one.
    first = "os.kill(os.getppid(), signal.SIGSTOP); os.kill(0, signal.SIGINT)"
    with started(COUNTS, FIRST=first) as running:
        assert running.until("got") == "2"
        running.process.send_signal(signal.SIGCONT)
        assert running.all_that_came() == "2"
        assert running.in_the_end() == "interrupted None\n"


def test_an_ignored_signal_stays_ignored_unless_the_job_wants_it() -> None:
    ignoring = BEGIN + "signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + RUN
    ignored = int(run(["grep", "SigIgn", "/proc/self/status"], runner=ignoring).stdout.split()[1], 16)
    assert ignored & STANDARD == 1 << (signal.SIGINT - 1)
    with started(COUNTS, ignoring) as running:
        running.until("ready")
        running.process.send_signal(signal.SIGINT)
        assert running.until("got") == "2"
        assert running.all_that_came() == "2"
        assert running.in_the_end() == "interrupted None\n"


def test_ctrl_c_reaches_the_job_once() -> None:
    with started_at_a_terminal(COUNTS) as (running, terminal):
        assert running.until("ready").split()[1] == "True"
        running.process.send_signal(signal.SIGSTOP)  # as above
        terminal.write(b"\x03")
        assert running.until("got") == "2"
        running.process.send_signal(signal.SIGCONT)
        assert running.all_that_came() == "2"
        assert running.in_the_end() == "interrupted 2\n"


def test_ctrl_c_reaches_a_job_that_has_left_the_group() -> None:
    with started_at_a_terminal(COUNTS, FIRST="os.setpgid(0, 0)") as (running, terminal):
        running.until("ready")
        terminal.write(b"\x03")
        assert running.until("got") == "2"
        assert running.all_that_came() == "2"


def test_a_terminal_that_is_gone_ends_the_job_of_who_leads_the_session() -> None:
    with started_at_a_terminal(["sh", "-c", "echo ready; exec sleep 60"]) as (running, terminal):
        running.until("ready")
        terminal.close()
        assert running.process.wait() == 128 + signal.SIGHUP


@pytest.mark.parametrize("how", ["killed", "failed"])
def test_the_job_goes_on_without_us(how: str, tmp_path: Path) -> None:
    failing = BEGIN + "with start_job(sys.argv[1:]) as job: raise ValueError"
    command = [sys.executable, "-c", LASTING, str(tmp_path / "end")]
    with started(command, RUNNER if how == "killed" else failing) as running:
        running.until("ready")
        if how == "killed":
            running.process.kill()
        assert running.process.wait() == (-signal.SIGKILL if how == "killed" else 1)
        assert not (tmp_path / "end").exists()
        assert running.process.stdin is not None
        running.process.stdin.close()
        assert running.process.stdout is not None
        assert running.process.stdout.read() == b""  # it has ended
        assert (tmp_path / "end").read_text() == "came to its end"


def test_a_signal_before_close_is_forwarded() -> None:
    closing = """
with start_job(sys.argv[1:]) as job:
    print(job.wait(0), job.exit_code, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
job.close()
os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)
print(job.exit_code, job.interrupted, signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.sigpending())
"""
    done = run(["sleep", "60"], runner=BEGIN + closing)
    assert done.stdout.split() == [b"None", b"None", b"143", b"15", b"set()", b"set()"], done.stderr


def test_a_command_that_is_not_there() -> None:
    done = run(["trainn.py"])
    assert done.returncode == 2
    assert done.stderr.startswith(b"cannot start 'trainn.py': No such file or directory; ")


def test_a_file_that_cannot_be_executed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()")
    done = run([str(tmp_path / "train.py")])
    assert done.returncode == 2
    assert done.stderr.startswith(f"cannot start '{tmp_path}/train.py': Permission denied; ".encode())


def test_no_command() -> None:
    with pytest.raises(UsageError, match="there is no command to start"):
        start_job([])


def test_too_late_when_there_are_threads() -> None:
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    try:
        with pytest.raises(RuntimeError, match="before any thread"):
            start_job(["true"])
    finally:
        over.set()
        other.join()
