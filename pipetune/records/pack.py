"""What a pack was predicted to be and what it became: the records in ``pack.json`` and ``manifest.jsonl``."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipetune.records.audit import Audit

#: What limits the time of packing.
CORES, READING, WRITING = "cores", "reading", "writing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An image in a pack: a line of the manifest."""

    number: int
    """In the order of the pack, from 0 on; rejected images leave gaps."""
    key: str
    """Its name in the pack, without ending."""
    source: str
    """Its path below the source's root."""
    source_bytes: int
    source_hash: str
    """BLAKE2b of the source's bytes, 128 bits in hexadecimal digits."""
    file: str
    """That it is in, below the pack's folder."""
    start: int
    """First byte in that file."""
    length: int
    """Bytes."""
    hash: str
    """The same of what was packed."""
    width: int
    """As stored (px)."""
    height: int
    orientation: int
    """EXIF orientation that the pixels still have to be turned by, 1..8."""
    label: int
    done: str
    """``copied``, ``resized``, ``transcoded``, ``turned``, ``turned_lossless``, ``converted`` or ``decoded``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedEntry:
    """An image that could not be packed: a line of ``rejected.jsonl``."""

    number: int | None
    """In the order of the pack; ``None``: it was refused when the images were listed."""
    source: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """How close random training crops of the pack are to the same crops of the sources."""

    crop: int
    """Edge of the crops (px)."""
    crops: int
    """How many were compared."""
    psnr_db: float
    """Mean, with 99 dB at most for crops that are equal."""
    psnr_db_10: float
    """10th percentile."""
    ssim: float
    """Mean (Wang et al., IEEE Transactions on Image Processing 13, 2004) over windows of 8 x 8 px of the brightness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """How fast a training is with the sources and with the pack."""

    candidate: str
    """Key of the loader, the same for both."""
    device: str
    """Name of the accelerator."""
    before_samples_per_s: float
    before_ci95: tuple[float, float]
    after_samples_per_s: float
    after_ci95: tuple[float, float]

    @property
    def factor(self) -> float:
        """How many times as fast it is with the pack."""
        return self.after_samples_per_s / self.before_samples_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PackPlan:
    """What a pack will be, predicted from a sample."""

    images: int
    classes: int
    source_bytes: int
    sampled: int
    """Images that were packed on trial."""
    sample_rejected: int
    """How many more of them could not be."""
    unusable: int
    """Files and other things that were found among the sources and are no images that can be used."""
    total_bytes: float
    """Of the pack, images and format together."""
    total_bytes_ci95: tuple[float, float]
    shards: int
    seconds: float
    """Of all packs that are written at the same time."""
    seconds_ci95: tuple[float, float]
    limited_by: str
    """``cores``, ``reading`` or ``writing``."""
    cpu_s_per_image: float
    write_bytes_per_s: float | None
    """What the disk took in a short trial; ``None``: it was not tried."""
    decode_time_frac: float | None
    """Time to decode a packed image, as a share of the source's; ``None``: none was decoded."""
    enlarged_before_frac: float
    """Share of random training crops that are smaller than ``crop`` in one direction, in the sources."""
    enlarged_after_frac: float
    """The same in the pack."""
    fidelity: Fidelity | None
    """``None``: the pixels stay as they are."""
    together: int = 1
    """Packs that are written at the same time."""
    cut_off_frac: float = 0.0
    """Share of the sources' pixels that are not packed, where the squares in their middles are."""
    done: dict[str, int] = field(default_factory=dict)
    """What was done to the sampled images -> how many."""
    gain: Gain | None = None
    """``None``: it was not asked for."""
    audit: Audit | None = None
    """The account of the source; ``None``: an earlier version made the plan."""
    empty_classes: int = 0
    """Number of class folders without an image that come before others with some. ``ImageFolder`` counts the folders of
    the pack, and gives those others lower labels than the source has. 0 where the source is no folder of classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackResult:
    """What became of it."""

    images: int
    rejected: int
    """Images that could not be packed."""
    unusable: int
    """As :attr:`PackPlan.unusable`."""
    shards: int
    total_bytes: int
    """Of the images' files, without indices and the manifest."""
    seconds: float
    """That writing the shards took, one after the other, over all calls."""
    done: dict[str, int]
    turned: int
    """Images whose orientation tag asks for turning, whatever was done about it."""
    verified: int
    """Images that were read again and compared."""
    complete: bool
    """All shards are there, with the index."""
    empty_classes: int = 0
    """As :attr:`PackPlan.empty_classes`, by the images that were packed."""
    gain: Gain | None = None
    """Measured with the whole pack; ``None``: it was not asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackRun:
    """A pack: what it was to be, and what it became."""

    name: str
    """``train``, ``validation``, ``160``, ``160 train``; ``""``: there is one."""
    folder: str
    plan: PackPlan
    result: PackResult | None
    """``None``: only the plan was asked for."""
