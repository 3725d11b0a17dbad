"""``--vary decoder``: decodes only the crop of each JPEG, under a script's own ``ImageFolder`` and transforms.

Where a transform begins with ``RandomResizedCrop``, the window is drawn by that very object from the undecoded file, so
the random draws, the labels and the order stay as they are; jpeg-roi decodes and resizes the window; the script's other
transforms then get the image that they would have got. Both ways are compared on the script's own files first.
"""

from __future__ import annotations

import importlib
import math
import random
import sys
from dataclasses import dataclass
from typing import Any

from pipetune.hook.guards import own_generators

#: Files that are compared, each with so many draws, and the least PSNR (dB) that passes: ``--exact``'s bar.
FILES, DRAWS, LEAST_DB = 64, 2, 45.0
_LIBRARY = "pipetune.decoders.jpeg_roi_library"


class NotPossibleError(Exception):
    """The data set, its transform or this machine has no place for another decoder; the text says which."""


class RegionTransform:
    """A script's transform, whose first step is done while decoding. Pickled to workers that are spawned.

    Args:
        original: torchvision's ``Compose`` that begins with ``RandomResizedCrop``.
    """

    def __init__(self, original: Any) -> None:
        self.original = original
        self.crop, self.rest = original.transforms[0], original.transforms[1:]

    def __call__(self, image: Any) -> Any:
        """An image that was opened and not decoded -> what the script's transform makes of it."""
        top, left, height, width = window_of(self.crop, image)
        made = _region(image, (top, left, height, width), int(self.crop.size[0]))
        if made is None:  # no JPEG, four colours, damaged: as the script would
            made = _whole(image, (top, left, height, width), self.crop)
        for transform in self.rest:
            made = transform(made)
        return made


def open_only(path: str) -> Any:
    """Takes the place of torchvision's loader: the file is opened, its header read, nothing decoded."""
    from PIL import Image

    return Image.open(path)


def window_of(crop: Any, image: Any) -> tuple[int, int, int, int]:
    """Top, left, height and width, drawn as the object itself would."""
    if hasattr(crop, "get_params"):  # torchvision.transforms
        return tuple(map(int, crop.get_params(image, crop.scale, crop.ratio)))  # type: ignore[return-value]
    params = getattr(crop, "make_params", None) or crop._get_params
    drawn = params([image])
    return int(drawn["top"]), int(drawn["left"]), int(drawn["height"]), int(drawn["width"])


def _region(image: Any, window: tuple[int, int, int, int], size: int) -> Any:
    """The window decoded and resized by jpeg-roi, as a PIL image; ``None``: it cannot."""
    if image.format != "JPEG" or image.mode not in ("RGB", "L"):
        return None
    import numpy
    from PIL import Image

    library = importlib.import_module(_LIBRARY)
    out = numpy.empty((size, size, 3), numpy.uint8)
    with open(image.filename, "rb") as file:
        data = memoryview(file.read())
    if not library.own_reader().crop(data, lambda height, width: (*window, False), out, approximate=False):
        return None
    image.close()
    return Image.fromarray(out)


def _whole(image: Any, window: tuple[int, int, int, int], crop: Any) -> Any:
    from torchvision.transforms import functional

    top, left, height, width = window
    return functional.resized_crop(
        image.convert("RGB"), top, left, height, width, list(crop.size), crop.interpolation, antialias=True
    )


@dataclass(slots=True)
class Swap:
    """Another decoder in a data set, put in and taken out again."""

    folders: list[Any]
    """The ``ImageFolder`` objects below the loader's data set."""
    before: list[tuple[Any, Any]]
    psnr_db: float = math.inf

    def put_in(self) -> None:
        """Let the folders open files only, and their transforms decode."""
        for folder, (_, transform) in zip(self.folders, self.before, strict=True):
            folder.loader, folder.transform = open_only, RegionTransform(transform)
            _renew(folder)

    def take_out(self) -> None:
        """Give the folders their own loader and transform back."""
        for folder, (loader, transform) in zip(self.folders, self.before, strict=True):
            folder.loader, folder.transform = loader, transform
            _renew(folder)


def _renew(folder: Any) -> None:
    """torchvision keeps the transform a second time, for data sets that transform image and target together."""
    both = getattr(folder, "transforms", None)
    if both is not None and hasattr(both, "transform"):
        both.transform = folder.transform


def swap_for(dataset: Any) -> Swap:
    """Another decoder for a data set, once both ways were found to give the same.

    Raises:
        NotPossibleError: it is not for this data set, or the pixels differ.
    """
    folders = _folders_in(dataset)
    for folder in folders:
        _require_recognised(folder)
        _refuse_own_generators(dataset, folder, *folder.transform.transforms)
    try:
        importlib.import_module(_LIBRARY).require_library()
    except Exception as error:  # not built, or a package of it is not in this environment
        raise NotPossibleError(f"jpeg-roi cannot be used in the script's environment: {error}") from error
    swap = Swap(folders, [(folder.loader, folder.transform) for folder in folders])
    swap.psnr_db = compare(dataset, swap)
    if swap.psnr_db < LEAST_DB:
        raise NotPossibleError(
            f"its pixels are {swap.psnr_db:.0f} dB from the script's own on its own files, {LEAST_DB:.0f} are asked for"
        )
    return swap


def _folders_in(dataset: Any) -> list[Any]:
    """The ``DatasetFolder`` objects of a data set, through ``Subset`` and ``ConcatDataset``."""
    folder_module = sys.modules.get("torchvision.datasets.folder")
    if folder_module is not None and isinstance(dataset, folder_module.DatasetFolder):
        return [dataset]
    inside = getattr(dataset, "datasets", None) or [getattr(dataset, "dataset", None)]
    found = [folder for part in inside if part is not None and part is not dataset for folder in _folders_in(part)]
    if not found:
        raise NotPossibleError(f"the data set ({type(dataset).__name__}) is no torchvision ImageFolder")
    return found


def _require_recognised(folder: Any) -> None:
    module = sys.modules["torchvision.datasets.folder"]
    if folder.loader not in (module.default_loader, module.pil_loader):
        raise NotPossibleError("its ImageFolder has a loader function of its own")
    steps = getattr(folder.transform, "transforms", None)
    if not isinstance(steps, (list, tuple)) or not steps or type(steps[0]).__name__ != "RandomResizedCrop":
        raise NotPossibleError("its transform does not begin with RandomResizedCrop")
    crop = steps[0]
    if not type(crop).__module__.startswith("torchvision.transforms"):
        raise NotPossibleError("its RandomResizedCrop is not torchvision's")
    if len(set(crop.size)) != 1 or getattr(crop.interpolation, "value", crop.interpolation) != "bilinear":
        raise NotPossibleError("its RandomResizedCrop is not square, or not bilinear")
    if not getattr(crop, "antialias", True):
        raise NotPossibleError("its RandomResizedCrop is not antialiased")


def _refuse_own_generators(*places: Any) -> None:
    names = sorted({name for place in places for name in own_generators(place)})
    if names:  # whose state we do not put back
        raise NotPossibleError(
            f"the data set or a transform has random generators of its own ({', '.join(names)}): comparing both ways "
            "would draw from them"
        )


def compare(dataset: Any, swap: Swap) -> float:
    """The least PSNR (dB) between both ways over files of the data set; infinite where all pixels are equal.

    Raises:
        NotPossibleError: shapes, types, labels or the random state afterwards differ.
    """
    torch = sys.modules["torch"]
    numbers = random.Random(0).sample(range(len(dataset)), min(FILES, len(dataset)))
    worst = math.inf
    with torch.random.fork_rng(devices=[]):
        state, numpy = random.getstate(), sys.modules.get("numpy")
        numpy_state = None if numpy is None else numpy.random.get_state()
        try:
            for number in numbers:
                for seed in range(DRAWS):
                    swap.take_out()
                    ours, ours_after = _drawn(torch, dataset, number, seed)
                    swap.put_in()
                    theirs, theirs_after = _drawn(torch, dataset, number, seed)
                    if not _same_state(torch, ours_after, theirs_after):
                        raise NotPossibleError("its transforms draw other random numbers then")
                    worst = min(worst, _psnr_db(torch, ours, theirs))
        finally:
            swap.take_out()
            random.setstate(state)
            if numpy is not None:
                numpy.random.set_state(numpy_state)
    return worst


def _drawn(torch: Any, dataset: Any, number: int, seed: int) -> tuple[Any, Any]:
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed those of all devices, too
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
    sample = dataset[number]
    drawn = None if numpy is None else float(numpy.random.random())
    return sample, (torch.get_rng_state(), random.getstate(), drawn)


def _same_state(torch: Any, one: Any, other: Any) -> bool:
    return bool(torch.equal(one[0], other[0])) and one[1:] == other[1:]


def _psnr_db(torch: Any, ours: Any, theirs: Any) -> float:
    """Of the first tensor of a sample; the rest has to be equal.

    Why the range of the script's own tensor stands for the 255 grey levels: it may be normalised.
    """
    ours, theirs = _flat(ours), _flat(theirs)
    if len(ours) != len(theirs):
        raise NotPossibleError("a sample has other parts then")
    worst = math.inf
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, torch.Tensor) and a.ndim >= 2:
            if a.shape != b.shape or a.dtype != b.dtype:
                raise NotPossibleError("a sample has another shape or type then")
            error = float((a.double() - b.double()).pow(2).mean())
            span = float(a.double().max() - a.double().min()) or 1.0
            worst = min(worst, math.inf if error == 0 else 10 * math.log10(span * span / error))
        elif not _equal(torch, a, b):
            raise NotPossibleError("a sample has another label then")
    return worst


def _equal(torch: Any, a: Any, b: Any) -> bool:
    return bool(torch.equal(a, b)) if isinstance(a, torch.Tensor) else bool(a == b)


def _flat(sample: Any) -> list[Any]:
    if isinstance(sample, dict):
        return [item for value in sample.values() for item in _flat(value)]
    if isinstance(sample, (list, tuple)):
        return [item for value in sample for item in _flat(value)]
    return [sample]
