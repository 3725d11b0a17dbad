"""pipetune measures the input pipeline of GPU training, names what starves the GPU and finds what feeds it."""

from pipetune.version import __version__

__all__ = ["__version__"]
