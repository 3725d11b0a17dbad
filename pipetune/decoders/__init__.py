"""Who makes the pixels of one file: one module per decoder behind :mod:`pipetune.decoders.contract`; children only."""
