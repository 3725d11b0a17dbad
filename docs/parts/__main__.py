"""Brings the generated parts of all pages up to date: ``python -m docs.parts``; ``--check`` only compares."""

from __future__ import annotations

import sys

from docs import parts


def main(arguments: list[str]) -> int:
    """1 where something is out of date and was only to be compared."""
    check = "--check" in arguments
    stale = False
    for path in parts.PAGES:
        before = path.read_text()
        after = parts.fill(before, keep_marks=True)
        if after == before:
            continue
        stale = True
        if not check:
            path.write_text(after)
        what = "out of date: python -m docs.parts" if check else "brought up to date"
        sys.stdout.write(f"{path.relative_to(parts.ROOT)}: {what}\n")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
