"""Starts :mod:`benchmarks.gpu.leasing.lease`, or says which packages of pipetune's are missing."""

from __future__ import annotations

import importlib.util
import sys

#: pipetune's own requirements that an image for training may lack.
_REQUIRED = ("msgspec", "platformdirs", "psutil", "pynvml", "numpy", "PIL", "rich", "typer", "jinja2")

if __name__ == "__main__":
    missing = [name for name in _REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"lease.sh: {sys.executable} lacks {', '.join(missing)}: carry them (bash benchmarks/gpu/pack.sh, then "
            ". .gpu1/enter.sh), or name another interpreter: PYTHON=.venv/bin/python",
            file=sys.stderr,
        )
        sys.exit(2)
    from benchmarks.gpu.leasing.lease import main

    sys.exit(main())
