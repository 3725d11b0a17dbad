"""What a sweep worked on, in a few numbers: its images and its workload, as the result and its JSON have them."""

from __future__ import annotations

from typing import TypedDict

from pipetune.records.audit import Audit


class SkippedFile(TypedDict):
    """A file or directory that could not be used."""

    path: str
    """Where it is."""
    reason: str
    """What is wrong with it."""


class DatasetSummary(TypedDict, total=False):
    """The images that the sweep used. A sweep that was killed before its end knows their ``name`` only."""

    name: str
    """Last part of the folder's path; of a synthetic data set its URI."""
    root: str
    """Absolute path of the folder."""
    images: int
    """Images in use."""
    found_images: int
    """Images that were found before a subset was drawn."""
    classes: int
    """Number of classes."""
    shards: int
    """WebDataset tar files that the images lie in; 0: they are files of their own."""
    plain: bool
    """torchvision's ``ImageFolder`` and a decoder's usual call give these images, labels and pixels."""
    nested: bool
    """Some images lie in folders below their class folder."""
    empty_classes: list[str]
    """Folders beside the classes that hold no image."""
    undecodable: list[str]
    """Paths of images that were left out during the sweep, because a decoder could not decode them."""
    skipped: int
    """Files and directories that could not be used: no image inside, cut off, not decodable, not readable."""
    skipped_files: list[SkippedFile]
    """The first 200 of the skipped files and directories, with the reason."""
    audit: Audit | None
    """Members used, rejected and other, labels matched and unmatched; ``None``: the loader is the user's own."""
    mean_bytes: float
    """Mean size of the images in use (bytes)."""
    median_width_px: int
    """Median width of the images in use (px)."""
    median_height_px: int
    """Median height of the images in use (px)."""
    fingerprint: str
    """Changes when an image in use does."""


#: Of the page cache: nothing was done about it.
AS_IT_IS = "as it is"


class WorkloadSummary(TypedDict, total=False):
    """What every candidate of the sweep was measured with."""

    model: str
    """What ``--model`` named: a real accelerator trains it."""
    batch_size: int
    """Samples per batch."""
    image_size_px: int
    """Edge of the square training crop (px); 0: the user's own loader or script decides."""
    precision: str
    """The accelerator's arithmetic: ``fp32``, ``amp`` (float16), ``bf16`` or ``emulated``."""
    compiled: bool
    """``torch.compile`` has compiled the model."""
    seconds: float
    """Length of the timed phase of a candidate (s)."""
    cache: str
    """State that the page cache was brought to before each candidate; ``as it is``: of the user's own loader or script,
    whose files are not known."""
    seed: int
    """Of the order of the candidates, the shuffling and the crops."""
    ranks: int
    """Training processes that were measured at the same time."""
    sync: str
    """``step``: their steps end together; ``none``: none waits for another."""
    bind: str
    """Cores that each of them could use: ``none`` (all), ``even`` or ``numa``."""
    hosts: int
    """Hosts that measured each candidate at the same time."""
    augment: str
    """What is done to each image: ``basic`` (a random resized crop and a flip), ``randaugment``, ``trivialaugment``,
    ``colorjitter`` or ``mixup``."""
