"""pipetune measures input pipelines for GPU training, names what starves the GPU, and finds the setting that feeds it."""

from pipetune.version import __version__

__all__ = ["__version__"]
