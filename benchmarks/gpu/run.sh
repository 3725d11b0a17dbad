#!/usr/bin/env bash
# Everything that needs a GPU, in one command and from any folder; see suite.py for the options, which are passed on.
# Nothing has to be installed but what pipetune uses: the package is taken from this checkout. The result goes to $OUT,
# or to benchmarks/results; nothing is written anywhere else, not even bytecode. PYTHON names the interpreter.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
exec "${PYTHON:-python3}" "$root/benchmarks/gpu/suite.py" --out "${OUT:-$root/benchmarks/results}" "$@"
