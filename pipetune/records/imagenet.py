"""Constants of ImageNet training that several packages share."""

from __future__ import annotations

#: ImageNet channel means and standard deviations in 0..1, RGB (torchvision's reference training recipe).
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
