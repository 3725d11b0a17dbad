"""Brings the generated parts of files up to date: ``python -m docs.parts README.md``; ``--check`` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from docs import parts


def main(arguments: list[str]) -> int:
    """1 where something is out of date and was only to be compared."""
    check = "--check" in arguments
    stale = False
    for name in (argument for argument in arguments if argument != "--check"):
        before = Path(name).read_text()
        after = parts.fill(before, keep_marks=True)
        if after == before:
            continue
        stale = True
        if not check:
            Path(name).write_text(after)
        sys.stdout.write(f"{name}: {'out of date: python -m docs.parts ' + name if check else 'brought up to date'}\n")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
