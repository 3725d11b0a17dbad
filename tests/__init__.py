"""The tests. ``ROOT``: the folder that holds the package, for processes that import it."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
