"""Scripts whose loader is made for real, by a stand-in class, so that the calls which led there are noted as ever."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from pipetune.records.script import SourceCall

ROOT = Path(__file__).parents[3]
#: Replaces torch's loader: writes down the calls that led to it, and what it was given.
_LOADER = """
import json, sys
from pipetune.hook.describe import describe_calls, site_of

class DataLoader:
    def __init__(self, dataset=None, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0, **_):
        site = site_of(sys._getframe(1))
        print(json.dumps({"calls": describe_calls(site), "num_workers": num_workers}))
        sys.exit()
"""


def trace_loader(folder: Path, script: str, *words: str, **files: str) -> tuple[tuple[SourceCall, ...], Any, list[str]]:
    """Run a script up to its first loader.

    Args:
        files: more files beside it: name, with ``__`` for a dot, and text.

    Returns:
        The calls that made the loader, its ``num_workers``, and the command.
    """
    modules = folder / "modules" / "torch"
    modules.mkdir(parents=True)
    (modules / "__init__.py").write_text(_LOADER, encoding="utf-8")
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(textwrap.dedent(text), encoding="utf-8")
    program = folder / "train.py"
    program.write_text("from torch import DataLoader\n" + textwrap.dedent(script), encoding="utf-8")
    command = [sys.executable, str(program), *words]
    done = subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": f"{modules.parent}:{ROOT}"}, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    calls = tuple(
        SourceCall(file=call["file"], span=tuple(call["span"]), direct=call["direct"]) for call in told["calls"]
    )
    return calls, told["num_workers"], ["python", "train.py", *words]
