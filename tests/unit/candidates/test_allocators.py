from __future__ import annotations

import subprocess
import sys

import pytest

from pipetune.candidates import allocators

FAULTS = """
import mmap, resource
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        bytearray(48 << 20)[:: mmap.PAGESIZE] = b"x" * (48 << 20 >> 12)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def faults(allocator: str) -> int:
    variables = allocators.environment_of(allocator, {})
    done = subprocess.run([sys.executable, "-c", FAULTS], env=variables, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.thorough
def test_large_blocks_stay_in_the_process() -> None:
    # 48 MiB lies above the 32 MiB up to which glibc raises its threshold by itself.
    assert faults("glibc") < faults("default") / 10


def test_what_to_run_before_the_training_command_sets_what_is_asked_for() -> None:
    lines = allocators.lines_before("glibc")
    assert lines == ("export MALLOC_MMAP_THRESHOLD_=1073741824", "export MALLOC_TRIM_THRESHOLD_=1073741824")
    shell = ["sh", "-c", "; ".join([*lines, "env"])]
    done = subprocess.run(shell, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True)
    environment = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    assert allocators.set_here("glibc", environment)
    assert not allocators.set_here("glibc", {})
    assert allocators.set_here("default", {})


def test_tcmalloc_is_preloaded_before_what_is_preloaded_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocators, "find_tcmalloc", lambda: "/lib/libtcmalloc_minimal.so.4")
    assert allocators.available() == ("default", "glibc", "tcmalloc")
    found = allocators.environment_of("tcmalloc", {"LD_PRELOAD": "/lib/other.so"})
    assert found == {"LD_PRELOAD": "/lib/libtcmalloc_minimal.so.4:/lib/other.so"}
    assert allocators.set_here("tcmalloc", found)


def test_one_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocators, "find_tcmalloc", lambda: None)
    assert allocators.available() == ("default", "glibc")
    for name in ("tcmalloc", "jemalloc"):
        with pytest.raises(ValueError, match=f"no allocator '{name}' on this machine"):
            allocators.environment_of(name, {})
