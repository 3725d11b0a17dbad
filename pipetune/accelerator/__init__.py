"""What consumes batches: a CUDA device, the CPU, or an emulated device with a timeline of its own."""
