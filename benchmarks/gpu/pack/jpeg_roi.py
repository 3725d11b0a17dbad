"""jpeg-roi for the other machine, built by pipetune's own installer, with the libjpeg that it needs beside it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from benchmarks.gpu.pack.machine import CACHE_TAG
from pipetune.errors import PipetuneError
from pipetune.install.build_tools import JPEG_ROI as NEEDS
from pipetune.install.build_tools import require_build_tools, split_command
from pipetune.install.find import JPEG_ROI, compiled_in, side_path
from pipetune.install.jpeg_roi import build_jpeg_roi

#: A line of ldd: ``libjpeg.so.62 => /lib/x86_64-linux-gnu/libjpeg.so.62 (0x00007f0c1a000000)``
_LINKED = re.compile(r"^\s*(libjpeg\.so\S*) => (/.+) \(0x[0-9a-f]+\)$", re.MULTILINE)


def pack_jpeg_roi(data: Path) -> str:
    """Build it into a folder that ``XDG_DATA_HOME`` will name there.

    Returns:
        The version of libjpeg-turbo.

    Raises:
        UsageError: ``CC`` names a compiler that fails.
        MissingPackageError: a compiler or a header is missing.
        PipetuneError: the build failed.
    """
    # CFLAGS are for this machine's processor.
    environment = {name: value for name, value in os.environ.items() if name != "CFLAGS"}
    compiler = environment.get("CC") or "cc"
    require_build_tools(NEEDS, compiler, environment, machine=platform.machine())
    site = data / "pipetune" / side_path(JPEG_ROI, CACHE_TAG)
    site.parent.mkdir(parents=True)
    build_jpeg_roi(site, split_command(compiler), environment, beside=True)
    linked = subprocess.run(["ldd", str(site / "jpeg_roi.so")], capture_output=True, text=True, check=True)
    library = _LINKED.search(linked.stdout)
    if library is None:
        raise PipetuneError("jpeg-roi was built without a shared libjpeg", hint="apt-get install libjpeg-dev")
    shutil.copyfile(library[2], site / library[1])
    compiled = compiled_in(site)
    assert compiled is not None  # it has been built just now
    return compiled.library
