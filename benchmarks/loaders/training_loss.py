"""Does a model train as well through ``pipetune.open_loader`` as through the loader of a usual training script?

Promise: a network trained through pipetune's loaders reaches the reference loader's loss within the spread of its runs.

That is asked of the exact and the approximate backends, of every kind of workers and of either transfer, with the same
seeds. The data are real: 1,797 handwritten digits (scikit-learn's copy of the UCI set), enlarged to 96 x 96 and saved
as JPEGs of quality 90, four fifths to train with. The reference is ``DataLoader`` over ``ImageFolder`` with
torchvision's transforms. Each run trains for some epochs of random resized crops from a seed that decides weights,
order and crops; its result is the cross-entropy on the other fifth, decoded by Pillow and neither cropped nor flipped.
A loader's runs are compared with the reference's of the same seeds: the promise holds where the 99 % interval of the
mean difference (Student's t; seven loaders are tested at once) reaches zero or lies below it, and no interval is so
wide that it means nothing (as wide as the mean loss).

Needs scikit-learn: ``pip install scikit-learn``. ``--quick`` takes about 5 minutes, the full run about 20.
"""

from __future__ import annotations

import importlib.util
import math
import random
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from pipetune.registry import BACKENDS, DALI, THREADS, TORCH, installed_version, is_exact

REFERENCE = "reference"
#: Student's t, 99 % two-sided, by degrees of freedom.
T99 = {3: 5.841, 7: 3.499}
#: Name -> backend, number of workers, loader and transfer; those that are not installed are left out.
LOADERS = {
    "pillow, in the loop": ("pillow", 0, TORCH, "float32"),
    "jpeg-roi, threads": ("jpeg-roi", 2, THREADS, "float32"),
    "jpeg-roi-fast, threads, uint8": ("jpeg-roi-fast", 2, THREADS, "uint8"),
    "simplejpeg, processes, uint8": ("simplejpeg", 2, TORCH, "uint8"),
    "simplejpeg-reduced, threads": ("simplejpeg-reduced", 2, THREADS, "float32"),
    "opencv, threads": ("opencv", 2, THREADS, "float32"),
    "dali, uint8": ("dali", 2, DALI, "uint8"),
}
QUICK = ("jpeg-roi, threads", "jpeg-roi-fast, threads, uint8", "simplejpeg, processes, uint8")


def main(options: Namespace) -> bench.Result:
    if importlib.util.find_spec("sklearn") is None:
        raise bench.Skipped("scikit-learn is not installed; run: pip install scikit-learn")
    from benchmarks.loaders.digits import train_once, write_digits

    seeds, epochs = (range(4), 4) if options.quick else (range(8), 8)
    names = [name for name, (backend, *_) in LOADERS.items() if installed_version(BACKENDS[backend])]
    names = [name for name in names if name in QUICK] if options.quick else names
    if not names:
        raise bench.Skipped(f"none of the loaders' decoders is installed; run: {BACKENDS['jpeg-roi'].install}")
    losses: dict[str, list[float]] = {REFERENCE: [], **{name: [] for name in names}}
    with tempfile.TemporaryDirectory(prefix="pipetune-training-") as folder:
        train, held_out = write_digits(Path(folder))
        for seed in seeds:
            for name in random.Random(seed).sample(sorted(losses), len(losses)):
                losses[name].append(train_once(LOADERS.get(name), train, held_out, seed, epochs))
                print(f"seed {seed}, {name}: {losses[name][-1]:.4f}", flush=True)
    results = {name: {"losses": found, **judge(found, losses[REFERENCE])} for name, found in losses.items()}
    rows = [row(name, found) for name, found in results.items()]
    print("\n" + bench.table(["loader", "exact", "loss", "spread", "difference to the reference", "as good"], rows))
    holds = all(result["holds"] for result in results.values())
    return bench.Result(holds, {"epochs": epochs, "seeds": len(seeds), "loaders": results})


def row(name: str, found: dict[str, Any]) -> list[str]:
    figures = [f"{found['mean']:.4f}", f"{found['spread']:.4f}"]
    if name == REFERENCE:
        return [name, "", *figures, "", ""]
    low, high = found["difference_ci99"]
    exact = "yes" if is_exact(BACKENDS[LOADERS[name][0]]) else "no"
    difference = f"{found['difference']:+.4f} ({low:+.4f} to {high:+.4f})"
    return [name, exact, *figures, difference, bench.yes(found["holds"])]


def judge(losses: list[float], reference_losses: list[float]) -> dict[str, Any]:
    """Mean, spread over the seeds, and the mean difference to the reference's runs of the same seeds."""
    differences = [one - other for one, other in zip(losses, reference_losses, strict=True)]
    middle = mean(differences)
    half = T99[len(differences) - 1] * stdev(differences) / math.sqrt(len(differences))
    return {
        "mean": mean(losses), "spread": stdev(losses), "difference": middle,
        "difference_ci99": [middle - half, middle + half],
        "holds": middle - half <= 0 and half < mean(reference_losses),
    }  # fmt: skip


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
