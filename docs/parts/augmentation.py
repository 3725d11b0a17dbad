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
    result = stored("augmentation")
    times = {name: 1e3 * median(values) for name, values in result["cpu_s"].items()}
    decoding = times[_DECODER]
    rows = [
        [code(recipe.name), sentence(recipe.about), *_costs(times.get(recipe.name), decoding)]
        for recipe in RECIPES.values()
    ]
    measured = (
        f"Crops of {result['crop_px']} px of photographs as in ImageNet, decoded by OpenCV; `{result['file']}` has the "
        f"other decoders (measured on {result['date'][:10]}, {result['machine']['cpu_model']}, one core)."
    )
    header = ["`--augment`", "what is done to an image", "CPU time in a worker", "beside decoding"]
    return f"{table(header, rows)}\n\n{measured}"


def _costs(own_ms: float | None, decoding_ms: float) -> tuple[str, str]:
    if own_ms is None:
        return f"{decoding_ms:.2f} ms, decoding included", "1"
    return f"{own_ms:.2f} ms more", f"+ {own_ms / decoding_ms:.2f}"
