"""Decoders: each makes the pixels of one image. One file each, with the interface in :mod:`pipetune.decoders.contract`.

Imported in the child and in a training script, never in the parent.
"""
