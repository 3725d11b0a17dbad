"""Opens a decode backend by its name; see :mod:`pipetune.loaders.contract` for what its module has."""

from __future__ import annotations

import importlib
from typing import Any

from pipetune import registry
from pipetune.datasets.index import ImageSet
from pipetune.loaders.contract import Loader, Trial
from pipetune.loaders.open_loader import open_decoding
from pipetune.loaders.photos import trial_of
from pipetune.records.sweep import Candidate, Workload


def open_loader(candidate: Candidate, workload: Workload, images: ImageSet) -> Loader:
    """The endless loader over ``images`` that is to be measured.

    Raises:
        PipetuneError: what the backend needs is not there.
    """
    module = backend_module(candidate.backend)
    if not hasattr(module, "load"):
        loader: Loader = module.open_loader(candidate, workload, images)
        return loader
    return open_decoding(candidate, workload, images, module.load, getattr(module, "fill_some", None))


def open_trial(backend: str, workload: Workload) -> Trial:
    """Tries one image after the other; raises as :func:`open_loader` does."""
    module = backend_module(backend)
    if not hasattr(module, "load"):
        trial: Trial = module.open_trial(workload)
        return trial
    return trial_of(module.load)


def backend_module(backend: str) -> Any:
    """The backend's module; what it needs is there, or it raises as :func:`open_loader` does."""
    module = importlib.import_module(registry.find_backend(backend).module)
    if hasattr(module, "require"):
        module.require()  # before any worker is started
    return module
