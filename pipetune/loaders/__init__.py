"""Loaders: each makes batches with workers. One file each, with the interface in :mod:`pipetune.loaders.contract`.

Imported in the child and in a training script, never in the parent.
"""
