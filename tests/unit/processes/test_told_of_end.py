from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from pipetune.processes.told_of_end import told_of_end
from tests.integration.commands import wait_until

OWNER = (
    "import subprocess, sys, time\n"
    "from pipetune.processes.told_of_end import told_of_end\n"
    "subprocess.Popen(told_of_end(sys.argv[1:]), start_new_session=True)\n"
    "time.sleep(600)"
)


def test_the_command_is_the_process_and_gets_its_words_and_code() -> None:
    done = subprocess.run(
        told_of_end(["sh", "-c", 'echo "$1"; exit 3', "sh", "a b"]), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (3, "a b\n")


def test_no_signal_is_ignored_that_was_not_before() -> None:
    done = subprocess.run(
        told_of_end(["grep", "SigIgn", "/proc/self/status"]), capture_output=True, text=True, check=True
    )
    ignored = int(done.stdout.split()[1], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1))


def test_it_is_told_when_its_owner_is_killed(tmp_path: Path) -> None:
    script = f"trap 'touch {tmp_path}/told; exit' TERM; touch {tmp_path}/up; for n in $(seq 600); do sleep 0.1; done"
    owner = subprocess.Popen([sys.executable, "-c", OWNER, "bash", "-c", script])
    wait_until((tmp_path / "up").exists, 30)
    owner.kill()
    owner.wait()
    wait_until((tmp_path / "told").exists, 30)
