"""The measured process. Nothing imports it: the parent starts it and speaks :mod:`pipetune.measure.wire` with it."""
