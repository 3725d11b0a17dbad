"""Names of torchvision's classifiers, read from its source files.

Why not ``torchvision.models.list_models()``: importing torchvision takes more than a second, and a mistyped ``--model``
should be reported at once.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from pipetune.errors import UsageError, did_you_mean

#: A builder of a model: ``@register_model()``, perhaps more decorators, and the function, whose name is the model's.
_BUILDER = re.compile(r"^@register_model\(\)\n(?:@.*\n(?:[ )].*\n)*)*def (\w+)\(", re.MULTILINE)


def find_model_names(package: Path | None = None) -> tuple[str, ...]:
    """Sorted names; empty where torchvision is not installed or its files have another form.

    Args:
        package: torchvision's folder; default: the installed one.
    """
    if package is None:
        spec = importlib.util.find_spec("torchvision")
        if spec is None or not spec.submodule_search_locations:
            return ()
        package = Path(next(iter(spec.submodule_search_locations)))
    names: list[str] = []
    for source in sorted(package.glob("models/*.py")):
        names += _BUILDER.findall(source.read_text(encoding="utf-8", errors="replace"))
    return tuple(sorted(names))


def require_model(model: str) -> None:
    """Check the name of a model as far as it can be done here; the child, which has torchvision, knows for certain.

    Raises:
        UsageError: torchvision has no such classifier; the nearest names are suggested.
    """
    names = find_model_names()
    if names and model not in names:
        raise unknown_model(model, names)


def unknown_model(model: str, names: tuple[str, ...]) -> UsageError:
    """The error for a model that is none of ``names``."""
    hint = did_you_mean(model, names, otherwise="see torchvision.models.list_models()", limit=3)
    return UsageError(f"torchvision has no classifier named {model!r}", hint=hint)
