"""What a run is called where it is reported."""

from __future__ import annotations

from pipetune.runs.run import Run


def name_of(run: Run) -> str:
    """The name of its folder, or of its log; the path itself has none where it was given as ``.``."""
    return run.path.resolve().name
