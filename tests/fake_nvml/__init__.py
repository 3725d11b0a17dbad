"""Our own stand-in for the NVIDIA driver's library: build it, and make a child process use it.

``scenario.h`` documents the scenario file. The library is found by the real binding through ``LD_LIBRARY_PATH``, which
the dynamic loader reads when a program starts: so a test that uses it runs its code in a child process.
:mod:`tests.fake_nvml.replay` makes a scenario of a recording of a real driver.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

HEALTHY = """
nvmlDeviceGetMemoryInfo 1000000
nvmlDeviceGetUtilizationRates 40
nvmlDeviceGetSamples 1000000=90 2000000=90 3000000=90,3100000=70 -
nvmlDeviceGetJpgUtilization 25
nvmlDeviceGetTotalEnergyConsumption 1000 +50000
nvmlDeviceGetPowerUsage 120000
nvmlDeviceGetEnforcedPowerLimit 300000
nvmlDeviceGetClockInfo.1 1980
nvmlDeviceGetMaxClockInfo.1 1980
nvmlDeviceGetCurrentClocksEventReasons 0
nvmlGpmQueryDeviceSupport 1
metric.2 55.5
field.197 1000 +200
field.198 1000 +3000000
field.74 0
field.75 0
"""
"""One GPU that has everything and is well; put lines after it to take something away."""


def build(folder: Path, *, old_driver: bool = False) -> Path:
    """Compile the library into ``folder``.

    Args:
        folder: exists already.
        old_driver: leave out what drivers before 510 lack: GPM, the JPEG engine's use, the newer name of the reasons,
            the third version of the list of processes.

    Returns:
        ``folder``, for :func:`environment`.

    Raises:
        subprocess.CalledProcessError, FileNotFoundError: no C compiler named ``cc``, or it failed.
    """
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o", str(folder / "libnvidia-ml.so.1")]
    source = Path(__file__).with_name("fake_nvml.c")
    subprocess.run([*command, *(["-DOLD_DRIVER"] if old_driver else []), str(source)], check=True)
    return folder


def environment(lib_dir: Path, scenario_text: str, *, folder: Path | None = None) -> dict[str, str]:
    """The whole environment for a child process that shall see the GPUs of a scenario.

    Args:
        lib_dir: from :func:`build`; one without the library makes NVML missing altogether.
        scenario_text: see ``scenario.h``.
        folder: where the scenario and the log of calls are put; ``lib_dir`` unless given.
    """
    place = folder or lib_dir
    scenario = place / "scenario.txt"
    scenario.write_text(scenario_text)
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(lib_dir),
        "FAKE_NVML_SCENARIO": str(scenario),
        "FAKE_NVML_LOG": str(place / "calls.log"),
    }


def calls(folder: Path) -> list[str]:
    """Names of the NVML functions that were called, in their order."""
    log = folder / "calls.log"
    return log.read_text().split() if log.exists() else []
