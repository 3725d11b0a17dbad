"""What this machine is: host, control group and /proc parsers; GPUs in ``nvml``."""
