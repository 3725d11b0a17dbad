"""The stages for a rented GPU (benchmarks/gpu), run from the packed parts in an environment like that machine's.

``make rehearse`` starts it. There is no GPU: two calls measure the emulated device, one the stand-in CUDA runtime.
"""
