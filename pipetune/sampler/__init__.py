"""What is polled while something runs: process tree, machine and GPU; a job in ``job``. Knows no candidates."""
