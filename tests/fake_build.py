"""Stand-ins for what builds Pillow-SIMD: a C compiler that knows some headers, and a pip that installs a small PIL.

The pip is found through ``PYTHONPATH``, the compiler through ``PATH``, as the real ones are.
"""

from __future__ import annotations

import os
from pathlib import Path

from pipetune.install.pillow_simd import VERSION

HEADERS = ("jpeglib.h", "zlib.h")

_COMPILER = """#!/bin/sh
echo "$@" >> "$0.log"
for name in {headers}; do echo "seen $name"; done
exit {status}
"""

#: What it does is in FAKE_PIP; it leaves its process numbers, and the arguments, environments and requirements of all
#: calls, in FAKE_PIP_FOLDER.
_PIP = """
import json, os, pathlib, signal, subprocess, sys, time
if "--version" in sys.argv:
    sys.exit(print("pip 99 from nowhere"))
folder, what = pathlib.Path(os.environ["FAKE_PIP_FOLDER"]), os.environ["FAKE_PIP"]
calls = folder / "called.json"
lines = pathlib.Path(sys.argv[sys.argv.index("--requirement") + 1]).read_text().splitlines()
before = json.loads(calls.read_text()) if calls.exists() else []
calls.write_text(json.dumps([*before, [sys.argv[1:], dict(os.environ), lines]]))
if "--no-binary" not in sys.argv and what != "no_tools":
    sys.exit()
pathlib.Path(os.environ["TMPDIR"], "scratch").touch()
if what in ("fail", "no_tools"):
    sys.exit(print(os.environ["FAKE_PIP_SAYS"]) or 1)
if what == "hang":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    (folder / "pids.tmp").write_text(f"{os.getpid()} {child.pid}")
    (folder / "pids.tmp").rename(folder / "pids")
    time.sleep(1000)
while what == "wait" and not (folder / "go").exists():
    time.sleep(0.01)
target = pathlib.Path(sys.argv[sys.argv.index("--target") + 1])
if what != "nothing":
    (target / "PIL").mkdir(parents=True)
    (target / "PIL" / "__init__.py").touch()
    version = "13.0.0" if what == "plain" else os.environ["FAKE_PIP_VERSION"]
    (target / "PIL" / "_version.py").write_text(f'__version__ = "{version}"\\n')
    begin = {"no_library": "raise ImportError('libjpeg.so.62: cannot open shared object file')",
             "old_processor": "import os, signal; os.kill(os.getpid(), signal.SIGILL)"}.get(what, "")
    colour = (1, 2, 3) if what == "wrong" else (200, 100, 50)
    (target / "PIL" / "Image.py").write_text(begin + f'''
import types
Resampling = types.SimpleNamespace(BILINEAR=2)
class Picture:
    def save(self, file, kind): file.write(b"picture")
    def resize(self, size, how): return self
    def getpixel(self, at): return {colour}
def new(*_): return Picture()
def open(file): return Picture()
''')
print("Successfully installed")
"""


def make_compiler(folder: Path, *, headers: tuple[str, ...] = HEADERS, status: int = 0) -> Path:
    """A ``cc`` in ``folder`` that sees these headers; it notes how it was called in ``cc.log``."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "cc"
    text = _COMPILER.format(headers=" ".join(headers) or '""', status=status)
    # Not written twice: a process that another thread forks meanwhile would hold it open ("text file busy").
    if not program.exists() or program.read_text() != text:
        program.write_text(text)
        program.chmod(0o755)
    return program


def make_pip(folder: Path) -> Path:
    """A package ``pip`` in ``folder``."""
    (folder / "pip").mkdir(parents=True, exist_ok=True)
    (folder / "pip" / "__init__.py").touch()
    (folder / "pip" / "__main__.py").write_text(_PIP)
    return folder


def environment(folder: Path, what: str = "good", *, says: str = "", version: str = VERSION) -> dict[str, str]:
    """The whole environment in which everything that a build needs is fake, and is in ``folder``.

    Args:
        folder: exists; pip's notes are put there.
        what: ``good``, or what goes wrong: see the source above.
        says: what a pip that fails prints.
        version: of the PIL that it installs.
    """
    make_compiler(folder / "bin")
    kept = {name: value for name, value in os.environ.items() if name not in ("CC", "CFLAGS")}
    return {
        **kept,
        "PATH": str(folder / "bin"),
        "PYTHONPATH": os.pathsep.join([str(make_pip(folder / "site")), *filter(None, [kept.get("PYTHONPATH")])]),
        "FAKE_PIP": what,
        "FAKE_PIP_FOLDER": str(folder),
        "FAKE_PIP_SAYS": says,
        "FAKE_PIP_VERSION": version,
    }
