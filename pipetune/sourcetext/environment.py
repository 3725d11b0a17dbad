"""Settings that the environment of a script gives, as those of pydantic take them."""

from __future__ import annotations

import os
from typing import Any


def has_variable(name: str, value: Any) -> bool:
    """Whether a variable of the environment has a setting's name, after a prefix or not, and its value."""
    return any(
        variable.lower() == name.lower() or variable.lower().endswith(f"_{name.lower()}")
        for variable, text in os.environ.items()
        if text == str(value)
    )
