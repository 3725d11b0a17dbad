"""``--sandbox``: the script sees its working folder as a layer whose changes are thrown away (overlayfs).

It runs in a mount namespace of its own: as root as it is, else in a user namespace, where it believes to be root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pipetune.errors import UsageError

_TRY_S = 20.0
#: Mounts the layer over the folder and becomes the command. The arguments: upper layer, work folder, folder, command.
_SCRIPT = (
    "upper=$1 work=$2 folder=$3; shift 3; "
    'mount -t overlay overlay -o "lowerdir=$folder,upperdir=$upper,workdir=$work" "$folder" && '
    'cd "$folder" && exec "$@"'
)


def in_sandbox(command: Sequence[str], folder: Path, layers: Path) -> list[str]:
    """The command that runs another one in a sandbox.

    Args:
        folder: that is protected, with everything below it.
        layers: a new folder elsewhere, which takes what is written.
    """
    for name in ("upper", "work"):
        (layers / name).mkdir(parents=True, exist_ok=True)
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return [
        "unshare", *user, "--mount", "--propagation", "private", "sh", "-c", _SCRIPT, "sh", str(layers / "upper"),
        str(layers / "work"), str(folder), *command,
    ]  # fmt: skip


def require_sandbox(folder: Path, layers: Path) -> None:
    """Refuse where this system has none.

    Raises:
        UsageError: says why.
    """
    if shutil.which("unshare") is None:
        raise UsageError(
            "--sandbox needs unshare(1), which is not there", hint="apt-get install util-linux, or leave it out"
        )
    if any(sign in str(folder) for sign in ",:\\"):
        raise UsageError(f"--sandbox cannot cover {folder}: overlayfs takes no comma, colon or backslash in a path",
                         hint="start it in another folder, or leave --sandbox out")  # fmt: skip
    try:
        done = subprocess.run(
            in_sandbox(["true"], folder, layers / "trial"), stdin=subprocess.DEVNULL, capture_output=True,
            timeout=_TRY_S, check=False,
        )  # fmt: skip
        said = done.stderr.decode(errors="replace").strip().splitlines()
        failed = done.returncode != 0
    except (OSError, subprocess.TimeoutExpired) as error:
        said, failed = [str(error)], True
    if failed:
        raise UsageError(
            f"--sandbox: this system does not allow it: {said[-1] if said else 'no reason was given'}",
            hint="containers usually forbid it; leave it out, and see what the script writes afterwards",
        )
