"""The loaders that ``loaders.py`` compares, each as its documentation recommends for a decode-bound folder of JPEGs.

Every function opens a loader for a :class:`Task` and gives an endless iterator over batches whose images are a torch
tensor ``[batch, 3, size, size]``. They import what they need themselves: not every environment has all of them.

Where a loader leaves decoding to the user (SPDL, Grain, torchdata, LitData, WebDataset) it gets the fastest functions
that packages on PyPI allow, from ``decoders.py``, with libjpeg-turbo's shortcuts where it does not antialias;
one task per batch where the loader allows it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipetune.datasets.index import ImageSet
from pipetune.loaders.order import EndlessOrder
from pipetune.records.imagenet import MEAN, STD

Batches = Iterator[torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to load."""

    images: ImageSet
    converted: Path
    """Folder with the data set in the formats of FFCV, LitData and WebDataset."""
    batch: int
    size: int
    """Edge of the crop (px)."""
    uint8: bool
    """``uint8`` as decoded, else ``float32`` and normalised."""
    workers: int
    prefetch: int

    @property
    def paths(self) -> list[str]:
        """Paths of the photographs."""
        return [image.path for image in self.images.images]

    def batches_of_indices(self) -> Iterator[list[int]]:
        """Batches of sample indices: endless and shuffled, epoch after epoch."""
        return iter(EndlessOrder(len(self.images.images), self.batch, 0))


def pipetune(task: Task, backend: str) -> Batches:
    """One of pipetune's candidates with threads, as a sweep opens it."""
    from pipetune.accelerator.named import emulated_spec
    from pipetune.loaders.open_loader import open_loader
    from pipetune.records.sweep import Candidate, Workload
    from pipetune.registry import THREADS

    candidate = Candidate(
        backend=backend, num_workers=task.workers, prefetch_depth=task.prefetch, batch_size=task.batch,
        loader=THREADS, reuse_buffers=True, transfer="uint8" if task.uint8 else "float32",
    )  # fmt: skip
    workload = Workload(
        dataset="", index_path="", accelerator=emulated_spec("1e6"), model="resnet50", image_size=task.size,
        precision="emulated", seconds=1, warmup_limit_s=1, cache="warm", seed=0,
    )  # fmt: skip
    for batch in open_loader(candidate, workload, task.images):
        yield batch.images


def torch_v2(task: Task) -> Batches:
    """``DataLoader`` with worker processes, torchvision's own decoder and its v2 transforms on uint8 tensors.

    https://docs.pytorch.org/vision/stable/transforms.html#performance-considerations
    """
    from torch.utils.data import DataLoader
    from torchvision import datasets
    from torchvision.io import ImageReadMode, decode_image
    from torchvision.transforms import v2

    steps: list[Any] = [v2.RandomResizedCrop(task.size, antialias=True), v2.RandomHorizontalFlip()]
    if not task.uint8:
        steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean=list(MEAN), std=list(STD))]
    transform = v2.Compose(steps)
    dataset = datasets.ImageFolder(
        task.images.root, loader=lambda path: transform(decode_image(path, mode=ImageReadMode.RGB))
    )
    options: dict[str, Any] = {"prefetch_factor": task.prefetch, "persistent_workers": True} if task.workers else {}
    # Long epochs, so that their ends do not decide.
    sampler = list(itertools.islice(itertools.chain.from_iterable(task.batches_of_indices()), 40 * len(dataset)))
    order = [index % len(dataset) for index in sampler]
    loader = DataLoader(
        dataset, batch_size=task.batch, sampler=order, num_workers=task.workers, drop_last=True, **options
    )
    while True:
        for images, _ in loader:
            yield images


def dali(task: Task, antialias: bool) -> Batches:
    """NVIDIA DALI on the CPU: region decoding, its own resize, threads.

    https://docs.nvidia.com/deeplearning/dali/user-guide/docs/examples/use_cases/pytorch/resnet50/pytorch-resnet50.html
    """
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    scaled: dict[str, Any] = {} if task.uint8 else {"mean": [255 * m for m in MEAN], "std": [255 * s for s in STD]}

    @pipeline_def(
        batch_size=task.batch, num_threads=task.workers, device_id=None, prefetch_queue_depth=task.prefetch,
        exec_dynamic=True,
    )  # fmt: skip
    def photos() -> Any:
        encoded, labels = fn.readers.file(file_root=task.images.root, random_shuffle=True, name="reader")
        images = fn.decoders.image_random_crop(
            encoded,
            device="cpu",
            output_type=types.RGB,
            use_fast_idct=not antialias,
            random_area=[0.08, 1.0],
            random_aspect_ratio=[3 / 4, 4 / 3],
        )
        images = fn.resize(
            images, size=(task.size, task.size), interp_type=types.INTERP_LINEAR, antialias=antialias
        )  # fmt: skip
        images = fn.crop_mirror_normalize(
            images, mirror=fn.random.coin_flip(), dtype=types.UINT8 if task.uint8 else types.FLOAT,
            output_layout="CHW", **scaled,
        )  # fmt: skip
        return images, labels

    for (batch,) in DALIGenericIterator(photos(), ["images", "labels"]):
        yield batch["images"]


def spdl(task: Task, fill: Callable[..., None]) -> Batches:
    """SPDL with one task per batch on its threads. https://facebookresearch.github.io/spdl/"""
    from spdl.pipeline import PipelineBuilder

    paths = task.paths

    def load(indices: list[int]) -> torch.Tensor:
        return make_batch(task, [(paths[t % len(paths)], t) for t in indices], fill)

    builder = PipelineBuilder().add_source(task.batches_of_indices())
    pipeline = builder.pipe(load, concurrency=task.workers).add_sink(task.prefetch).build(num_threads=task.workers)
    with pipeline.auto_stop():
        yield from pipeline.get_iterator()


def grain(task: Task, fill: Callable[..., None]) -> Batches:
    """Grain's threads, one element per batch. https://google-grain.readthedocs.io/"""
    import grain as library

    paths, count = task.paths, len(task.paths)

    def load(indices: np.ndarray[Any, Any]) -> torch.Tensor:
        return make_batch(task, [(paths[int(t) % count], int(t)) for t in indices], fill)

    data = library.MapDataset.range(count).shuffle(seed=0).repeat(1000).batch(task.batch, drop_remainder=True).map(load)
    options = library.ReadOptions(num_threads=task.workers, prefetch_buffer_size=task.workers * task.prefetch)
    yield from data.to_iter_dataset(options)


def nodes(task: Task, fill: Callable[..., None]) -> Batches:
    """torchdata's nodes: batches first, then threads. https://meta-pytorch.org/data/stable/torchdata.nodes.html"""
    from torchdata import nodes as tn

    paths, count = task.paths, len(task.paths)

    def load(indices: list[int]) -> torch.Tensor:
        return make_batch(task, [(paths[t % count], t) for t in indices], fill)

    sampler = tn.IterableWrapper(itertools.islice(task.batches_of_indices(), 10**6))
    mapped = tn.ParallelMapper(
        sampler, load, num_workers=task.workers, in_order=True, method="thread", max_concurrent=None
    )  # fmt: skip
    yield from tn.Loader(tn.Prefetcher(mapped, prefetch_factor=task.prefetch))


def make_batch(task: Task, samples: list[tuple[str, int]], fill: Callable[..., None]) -> torch.Tensor:
    """A batch in newly allocated memory, as a thread of these loaders makes it."""
    batch = np.empty((len(samples), 3, task.size, task.size), np.uint8 if task.uint8 else np.float32)
    for place, (path, index) in enumerate(samples):
        with open(path, "rb") as file:
            fill(file.read(), index, batch[place])
    return torch.from_numpy(batch)


def one(task: Task, data: bytes, index: int, fill: Callable[..., None]) -> torch.Tensor:
    """One sample, for loaders that collate by themselves."""
    image = np.empty((3, task.size, task.size), np.uint8 if task.uint8 else np.float32)
    fill(data, index, image)
    return torch.from_numpy(image)


def litdata(task: Task, fill: Callable[..., None]) -> Batches:
    """LitData's streaming chunks and worker processes. https://github.com/Lightning-AI/litData"""
    from litdata import StreamingDataLoader, StreamingDataset

    class Photos(StreamingDataset):
        def __getitem__(self, index: Any) -> torch.Tensor:
            item = super().__getitem__(index)
            return one(task, item["jpeg"], item["number"], fill)

    dataset = Photos(str(task.converted / "litdata"), shuffle=True, drop_last=True)
    loader = StreamingDataLoader(
        dataset, batch_size=task.batch, num_workers=task.workers, prefetch_factor=task.prefetch, drop_last=True,
        persistent_workers=True,
    )  # fmt: skip
    while True:
        yield from loader


def webdataset(task: Task, fill: Callable[..., None]) -> Batches:
    """WebDataset's tar shards and worker processes, batches made in the workers. https://github.com/webdataset"""
    import webdataset as wds

    def decode(sample: dict[str, Any]) -> torch.Tensor:
        return one(task, sample["jpg"], int(sample["__key__"]), fill)

    shards = sorted(str(path) for path in (task.converted / "shards").glob("*.tar"))
    dataset = wds.WebDataset(shards, shardshuffle=len(shards), resampled=False, nodesplitter=None, empty_check=False)
    dataset = dataset.repeat().shuffle(1000).map(decode).batched(task.batch, collation_fn=torch.stack, partial=False)
    yield from wds.WebLoader(
        dataset, batch_size=None, num_workers=task.workers, prefetch_factor=task.prefetch, persistent_workers=True
    )  # fmt: skip


def ffcv(task: Task) -> Batches:
    """FFCV's own file, decoder (libjpeg-turbo, area resize) and compiled pipeline. https://docs.ffcv.io/"""
    from ffcv.fields.decoders import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage

    steps: list[Any] = [RandomResizedCropRGBImageDecoder((task.size, task.size)), RandomHorizontalFlip()]
    if not task.uint8:
        steps.append(NormalizeImage(255 * np.array(MEAN), 255 * np.array(STD), np.dtype(np.float32)))
    steps += [ToTensor(), ToTorchImage(channels_last=False)]
    loader = Loader(
        str(task.converted / "photos.beton"), batch_size=task.batch, num_workers=task.workers, os_cache=True,
        order=OrderOption.RANDOM, batches_ahead=task.prefetch, drop_last=True,
        pipelines={"image": steps, "label": None},
    )  # fmt: skip
    while True:
        for batch in loader:
            yield batch[0]
