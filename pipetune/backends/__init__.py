"""Decode backends, one file each behind :mod:`pipetune.backends.contract`. Imported in the child only."""
