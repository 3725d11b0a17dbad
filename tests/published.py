"""A published table: images per second of three models on 1 to 256 GPUs of 16-GPU hosts.

Apache MXNet, ``example/image-classification/README.md``, section on scalability: AWS p2.16xlarge (16 halves of NVIDIA
K80 in each host), 512 images per GPU for AlexNet, 32 for the others.
"""

from __future__ import annotations

from pathlib import Path

PER_HOST = 16
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
RATES = {
    "AlexNet": (457.07, 870.43, 1514.8, 2852.5, 4244.18, 7945.57, 15840.52, 31334.88, 61938.36),
    "Inception-v3": (30.4, 59.61, 117.9, 233.39, 447.61, 882.57, 1761.24, 3416.2, 6660.98),
    "ResNet-152": (20.8, 38.76, 77.01, 153.07, 298.03, 595.53, 1179.86, 2333.47, 4630.42),
}  # fmt: skip


def write_table(path: Path, model: str, most: int) -> Path:
    """The table of a model up to so many GPUs, as ``pipetune scale --table`` reads it."""
    lines = ["accelerators,hosts,samples_per_s"]
    lines += [f"{count},{max(1, count // PER_HOST)},{rate}"
              for count, rate in zip(COUNTS, RATES[model], strict=True) if count <= most]  # fmt: skip
    path.write_text("\n".join(lines) + "\n")
    return path
