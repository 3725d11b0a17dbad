"""What the machine does while a candidate runs: /proc, NVML, and the thread that reads them. Knows no candidates."""
