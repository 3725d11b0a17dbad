"""Decode backends, one file each behind :mod:`pipetune.loaders.contract`. Imported in the child only."""
