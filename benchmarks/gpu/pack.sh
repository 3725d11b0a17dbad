#!/usr/bin/env bash
# Packs what a rented GPU machine without a network lacks, into .gpu1 and .gpu2; see pack/__main__.py (--help).
# PYTHON names the interpreter (default: the checkout's environment, else python3); it needs pip.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
python="$root/.venv/bin/python"
[ -x "$python" ] || python=python3
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1
exec "${PYTHON:-$python}" -m benchmarks.gpu.pack "$@"
