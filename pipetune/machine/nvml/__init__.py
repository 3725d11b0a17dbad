"""GPUs as NVIDIA's management library (NVML) reports them."""
