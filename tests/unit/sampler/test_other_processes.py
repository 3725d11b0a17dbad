from __future__ import annotations

import subprocess
import sys
import time

from pipetune.sampler.other_processes import busiest_others, cpu_times

BUSY = "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


def test_a_process_of_another_tree_is_found_by_its_name() -> None:
    # Started by another process that ends at once: so it is no child of ours.
    quiet = "stdout=-3, stderr=-3"
    start = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {BUSY!r}], {quiet}).pid)"
    pid = int(subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, check=True).stdout)
    try:
        began = time.monotonic()
        before = cpu_times()
        while not any(other.pid == pid for other in busiest_others(before, time.monotonic() - began)):
            assert time.monotonic() - began < 30
            time.sleep(0.05)
        time.sleep(0.5)
        found = {other.pid: other for other in busiest_others(before, time.monotonic() - began)}
        assert found[pid].name.startswith("python")
        assert 0 < found[pid].cores < 3  # on a busy machine the reading itself takes time, which is not in the quotient
    finally:
        subprocess.run(["kill", "-9", str(pid)], check=True)


def test_own_children_are_not_others() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY]) as child:
        before = cpu_times()
        time.sleep(0.2)
        others = busiest_others(before, 0.2)
        child.kill()
    assert child.pid not in {other.pid for other in others}
