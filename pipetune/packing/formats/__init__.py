"""How packed images lie in files: one writer per format, behind :mod:`pipetune.packing.formats.contract`."""
