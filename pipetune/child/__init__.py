"""The process in which a candidate is measured. Nothing imports it: the parent starts it as a program,
or as a fork server that forks it.

They exchange the messages of :mod:`pipetune.measure.wire`.
"""
