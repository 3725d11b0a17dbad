"""pipetune measures the input pipeline of GPU training, names what starves the GPU and finds what feeds it.

In a notebook (``pip install '.[torch,notebook]'`` in the repository's folder)::

    import pipetune

    run = pipetune.sweep("/data/imagenet/train", device="cuda:0")   # or load("pipetune-runs/…")
    run.frame()                                  # one row per measurement
    run.stalls("default")                        # when the accelerator was idle, and why
    pipetune.plot.stall_timeline(run, "default")

    found = pipetune.explain(run)                # what each stage of the recommended loader costs
    pipetune.plot.waterfall(found)

    pipetune.whatif(run, cores=[4, 8, 16])       # what more cores, another disk or GPU would bring

    pipetune.batch_size("resnet50", device="cuda:0")    # the smallest batch that is as fast as any

    pipetune.scale(run, run_of_8_ranks)          # rate, efficiency, time and cost on more GPUs and hosts

    pipetune.schedule("explained", {128: 18, 224: 22})   # what a training whose crops grow takes

    pipetune.pack("/data/imagenet/train", "/data/packed", shorter_edge=352)     # rewritten, once

    loader = pipetune.open_loader(run)           # the recommended loader, to train with
    for images, labels in loader:                # an epoch
        train_step(loader.normalise(images.to("cuda")), labels)

    with pipetune.observe(loader) as seen:       # your own loop, in this process
        for images, labels in seen:
            train_step(images, labels)
    seen.stalls()

    with pipetune.watch(12345) as seen:          # a running job, by its process ID
        seen.wait(60)
    seen.frame()

``Run.frame()``, ``.readings()``, ``.steps()`` and ``.stalls()`` are pandas DataFrames whose column names end with the
unit. ``pipetune.plot`` draws them. Everything is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipetune.version import __version__

if TYPE_CHECKING:
    from pipetune import plot
    from pipetune.api.batch_size import batch_size
    from pipetune.api.explain import explain
    from pipetune.api.observe import observe
    from pipetune.api.pack import pack
    from pipetune.api.scale import scale
    from pipetune.api.schedule import schedule
    from pipetune.api.sweep import sweep
    from pipetune.api.watch import watch
    from pipetune.api.whatif import whatif
    from pipetune.records.sweep import Candidate
    from pipetune.runs.load import load
    from pipetune.runs.run import DamagedRunWarning, Run
    from pipetune.training.open_loader import open_loader

__all__ = [
    "Candidate",
    "DamagedRunWarning",
    "Run",
    "__version__",
    "batch_size",
    "explain",
    "load",
    "observe",
    "open_loader",
    "pack",
    "plot",
    "scale",
    "schedule",
    "sweep",
    "watch",
    "whatif",
]

_PLACES = {
    "Candidate": "pipetune.records.sweep",
    "DamagedRunWarning": "pipetune.runs.run",
    "Run": "pipetune.runs.run",
    "batch_size": "pipetune.api.batch_size",
    "explain": "pipetune.api.explain",
    "load": "pipetune.runs.load",
    "observe": "pipetune.api.observe",
    "open_loader": "pipetune.training.open_loader",
    "pack": "pipetune.api.pack",
    "scale": "pipetune.api.scale",
    "schedule": "pipetune.api.schedule",
    "sweep": "pipetune.api.sweep",
    "watch": "pipetune.api.watch",
    "whatif": "pipetune.api.whatif",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: ``import pipetune`` itself has to cost nothing."""
    import importlib

    if name == "plot":
        return importlib.import_module("pipetune.plot")
    if name not in _PLACES:
        raise AttributeError(f"module 'pipetune' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return __all__
