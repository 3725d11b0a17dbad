"""GPUs as NVIDIA's management library shows them."""
