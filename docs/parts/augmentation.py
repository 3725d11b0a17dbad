"""The recipes of ``--augment`` and what each costs a worker, by the stored result."""

from __future__ import annotations

from statistics import median

from docs.parts.markdown import code, sentence, table
from docs.parts.results import stored
from pipetune.augmentation.recipes import RECIPES

#: What a recipe's cost is compared with.
_DECODER = "opencv, imagenet"


def recipes() -> str:
    """Each recipe with its CPU time, beside that of decoding."""
    times = {name: 1e3 * median(values) for name, values in stored("augmentation")["cpu_s"].items()}
    decoding = times[_DECODER]
    rows = [
        [code(recipe.name), sentence(recipe.about), *_costs(times.get(recipe.name), decoding)]
        for recipe in RECIPES.values()
    ]
    return table(["`--augment`", "what is done to an image", "CPU time in a worker", "beside decoding"], rows)


def _costs(own_ms: float | None, decoding_ms: float) -> tuple[str, str]:
    if own_ms is None:
        return f"{decoding_ms:.2f} ms, decoding included", "1"
    return f"{own_ms:.2f} ms more", f"+ {own_ms / decoding_ms:.2f}"
