"""A data set rewritten so that the loader keeps up: what to write, where, and how it is checked. For ``cli``."""
