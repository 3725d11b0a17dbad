"""This machine: host, control groups and ``/proc`` parsers; GPUs in ``nvml``. Knows nothing of candidates."""
