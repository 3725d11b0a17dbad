#!/usr/bin/env bash
# Everything that only a GPU shows, in stages with a cap each, from any folder; docs/development/gpu.md is the manual, and
# --help lists the options. Nothing has to be installed but what pipetune uses: the package is taken from this checkout.
# Results go to benchmarks/results/gpu and, packed, to $OUT. PYTHON names the interpreter (default: the checkout's
# environment, else python3).
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
python="$root/.venv/bin/python"
[ -x "$python" ] || python=python3
exec "${PYTHON:-$python}" -m benchmarks.gpu.leasing "$@"
