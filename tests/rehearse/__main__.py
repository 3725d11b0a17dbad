"""Rehearses the lease of a GPU machine, from packing to what is committed; about six minutes. Run it: make rehearse.

1. An environment with the image's packages (Python 3.12, torch 2.11); the parts are packed.
2. A machine with an emulated device, in two calls: the tree and .gpu1, then .gpu2 and ``--resume``.
3. The archive that came back is unpacked; a lease on another machine goes on from there.
4. A machine with the stand-in CUDA runtime and NVML.

Exit code: 0 all went well, or it cannot be rehearsed here, which is said; 1 it did not.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.gpu.leasing.outcome import PROBLEM_FOUND, SOME_UNPROVEN
from benchmarks.gpu.leasing.stages import STAGES
from benchmarks.gpu.pack.parts import NAMES
from tests.rehearse.checks import EMULATED, NO_DECODER, STAND_IN, TIME, list_complaints
from tests.rehearse.environment import PLACE, CannotRehearse, make_environment, pack
from tests.rehearse.rented import Rented

#: Stages that are left out or tried again when .gpu2 has come; the others have no need of it.
_SECOND_CALL = "facts,doctor,decode,parity,sweep-bound"
#: What comes with .gpu2.
_LATER = ("dali", "nvimagecodec")
#: On the stand-in ``tests`` would wait for what only a GPU has: tests/cuda/test_gpu_folder.py runs those that it can.
_NOT_ON_STAND_IN = ("tests",)
#: The first call's words: caps are multiplied by the last one. With less time than its cap a stage is tried again.
_EMULATED_WORDS = ("--device", "emulated", "--shorten", "0.2")
#: Seconds of a call, and what caps are multiplied by.
_EMULATED_S = 200.0
_STAND_IN_S, _STAND_IN_SHORT = 200.0, 0.3


def main() -> int:
    """Rehearse; returns the exit code."""
    began = time.monotonic()
    try:
        python = make_environment(PLACE)
        if not pack():
            print("WRONG: pack.sh could not pack the parts", flush=True)
            return 1
    except CannotRehearse as reason:
        print(f"not rehearsed: {reason}", flush=True)
        return 0
    complaints: list[str] = []
    with tempfile.TemporaryDirectory(prefix="rehearse-") as folder:
        emulated = Rented.start(Path(folder, "emulated"), python)
        complaints += rehearse_emulated(emulated)
        complaints += rehearse_return(emulated, Rented.start(Path(folder, "next"), python))
        complaints += rehearse_stand_in(Rented.start(Path(folder, "stand-in"), python))
    for complaint in complaints:
        print(f"WRONG: {complaint}")
    print(f"{'NOT as it should be' if complaints else 'rehearsed'} ({time.monotonic() - began:.0f} s)")
    return 1 if complaints else 0


def rehearse_emulated(machine: Rented) -> list[str]:
    """Two calls on a machine without a GPU; what is wrong."""
    machine.carry(NAMES[0])
    code = machine.call(*_EMULATED_WORDS, total_s=_EMULATED_S)
    complaints = check_code(code, machine, "the first call")
    stages = [stage.name for stage in STAGES]
    reasons = (*TIME, *EMULATED)
    complaints += list_complaints(machine.read_results(), stages=stages, reasons=reasons, missing=_LATER)
    complaints += check_archives(machine, "the first call")
    complaints += check_decoders(machine, "jpeg-roi", "simplejpeg")
    machine.carry(NAMES[1])
    code = machine.call(*_EMULATED_WORDS, "--resume", "--only", _SECOND_CALL, total_s=_EMULATED_S)
    complaints += check_code(code, machine, "the second call")
    again = {name: result for name, result in machine.read_results().items() if name.endswith("-2")}
    complaints += list_complaints(again, stages=["decode-2", "parity-2"], reasons=reasons, missing=())
    return complaints + check_decoders(machine, "dali")


def rehearse_return(machine: Rented, other: Rented) -> list[str]:
    """Unpack what came back in another copy of the tree, and go on from there; what is wrong."""
    target = "benchmarks/results/gpu"
    for archive in machine.archives():
        unpacked = other.run(f"mkdir -p {target} && tar xJf {shlex.quote(str(archive))} -C {target}", 60)
        if unpacked:
            return [f"{archive.name} cannot be unpacked"]
    complaints = [] if other.read_results() == machine.read_results() else ["what came back is not what was measured"]
    other.carry(NAMES[0])
    measured = [name for name, result in machine.read_results().items() if result.get("numbers") and "-2" not in name]
    before = other.read_results()
    words = (*_EMULATED_WORDS, "--resume", "--only", ",".join(measured))
    code = other.call(*words, total_s=_EMULATED_S)
    complaints += check_code(code, other, "a lease on another machine")
    if other.read_results() != before:
        complaints.append("a lease on another machine measured again what has results")
    return complaints


def rehearse_stand_in(machine: Rented) -> list[str]:
    """A call on the stand-in CUDA runtime, without DALI, which is not linked with it; what is wrong."""
    machine.carry(NAMES[0])
    built = subprocess.run(
        [str(machine.python), "-m", "tests.rehearse.stand_in", str(machine.folder / "stand-in")],
        cwd=machine.tree,
        env=machine.environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    environment = json.loads(built.stdout.splitlines()[-1])
    if "reason" in environment:
        return [f"no stand-in CUDA runtime: {environment['reason']}"]
    stages = [stage.name for stage in STAGES if stage.name not in _NOT_ON_STAND_IN]
    words = ("--device", "cuda:0", "--small", "--shorten", str(_STAND_IN_SHORT), "--only", ",".join(stages))
    machine.call(*words, total_s=_STAND_IN_S, environment=environment)
    complaints = list_complaints(
        machine.read_results(), stages=stages, reasons=(*TIME, *STAND_IN), missing=_LATER, problems=NO_DECODER
    )
    return complaints + check_archives(machine, "the call on the stand-in")


def check_code(code: int, machine: Rented, call: str) -> list[str]:
    """An emulated device proves nothing; a problem may be that a slow machine had no time."""
    has_problems = any(result.get("problems") for result in machine.read_results().values())
    expected = PROBLEM_FOUND if has_problems else SOME_UNPROVEN
    return [] if code == expected else [f"{call} ended with exit code {code} instead of {expected}"]


def check_decoders(machine: Rented, *backends: str) -> list[str]:
    """What was carried decodes on the CPU; the stages may have had no time to."""
    code = machine.run(f". .gpu1/enter.sh && $PYTHON -m tests.rehearse.decode {shlex.join(backends)}", 120)
    return [] if code == 0 else [f"what was packed of {', '.join(backends)} does not decode"]


def check_archives(machine: Rented, call: str) -> list[str]:
    """One archive of a call comes back, and nothing half written."""
    files = sorted((machine.folder / "out").iterdir())
    return [] if len(files) == 1 == len(machine.archives()) else [f"{call} left {[file.name for file in files]}"]


if __name__ == "__main__":
    sys.exit(main())
