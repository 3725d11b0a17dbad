"""A training script with ``open_loader`` that is interrupted, killed, or forks in the middle of an epoch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration import commands

pytest.importorskip("torch", reason="what is tested handles tensors")

OPEN = """
import os, sys
import pipetune
chosen = pipetune.Candidate(
    backend="opencv", num_workers=2, prefetch_depth=2, batch_size=4, worker_kind=sys.argv[2],
)
loader = pipetune.open_loader(chosen, sys.argv[1], image_size=64)
"""
ENDLESS = """
while True:
    for images, labels in loader:
        print("step", flush=True)
"""
#: Loader threads run while the process forks: a plain DataLoader's workers, and a child that uses the loader.
FORKS = """
from torch.utils.data import DataLoader
stream = iter(loader)
next(stream)
assert len(list(DataLoader(range(40), 4, num_workers=2))) == 10
pid = os.fork()
if pid == 0:
    try:
        next(stream)
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(1 + len(list(stream)), len(loader))
loader.close()
"""


def script(code: str, photos: Path, kind: str) -> list[str]:
    return [sys.executable, "-c", OPEN + code, str(photos), kind]


@pytest.mark.parametrize(
    ("number", "kind"),
    [(signal.SIGINT, "process"), (signal.SIGINT, "thread"), (signal.SIGTERM, "thread"), (signal.SIGKILL, "process")],
)
def test_ended_in_the_middle_of_an_epoch_it_leaves_nothing(photos: Path, number: signal.Signals, kind: str) -> None:
    process = subprocess.Popen(script(ENDLESS, photos, kind), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    for _ in range(5):
        assert process.stdout.readline() == "step\n"
    below = commands.children(process.pid)
    assert len(below) >= 2 * (kind == "process")
    process.send_signal(number)
    process.stdout.close()
    output = process.stderr.read()
    process.wait(timeout=30)
    if number == signal.SIGINT:
        assert process.returncode != 0
        assert "KeyboardInterrupt" in output
    else:
        assert process.returncode == -number
    commands.wait_until(lambda: not commands.alive(below))
    numbers = [f"_{pid}_" for pid in (process.pid, *(worker.pid for worker in below))]
    commands.wait_until(lambda: not [n for n in os.listdir("/dev/shm") if any(number in n for number in numbers)])


def test_a_process_with_loader_threads_may_fork(photos: Path) -> None:
    done = subprocess.run(
        script(FORKS, photos, "thread"), capture_output=True, text=True, check=False, timeout=60
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    output, counts = done.stdout.splitlines()
    assert output.startswith("this loader's threads are in the process that opened it")
    assert counts == "15 15"
