"""Writes the golden texts anew: ``python -m tests.golden``. Read ``git diff tests/golden`` afterwards."""

from __future__ import annotations

import sys

from tests.golden.texts import TEXTS, path_of

changed = []
for name, make in TEXTS.items():
    text, path = make(), path_of(name)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
        changed.append(name)
known = {path_of(name) for name in TEXTS}
for path in path_of("x").parent.glob("*.txt"):
    if path not in known:
        path.unlink()
        changed.append(path.stem)
print(f"written: {', '.join(changed)}" if changed else "nothing has changed", file=sys.stderr)
