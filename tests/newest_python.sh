#!/usr/bin/env bash
# Prints the newest Python that is installed here and supported, if it is newer than python3; else says so and fails.
set -euo pipefail
for minor in 14 13 12; do
    for found in "$(command -v "python3.$minor" || true)" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.$minor.*/bin/python; do
        # A shim of pyenv's is there for versions that are installed and not chosen: it does not start.
        if [ -x "$found" ] && "$found" -c "import sys, venv; sys.exit(sys.version_info[1] != $minor)" 2>/dev/null; then
            if "$found" -c "import sys; sys.exit(sys.version_info[:2] <= ($(python3 -c 'import sys; print(*sys.version_info[:2], sep=",")')))"; then
                echo "$found"
                exit 0
            fi
        fi
    done
done
echo "no newer Python is installed here than python3" >&2
exit 1
