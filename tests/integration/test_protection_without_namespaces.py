"""The two mechanisms that need no user namespaces: the kernel asks, and Python keeps; with real processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipetune.protection.choose import settle_protection
from pipetune.protection.contract import Request, Unavailable
from pipetune.protection.guard import Guard, open_guard
from pipetune.protection.notify import Supervision, open_supervised
from pipetune.protection.state import KEPT, ProtectionFolder
from tests.unit.protection.kept_trees import describe_tree, make_tree

_ROOT = Path(__file__).resolve().parents[2]
_SITE = _ROOT / "pipetune" / "hook" / "site"
Start = Callable[..., subprocess.CompletedProcess[str]]

#: Name -> what a script does in its folder, which has the files of ``make_tree``.
WAYS = {
    "open": "open('two', 'w').write('new')",
    "append": "open('two', 'a').write('new')",
    "replace": "open('new', 'w').write('new'); import os; os.replace('new', 'two')",
    "remove": "import os; os.remove('two')",
    "rename a folder": "import os; os.rename('a', 'z'); open('z/three', 'w').write('new')",
    "rmtree": "import shutil; shutil.rmtree('a')",
    "hard link": "import os; os.link('two', 'new'); open('new', 'w').write('new')",
    "one of two names": "open('b/one-again', 'w').write('new')",
    "through a link": "open('link', 'w').write('new')",
    "chmod and utime": "import os; os.chmod('two', 0o777); os.utime('two')",
    "descriptor of a folder": "import os; d = os.open('b', os.O_RDONLY); os.unlink('five', dir_fd=d)",
    "mmap": "import mmap; f = open('two', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[:3] = b'new'",
    "SQLite": "import sqlite3; b = sqlite3.connect('base'); b.execute('insert into t values (1)'); b.commit()",
    "SQLite with a log": "import sqlite3; b = sqlite3.connect('base'); b.execute('pragma journal_mode=wal'); "
    "b.execute('insert into t values (1)'); b.commit()",
    "cp": "import subprocess; subprocess.run(['cp', 'two', 'seven'], check=True)",
    "shell": "import os; os.system('echo new > two; rm seven; mv one z')",
    "sed -i": "import subprocess; subprocess.run(['sed', '-i', 's/content/new/', 'two', 'b/five'], check=True)",
    "threads": """
        import threading
        def write(number):
            open('two', 'w').write(f'by {number}' * 100)
        threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    """,
    "fork": """
        import os
        if not (child := os.fork()):
            open('two', 'w').write('new')
            os._exit(0)
        os.waitpid(child, 0)
    """,
    "spawn": """
        import subprocess, sys
        code = "open('two', 'w').write('new'); import os; os.remove('seven')"
        subprocess.run([sys.executable, '-c', code], check=True)
    """,
    "exec": "import os; os.execvp('sh', ['sh', '-c', 'echo new > two'])",
    "all descriptors closed": "import os; os.closerange(3, 1000); open('two', 'w').write('new')",
    "many signals": """
        import signal, os
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.siginterrupt(signal.SIGALRM, False)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        for number in range(200):
            open('two', 'w').write('new')
            os.replace('two', 'seven')
            open('two', 'w').write('new')
        signal.setitimer(signal.ITIMER_REAL, 0)
    """,
    "atexit": "import atexit; atexit.register(lambda: open('two', 'w').write('new'))",
    "copytree": "import shutil, os; os.rename('a/three', 'a/five'); shutil.copytree('a', 'b', 1, dirs_exist_ok=True)",
}
#: Ways that are always tried; with all of them the tests take more than a minute.
_QUICK = ("open", "replace", "rename a folder", "hard link", "mmap", "SQLite", "cp", "spawn")
_C_CODE = """
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    FILE *file = fopen("two", "r+");
    if (!file) return 1;
    fputs("from C", file);
    fclose(file);
    int descriptor = open("seven", O_RDWR);
    char *area = mmap(0, 10, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    memset(area, 'x', 10);
    close(descriptor);
    munmap(area, 10);
    return rename("one", "a/three") || unlink("b/six") || truncate("b/five", 3);
}
"""


def open_mechanism(name: str, run: Path, job: Path) -> Supervision | Guard:
    """Begin protection; skips where this system forbids it."""
    run.mkdir(exist_ok=True)
    opener = {"supervised": open_supervised, "guard": open_guard}[name]
    folder = ProtectionFolder(run)
    try:
        opened: Supervision | Guard = opener(folder, Request(command=("python",), cwd=job))
    except Unavailable as reason:
        folder.close()
        pytest.skip(f"this system forbids it: {reason}")
    return opened


def environment(protection: Supervision | Guard) -> dict[str, str]:
    """As a start of a sweep has it; there is no socket of the sweep's."""
    return {
        **os.environ,
        **protection.variables(),
        "PIPETUNE_HOOK": "relay:/nowhere",
        "PYTHONPATH": str(_SITE),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    make_tree(folder)
    subprocess.run(
        [sys.executable, "-c", "import sqlite3; b = sqlite3.connect('base'); b.execute('create table t (x)')"],
        cwd=folder,
        check=True,
    )
    return folder


@pytest.fixture(params=["supervised", "guard"])
def protection(request: pytest.FixtureRequest, tmp_path: Path, job: Path) -> Iterator[Supervision | Guard]:
    opened = open_mechanism(request.param, tmp_path / "run", job)
    yield opened
    opened.close()


@pytest.fixture
def start(protection: Supervision | Guard, job: Path) -> Start:
    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            protection.wrap(command), cwd=job, env=environment(protection), capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip

    return run


@pytest.mark.parametrize("way", [pytest.param(way, marks=[pytest.mark.slow] * (way not in _QUICK)) for way in WAYS])
def test_what_is_written_is_put_back_and_named(
    protection: Supervision | Guard, start: Start, job: Path, tmp_path: Path, way: str
) -> None:
    before = describe_tree(job)
    done = start(sys.executable, "-c", textwrap.dedent(WAYS[way]))
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
    differs = {name for name in before if describe_tree(job).get(name) != before[name] and before[name][0] != "folder"}
    assert differs
    written = protection.collect()
    assert has_only_set_aside(protection, written.notes)
    assert describe_tree(job, list(before)) == before
    named = {str(Path(path).relative_to(job)) for path in (*written.changed, *written.removed)}
    twins = {"one": "b/one-again", "b/one-again": "one"}  # one name of a file that has several is enough
    assert all(name in named or twins.get(name) in named for name in differs), (differs, named)
    protection.close()
    assert os.listdir(tmp_path / "run") == ([KEPT] if written.notes else [])


def has_only_set_aside(protection: Supervision | Guard, notes: tuple[str, ...]) -> bool:
    """Whether nothing is said but that the guard does not know who wrote to a file."""
    return not notes or (
        isinstance(protection, Guard) and len(notes) == 1 and "other than the script's Python" in notes[0]
    )


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_program_in_c(protection: Supervision | Guard, start: Start, job: Path, tmp_path: Path) -> None:
    (tmp_path / "writes.c").write_text(_C_CODE)
    subprocess.run(["cc", "-o", tmp_path / "writes", tmp_path / "writes.c"], check=True)
    before = describe_tree(job)
    assert start(str(tmp_path / "writes")).returncode == 0
    assert (job / "two").read_text().startswith("from C")
    assert has_only_set_aside(protection, protection.collect().notes)
    assert describe_tree(job, list(before)) == before


def test_torch_save_and_safetensors(protection: Supervision | Guard, start: Start, job: Path) -> None:
    pytest.importorskip("safetensors", reason="the script saves with safetensors")
    before = describe_tree(job)
    code = (
        "import torch\nfrom safetensors.torch import save_file\ntorch.save({'x': torch.ones(9)}, 'two')\n"
        "save_file({'x': torch.ones(9)}, 'seven')\ntorch.save({}, 'new.pt')"
    )
    done = start(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    written = protection.collect()
    assert {str(job / "two"), str(job / "seven")} <= set(written.changed)
    assert str(job / "new.pt") in written.created
    assert describe_tree(job, list(before)) == before


def test_all_starts_see_what_an_earlier_one_wrote(protection: Supervision | Guard, start: Start, job: Path) -> None:
    start("sh", "-c", "echo downloaded > weights; echo changed > two")
    assert start("cat", "weights", "two").stdout == "downloaded\nchanged\n"
    protection.collect()
    assert (job / "two").read_text() == "content of two\n" * 2
    start(sys.executable, "-c", "open('weights', 'w').write('again'); open('two', 'w').write('again')")
    written = protection.collect()
    assert str(job / "two") in written.changed
    assert (job / "two").read_text() == "content of two\n" * 2


def test_copies_stay_where_they_could_not_be_put_back(
    protection: Supervision | Guard, start: Start, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(sys.executable, "-c", "open('two', 'w').write('new')")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pipetune.protection.kept_files.list_kept", refuse)
        with pytest.raises(OSError, match="No space left"):
            protection.collect()
    protection.close()
    assert settle_protection(tmp_path / "run") is not None
    assert (job / "two").read_text() == "content of two\n" * 2


def test_a_new_program_that_is_started_is_listed(protection: Supervision | Guard, start: Start, job: Path) -> None:
    code = (
        "import subprocess\nsubprocess.run(['cp', '/bin/true', 'made'], check=True)\n"
        "subprocess.run(['./made'], check=True)"
    )
    assert start(sys.executable, "-c", code).returncode == 0
    assert str(job / "made") in protection.collect().created


def test_what_it_ends_with_stays(protection: Supervision | Guard, start: Start) -> None:
    assert start("sh", "-c", "exit 7").returncode == 7
    assert start("sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM
    done = start(sys.executable, "-S", "-c", "import os, signal; os.write(1, b'x'); print(signal.getsignal(13))")
    assert done.stdout.startswith("x")


@pytest.mark.parametrize("name", ["supervised", "guard"])
def test_what_a_killed_pipetune_has_left_is_put_back_later(name: str, job: Path, tmp_path: Path) -> None:
    before = describe_tree(job)
    opened = open_mechanism(name, tmp_path / "run", job)
    code = "import os; open('two', 'w').write('new'); os.remove('seven'); open('n', 'w').write('n')"
    subprocess.run(
        opened.wrap([sys.executable, "-c", code]), cwd=job, env=environment(opened), check=True, capture_output=True
    )
    if isinstance(opened, Supervision):
        opened.stop()
    os.close(opened.pulse_fd())  # as the kernel does when the process is killed
    written = settle_protection(tmp_path / "run")
    assert written is not None
    assert (written.created, written.changed, written.removed) == (
        (str(job / "n"),), (str(job / "two"),), (str(job / "seven"),),
    )  # fmt: skip
    assert describe_tree(job, list(before)) == before
    assert settle_protection(tmp_path / "run") is None


def test_calls_fail_and_do_not_wait_once_nobody_answers(job: Path, tmp_path: Path) -> None:
    opened = open_mechanism("supervised", tmp_path / "run", job)
    assert isinstance(opened, Supervision)
    code = "import time\nfor _ in range(1000):\n    open('new', 'w').close(); time.sleep(0.01)"
    process = subprocess.Popen(opened.wrap([sys.executable, "-c", code]), cwd=job, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not (job / "new").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    opened.stop()
    assert "Function not implemented" in process.communicate(timeout=30)[1]
    opened.close()


def test_ranks_and_threads_at_the_same_file(job: Path, tmp_path: Path) -> None:
    opened = open_mechanism("supervised", tmp_path / "run", job)
    code = (
        "import os\nfor n in range(50):\n    open('two', 'w').write('x' * n)\n"
        "    os.replace('two', f'new{os.getpid()}')\n    open('two', 'a').close()"
    )
    command = opened.wrap([sys.executable, "-c", code])
    threads = [
        threading.Thread(target=subprocess.run, args=(command,), kwargs={"cwd": job, "stderr": subprocess.DEVNULL})
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    opened.collect()
    assert (job / "two").read_text() == "content of two\n" * 2
    opened.close()


def test_a_write_is_refused_and_named_where_there_is_no_room_for_a_copy(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_mechanism("supervised", tmp_path / "run", job)
    monkeypatch.setattr("pipetune.protection.copy_file.free_bytes", lambda fd: 10)
    done = subprocess.run(
        opened.wrap(["sh", "-c", "echo new >> two"]), cwd=job, capture_output=True, text=True, check=False
    )
    assert (done.returncode != 0, "No space left" in done.stderr) == (True, True)
    (note,) = opened.collect().notes
    assert note.startswith("the script was not allowed to write to two, because it cannot be copied first: No space")
    opened.close()


def test_a_process_with_a_view_of_its_own_may_not_change_files(job: Path, tmp_path: Path) -> None:
    opened = open_mechanism("supervised", tmp_path / "run", job)
    before = describe_tree(job)
    command = ["unshare", "--mount", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")), "sh", "-c"]
    if subprocess.run([*command, "true"], check=False, capture_output=True).returncode != 0:
        opened.close()
        pytest.skip("this system has no mount namespaces")
    subprocess.run(opened.wrap([*command, "echo new > two; rm seven"]), cwd=job, check=False, capture_output=True)
    notes = opened.collect().notes
    assert describe_tree(job, list(before)) == before
    assert "view of the files of its own" in notes[0]
    opened.close()
