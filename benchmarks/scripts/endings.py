"""Sweeps of scripts that are awkward to measure: each ends soon, right, and leaves what it found."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import bench
from benchmarks.scripts.cases import ENDINGS, Ending

#: Longest time of a sweep: so many set-ups, and so many seconds; and where the script suffices as it is.
SETUPS, EXTRA_S = 3.0, 60.0
SETUPS_SUFFICES, EXTRA_SUFFICES_S = 2.0, 30.0


@dataclass
class Ended:
    """What came of one script."""

    seconds: float
    setup_s: float = 0.0
    recommended: str = ""
    wrong: list[str] = field(default_factory=list)


def run_endings(folder: Path) -> dict[str, Ended]:
    """Sweep each script in a folder of its own."""
    found = {}
    for number, case in enumerate(ENDINGS):
        place = folder / f"ending-{number}"
        place.mkdir()
        found[case.name] = ended = sweep_ending(case, place)
        print(f"{case.name}: {ended.seconds:.0f} s, set-up {ended.setup_s:.1f} s; {ended.recommended}"
              f"{'; '.join(['', *ended.wrong])}", flush=True)  # fmt: skip
    return found


def sweep_ending(case: Ending, place: Path) -> Ended:
    """Sweep one script, and judge how that ended."""
    precious = place / "checkpoint.pth"
    precious.write_bytes(b"mine")
    out = place / "run"
    began = time.monotonic()
    swept = subprocess.run(
        [sys.executable, "-m", "pipetune", "sweep", "--progress", "none", "--out", str(out), "--", *case.command()],
        cwd=place, env=bench.environment(), check=False, capture_output=True, text=True,
    )  # fmt: skip
    ended = Ended(time.monotonic() - began)
    if case.says is not None:
        if swept.returncode != 1 or case.says not in swept.stderr or "Traceback" in swept.stderr:
            ended.wrong.append(f"it ended with {swept.returncode}: {swept.stderr[-300:]}")
    elif swept.returncode:
        ended.wrong.append(f"it ended with {swept.returncode}: {swept.stderr[-300:]}")
    else:
        result = json.loads((out / "result.json").read_text())
        ended.setup_s = result["script"]["setup_s"]
        ended.recommended = (result["recommended"] or {}).get("key", "nothing")
        if case.suffices and ended.recommended != result["baseline"]["key"]:
            ended.wrong.append("it suffices, and another setting was recommended")
        failed = [row["failure"]["message"] for row in result["outcomes"] if "failure" in row]
        ended.wrong += [f"a candidate failed: {m}" for m in failed if case.refuses is None or case.refuses not in m]
        if case.refuses is not None and not failed:
            ended.wrong.append("no candidate was refused that would change the training")
    limit_s = longest_s(case, ended.setup_s)
    if ended.seconds > limit_s:
        ended.wrong.append(f"it took {ended.seconds:.0f} s instead of {limit_s:.0f} s")
    if precious.read_bytes() != b"mine":
        ended.wrong.append("a file of the user's was changed")
    return ended


def longest_s(case: Ending, setup_s: float) -> float:
    """How long the sweep of a script may take (s)."""
    if case.suffices:
        return SETUPS_SUFFICES * setup_s + EXTRA_SUFFICES_S
    return SETUPS * setup_s + EXTRA_S


def misses_of(found: dict[str, Ended]) -> list[str]:
    """What of the promise does not hold."""
    return [f"{name}: {text}" for name, ended in found.items() for text in ended.wrong]
