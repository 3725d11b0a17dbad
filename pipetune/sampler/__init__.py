"""Readings of what runs: the machine, a process tree, a GPU; of a training job in ``job``. Knows no candidates."""
