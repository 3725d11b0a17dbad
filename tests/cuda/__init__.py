"""The CUDA path, run on the stand-in CUDA runtime of :mod:`tests.fake_cuda`: no test here needs a GPU."""
