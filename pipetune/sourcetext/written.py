"""An expression that gives a setting its value."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from pipetune.sourcetext.scope import Scope


@dataclass(frozen=True, slots=True)
class Written:
    """An expression that gives a setting its value, and where it is written."""

    name: str
    """Of the argument, key, parameter or variable that gets the value there."""
    value: ast.expr
    scope: Scope
    also: tuple[int, ...] = ()
    """Lines of other calls that take the dictionary in which it stands."""
    by_default: bool = False
    """The value is the default of a parameter of the scope's function, which no call in the script's text calls."""
