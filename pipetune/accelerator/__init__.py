"""What consumes a batch: a CUDA device, the CPU, or an emulated device with a timeline of its own."""
