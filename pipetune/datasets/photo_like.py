"""Synthetic JPEGs with the bytes per pixel of photographs, and so with their decode time.

Why: a decoder's time follows pixels and bytes (``t_ms = 0.94 * MP + 6.6 * MB`` within 4 % on 1,481 real files), and
noise or plain shapes differ much in bytes. An image here is a window of a 1/f^a noise field (natural images have such
spectra: Field 1987, doi:10.1364/JOSAA.4.002379) with a map of zones in focus and out of it, over blurred shapes, plus
grain. Three exponents and a log-normal gain of the detail make the *distribution* of bytes per pixel match, not only
its mean. The images are useful for bytes and decode time, not for accuracy.

The targets: 0.277 bytes per pixel and 39 KB a file (258 photographs at the scale of Caltech-256, quality 90), 0.390
bytes per pixel (the same at 500 x 375 px, quality 95), and 0.68 (258 ImageNet training files).
``benchmarks/measuring/synthetic_match.py`` checks the first of them, and the decode time, against photographs.
"""

from __future__ import annotations

import functools
import io
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

    Floats = NDArray[np.float32]

#: Part of a set's folder name: raised whenever the same seed would make other bytes.
GENERATOR_VERSION = 1

_FIELD_PX = 1024
_FIELDS_PER_EXPONENT = 4
_BANK_SEED = 20260131
_CHROMA_GAIN = 0.35
#: Additive recurrence in five dimensions (M. Roberts 2018, "The unreasonable effectiveness of quasirandom sequences"):
#: powers of 1 / x with x**6 = x + 1. What decides the bytes is drawn with it, so that bytes per pixel of a set of 150
#: images vary by 1.3 % between seeds, not by 3 %.
_STEPS = (0.8812714616335696, 0.7766393890897683, 0.6844301295853427, 0.6031687406857283, 0.5315553977157914)
_SHAPES = (4, 14)
_CONTRAST = (18.0, 42.0)

#: Quantiles (0, 1/8 .. 1) of long edge / short edge: 215 photographs, the steps at 4:3, 3:2 and 16:9 smoothed.
_ASPECTS = (1.00, 1.06, 1.28, 1.333, 1.337, 1.48, 1.502, 1.68, 2.46)
_UPRIGHT_SHARE = 0.2
#: Quantiles (0, 1/8 .. 1) of the short edge (px): about 350 px scaled by 0.9, which brings the mean file to
#: the 39 KB of Caltech-256; most within 10 % of it, with a tail to both sides.
_SHORT_EDGES = (140.0, 266.0, 292.0, 302.0, 308.0, 314.0, 323.0, 344.0, 450.0)
#: (weight, JPEG quality, subsampling) of 1,000 ImageNet training files: quality 75/91/96/96/96 at p5/25/50/75/95,
#: 76 % 4:4:4, 20 % 4:2:0, 2.3 % grey. The weights reproduce these margins. How quality and subsampling combine is a
#: guess; the detail of ``imagenet-real`` was chosen so that the bytes per pixel match all the same.
_IMAGENET_ENCODINGS = (
    (0.580, 96, "4:4:4"),
    (0.100, 95, "4:4:4"),
    (0.060, 91, "4:4:4"),
    (0.020, 80, "4:4:4"),
    (0.030, 96, "4:2:0"),
    (0.080, 91, "4:2:0"),
    (0.040, 85, "4:2:0"),
    (0.050, 75, "4:2:0"),
    (0.017, 96, "4:2:2"),
    (0.023, 96, "grey"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhotoProfile:
    """Parameters of one family of photo-like JPEGs."""

    name: str
    exponents: tuple[float, ...]
    """Exponents a of the 1/f^a noise; each image uses one of them."""
    detail: float
    """Median gain of the fine structure."""
    detail_sigma: float
    """Spread of that gain between images (standard deviation of its logarithm)."""
    grain: float
    """Mean strength of white noise (grey levels)."""
    encodings: tuple[tuple[float, int, str], ...]
    """(weight, JPEG quality, ``4:4:4``/``4:2:2``/``4:2:0``/``grey``)."""
    long_edge: int | None
    """Long edge of all images (px); ``None``: drawn from the Caltech-like tables."""
    fixed_aspect: float | None
    """Long edge / short edge of all images; ``None``: drawn from the table of photographs."""
    mean_bytes: int
    """Expected mean file size, with which the disk space is checked."""
    max_classes: int
    """Classes of the data set that the profile imitates."""


PROFILES: dict[str, PhotoProfile] = {
    profile.name: profile
    for profile in (
        PhotoProfile(
            name="caltech256",
            exponents=(1.0, 1.2, 1.4),
            detail=0.8,
            detail_sigma=0.8,
            grain=1.0,
            encodings=((1.0, 90, "4:2:0"),),
            long_edge=None,
            fixed_aspect=None,
            mean_bytes=39_000,
            max_classes=257,
        ),
        PhotoProfile(
            name="imagenet",
            exponents=(1.05, 1.25, 1.45),
            detail=0.9,
            detail_sigma=0.8,
            grain=0.5,
            encodings=((1.0, 95, "4:2:0"),),
            long_edge=500,
            fixed_aspect=500 / 375,
            mean_bytes=73_000,
            max_classes=1000,
        ),
        PhotoProfile(
            name="imagenet-real",
            exponents=(1.0, 1.2, 1.4),
            detail=1.4,
            detail_sigma=1.0,
            grain=0.5,
            encodings=_IMAGENET_ENCODINGS,
            long_edge=500,
            fixed_aspect=None,
            mean_bytes=122_000,
            max_classes=1000,
        ),
    )
}


def make_jpeg(profile: PhotoProfile, seed: int, number: int) -> bytes:
    """One JPEG. The same profile, seed and number give the same bytes, in any process and any order.

    (With the same versions of numpy and Pillow; other versions may differ in a few bytes.)
    About 10 ms, and 0.5 s and 60 MB once per process and profile for the noise.
    """
    import numpy as np

    rng = np.random.default_rng((seed, number))
    starts = np.random.default_rng((seed, _BANK_SEED)).random(len(_STEPS)).tolist()
    for_short, for_aspect, for_gain, for_contrast, for_family = (
        (start + number * step) % 1.0 for start, step in zip(starts, _STEPS, strict=True)
    )
    width, height = _draw_size(profile, rng, for_short, for_aspect)
    quality, sampling = _draw_encoding(profile, rng)
    gain = profile.detail * math.exp(profile.detail_sigma * NormalDist().inv_cdf(min(max(for_gain, 1e-6), 1 - 1e-6)))
    contrast = _CONTRAST[0] + for_contrast * (_CONTRAST[1] - _CONTRAST[0])
    families, grain = _noise(profile.exponents)
    fields = families[int(for_family * len(families))]
    picture = _paint(rng, (width, height), fields, grain, gain, contrast, profile.grain)
    buffer = io.BytesIO()
    if sampling == "grey":
        picture.convert("L").save(buffer, "JPEG", quality=quality)
    else:
        picture.save(buffer, "JPEG", quality=quality, subsampling=sampling)
    return buffer.getvalue()


def forget_noise() -> None:
    """Free the memory of the noise fields (60 MB per family of exponents)."""
    _noise.cache_clear()


def _draw_size(profile: PhotoProfile, rng: np.random.Generator, for_short: float, for_aspect: float) -> tuple[int, int]:
    """(width, height) in px; the long edge fits the noise fields."""
    aspect = _from_quantiles(_ASPECTS, for_aspect) if profile.fixed_aspect is None else profile.fixed_aspect
    if profile.long_edge is None:
        short = _from_quantiles(_SHORT_EDGES, for_short)
        long = min(short * aspect, float(_FIELD_PX))
    else:
        long = float(profile.long_edge)
        short = long / aspect
    edges = round(long), round(short)
    return edges if rng.random() >= _UPRIGHT_SHARE else edges[::-1]


def _from_quantiles(table: tuple[float, ...], share: float) -> float:
    """Inverse of the distribution function, linear between equally spaced quantiles; ``share`` in [0, 1)."""
    place = share * (len(table) - 1)
    below = int(place)
    return table[below] + (place - below) * (table[below + 1] - table[below])


def _draw_encoding(profile: PhotoProfile, rng: np.random.Generator) -> tuple[int, str]:
    left = rng.random() * sum(weight for weight, _, _ in profile.encodings)
    for weight, quality, sampling in profile.encodings:
        left -= weight
        if left < 0:
            return quality, sampling
    return profile.encodings[-1][1:]


@functools.lru_cache(maxsize=2)
def _noise(exponents: tuple[float, ...]) -> tuple[list[list[Floats]], list[Floats]]:
    """Fields of 1/f^a noise for each exponent, and white grain: each 1024 x 1024, mean 0, standard deviation 1."""
    import numpy as np

    rng = np.random.default_rng(_BANK_SEED)
    across, down = np.meshgrid(np.fft.rfftfreq(_FIELD_PX), np.fft.fftfreq(_FIELD_PX))
    frequency = np.hypot(across, down)
    frequency[0, 0] = 1.0
    # Structure larger than a field would only shift the brightness of a whole window.
    inside = frequency > 1.5 / _FIELD_PX
    families = []
    for exponent in exponents:
        family = []
        for _ in range(_FIELDS_PER_EXPONENT):
            spectrum = np.exp(2j * np.pi * rng.random(frequency.shape)) / frequency**exponent * inside
            field = np.fft.irfft2(spectrum, s=(_FIELD_PX, _FIELD_PX))
            family.append((field / field.std()).astype(np.float32))
        families.append(family)
    grain = [rng.standard_normal((_FIELD_PX, _FIELD_PX)).astype(np.float32) for _ in range(2)]
    return families, grain


def _paint(
    rng: np.random.Generator,
    size: tuple[int, int],
    fields: list[Floats],
    grain: list[Floats],
    gain: float,
    contrast: float,
    grain_level: float,
) -> Image.Image:
    """The picture, RGB, ``size`` = (width, height)."""
    import numpy as np
    from PIL import Image

    width, height = size
    luma = _with_focus(rng, _window(rng, fields, width, height), gain)
    strength = np.float32(grain_level * rng.uniform(0.2, 1.8))
    luma = luma * np.float32(contrast) + 25 + _window(rng, grain, width, height) * strength
    pixels = _shapes(rng, width, height) * np.float32(0.75) + luma[..., None]
    chroma = _window(rng, fields, width, height) * np.float32(contrast * _CHROMA_GAIN)
    pixels[..., 0] += chroma
    pixels[..., 2] -= chroma
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _window(rng: np.random.Generator, fields: list[Floats], width: int, height: int) -> Floats:
    field = fields[rng.integers(len(fields))]
    top, left = rng.integers(0, _FIELD_PX - height + 1), rng.integers(0, _FIELD_PX - width + 1)
    window = field[top : top + height, left : left + width]
    if rng.random() < 0.5:
        window = window[:, ::-1]
    return window[::-1] if rng.random() < 0.5 else window


def _with_focus(rng: np.random.Generator, luma: Floats, gain: float) -> Floats:
    """Keep the coarse structure; scale the fine one by ``gain`` and by zones in focus and out of it."""
    import numpy as np
    from PIL import Image

    height, width = luma.shape
    zones = Image.fromarray(rng.random((4, 5)).astype(np.float32)).resize((width, height), Image.Resampling.BILINEAR)
    focus = np.clip(np.asarray(zones) * np.float32(1.6) - np.float32(0.3), 0, 1)
    cell = max(2, min(width, height) // 48)
    coarse_size = max(2, width // cell), max(2, height // cell)
    coarse = np.asarray(
        Image.fromarray(np.ascontiguousarray(luma))
        .resize(coarse_size, Image.Resampling.BOX)
        .resize((width, height), Image.Resampling.BILINEAR)
    )
    sharpened: Floats = coarse + (luma - coarse) * (focus * np.float32(gain))
    return sharpened


def _shapes(rng: np.random.Generator, width: int, height: int) -> Floats:
    """Slightly blurred ellipses, polygons and rectangles: ``height`` x ``width`` x 3, 0..255."""
    import numpy as np
    from PIL import Image, ImageDraw, ImageFilter

    def colour(low: int, high: int) -> tuple[int, int, int]:
        red, green, blue = rng.integers(low, high, 3).tolist()
        return red, green, blue

    picture = Image.new("RGB", (width, height), colour(30, 220))
    draw = ImageDraw.Draw(picture)
    for _ in range(rng.integers(*_SHAPES)):
        fill = colour(15, 240)
        x, y = int(rng.integers(-width // 4, width)), int(rng.integers(-height // 4, height))
        across = int(rng.integers(width // 12 + 1, width // 2 + 2))
        down = int(rng.integers(height // 12 + 1, height // 2 + 2))
        kind = rng.integers(3)
        if kind == 0:
            draw.ellipse((x, y, x + across, y + down), fill=fill)
        elif kind == 1:
            corners = rng.integers(3, 8)
            draw.polygon(
                [(int(x + rng.integers(across)), int(y + rng.integers(down))) for _ in range(corners)], fill=fill
            )
        else:
            draw.rectangle((x, y, x + across, y + down), fill=fill)
    return np.asarray(picture.filter(ImageFilter.BoxBlur(float(rng.uniform(0.4, 1.6)))), np.float32)
