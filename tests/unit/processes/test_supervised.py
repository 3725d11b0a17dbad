from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipetune.processes.supervised import Supervised
from tests.integration.commands import wait_until

PYTHON = [sys.executable, "-S", "-E", "-c"]


class Commands:
    """Starts them with a log; ends all."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.started: list[Supervised] = []

    def start(self, *command: str, **environment: str) -> Supervised:
        with self.log.open("ab") as file:
            self.started.append(Supervised(command, {**os.environ, **environment}, file))
        return self.started[-1]


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    made = Commands(tmp_path)
    yield made
    for one in made.started:
        one.close()


def wait(one: Supervised, until: Any = lambda: False) -> None:
    """Take in news until something is so, or the supervisor has ended."""
    while not until():
        assert select.select([one], [], [], 30)[0], "no news"
        if not one.read():
            return


@pytest.mark.parametrize(("code", "expected"), [("print('out')", 0), ("raise SystemExit(7)", 7)])
def test_the_command_runs_and_its_exit_code_is_known(code: str, expected: int, commands: Commands) -> None:
    one = commands.start(*PYTHON, code)
    wait(one)
    assert (one.exit_code, one.error) == (expected, None)
    assert one.pid is not None


def test_a_file_says_when_something_of_the_command_last_ran(commands: Commands, tmp_path: Path) -> None:
    pulse = tmp_path / "pulse"
    pulse.write_text("")
    os.utime(pulse, (1, 1))
    with pulse.open("r+") as file:
        one = Supervised([*PYTHON, "input('')"], os.environ, file.buffer, pulse_fd=file.fileno())
        commands.started.append(one)
        wait(one)
    assert pulse.stat().st_mtime > 1


def test_a_command_that_cannot_be_started_says_why(commands: Commands) -> None:
    one = commands.start("/nothing/of/the/kind")
    wait(one)
    assert one.pid is one.exit_code is None
    assert one.error is not None
    assert "/nothing/of/the/kind" in one.error


def test_output_goes_to_the_log_and_variables_reach_the_command(commands: Commands) -> None:
    one = commands.start(*PYTHON, "import os; print(os.environ['MINE'])", MINE="a value", PYTHONPATH="/nowhere")
    wait(one)
    assert commands.log.read_text() == "a value\n"


def test_reading_does_not_wait(commands: Commands) -> None:
    one = commands.start(*PYTHON, "import time; time.sleep(1000)")
    wait(one, lambda: one.pid is not None)
    assert one.read()
    assert one.exit_code is None


def test_close_ends_the_command_and_says_nothing_of_a_code(commands: Commands) -> None:
    one = commands.start(*PYTHON, "import time; time.sleep(1000)")
    wait(one, lambda: one.pid is not None)
    assert one.pid is not None
    one.close()
    one.close()
    assert not psutil.pid_exists(one.pid)
    assert one.exit_code is None


def test_close_takes_in_what_had_been_reported(commands: Commands) -> None:
    one = commands.start(*PYTHON, "pass")
    wait_until(lambda: one._process.poll() is not None, 30)
    assert one.exit_code is None
    one.close()
    assert one.exit_code == 0


def test_close_ends_a_command_whose_supervisor_was_killed(commands: Commands) -> None:
    one = commands.start(*PYTHON, "import time; time.sleep(1000)")
    wait(one, lambda: one.pid is not None)
    assert one.pid is not None
    command = psutil.Process(one.pid)
    os.kill(one._process.pid, signal.SIGKILL)
    wait(one)
    one.close()
    wait_until(lambda: not command.is_running() or command.status() == psutil.STATUS_ZOMBIE, 30)


def test_the_hook_does_not_enter_the_supervisor(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('entered', flush=True)\n")
    one = commands.start("/bin/true", PYTHONPATH=str(tmp_path))
    wait(one)
    assert one.exit_code == 0
    assert commands.log.read_text() == ""
