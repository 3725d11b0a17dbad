"""The check-up of a machine: what it is, and what pipetune can use on it. Called by ``cli/doctor``."""
