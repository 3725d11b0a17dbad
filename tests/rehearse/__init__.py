"""The stages for a rented GPU (benchmarks/gpu), run from the packed parts in an environment like that machine's.

``make rehearse`` starts it. There is no GPU: one call measures the emulated device, the others the stand-in CUDA
runtime.
"""
