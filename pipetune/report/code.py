"""The recommended configuration as code to paste into a training script."""

from __future__ import annotations

import dataclasses
import textwrap

from pipetune.candidates.allocators import lines_before
from pipetune.candidates.settings import SETTINGS, has_effect
from pipetune.candidates.torch_arguments import dataloader_arguments, written_arguments
from pipetune.records.sweep import Candidate
from pipetune.registry import OWN, TORCH, loader_for
from pipetune.usercode.make_loader import SCHEME, arguments_in

_MEAN_STD = "mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]"
_IN_BYTES = ([123.675, 116.28, 103.53], [58.395, 57.12, 57.375])
_ENDINGS = '{".jpg", ".jpeg", ".png", ".webp"}'

_FLAT_DATASET = f"""
class Photos(torch.utils.data.Dataset):
    endings = {_ENDINGS}

    def __init__(self, root, load):
        self.paths = sorted(str(p) for p in Path(root).rglob("*") if p.suffix.lower() in self.endings)
        self.load = load

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self.load(self.paths[index]), 0

"""

_LOAD = {
    "pillow": """
transform = transforms.Compose([
    transforms.RandomResizedCrop({size}),
    transforms.RandomHorizontalFlip(),
{to_floats}])

def load(path):
    return transform(ImageOps.exif_transpose(Image.open(path)).convert("RGB"))
""",
    "opencv": """
cv2.setNumThreads(0)  # the loader workers are the parallelism
{to_floats}
def load(path):
    image = cv2.imread(path, cv2.IMREAD_COLOR)  # BGR
    shape = torch.empty((3, *image.shape[:2]), device="meta")
    top, left, height, width = transforms.RandomResizedCrop.get_params(shape, (0.08, 1.0), (3 / 4, 4 / 3))
    image = cv2.resize(image[top : top + height, left : left + width], ({size}, {size}))
    if torch.rand(()) < 0.5:
        image = cv2.flip(image, 1)
{pixels}""",
    "torchcodec": """
transform = transforms.Compose([
    transforms.RandomResizedCrop({size}, antialias=True),
    transforms.RandomHorizontalFlip(),
{to_floats}])

def load(path):
    return transform(decode_image(path, mode="RGB"))
""",
    "torchvision": """
transform = transforms.Compose([
    transforms.RandomResizedCrop({size}, antialias=True),
    transforms.RandomHorizontalFlip(),
{to_floats}])

def load(path):
    return transform(decode_image(path, mode=ImageReadMode.RGB, apply_exif_orientation=True))
""",
}

#: How each comes to float32 and normalised, and what takes its place where bytes are handed over.
_TO_FLOATS = {
    "pillow": (
        f"    transforms.ToTensor(),\n    transforms.Normalize({_MEAN_STD}),\n", "    transforms.PILToTensor(),\n"
    ),
    "opencv": ("""MEAN = np.array([0.485, 0.456, 0.406], np.float32) * 255
STD = np.array([0.229, 0.224, 0.225], np.float32) * 255
""", ""),
    "torchcodec": (
        f"    transforms.ToDtype(torch.float32, scale=True),\n    transforms.Normalize({_MEAN_STD}),\n", ""
    ),
    "torchvision": (
        f"    transforms.ToDtype(torch.float32, scale=True),\n    transforms.Normalize({_MEAN_STD}),\n", ""
    ),
}  # fmt: skip
_OPENCV_PIXELS = (
    """    out = torch.empty((3, {size}, {size}))
    for c, plane in enumerate(reversed(cv2.split(image))):  # to RGB, normalised, in one pass
        cv2.addWeighted(plane, 1 / STD[c], plane, 0, -MEAN[c] / STD[c], dst=out.numpy()[c], dtype=cv2.CV_32F)
    return out
""",
    """    return torch.from_numpy(np.stack(list(reversed(cv2.split(image)))))  # RGB
""",
)

_ON_THE_ACCELERATOR = """
# In the training step, on the accelerator:
#   mean, std = (torch.tensor(v, device=device).view(1, 3, 1, 1) for v in {in_bytes})
#   images = (images.to(device, non_blocking=True).float() - mean) / std
"""

#: Our loaders draw the crop in plain Python and write into the batch, where torchvision's transforms and torch's
#: collating take tensors: 5 (opencv) to 18 % (pillow), at uint8 7 to 14 %, over six alternated rounds of 256 images
#: with one thread on a shared machine.
_REMARK = """\
# This takes more CPU time per image (5 to 18 % where compared) than the loader that was measured, which is:
#   loader = pipetune.open_loader("RUN FOLDER")
"""

_OWN_LOADER = """import pipetune

ROOT = {root!r}
candidate = pipetune.Candidate(
{fields}
)
loader = pipetune.open_loader(candidate, ROOT, image_size={size})
# for images, labels in loader:  # an epoch
#     images = loader.normalise(images.to(device, non_blocking=True))
"""

_IMPORTS = {
    "pillow": ("import torch", "from PIL import Image, ImageOps", "from torch.utils.data import DataLoader",
               "from torchvision import datasets, transforms"),
    "opencv": ("import cv2", "import numpy as np", "import torch", "from torch.utils.data import DataLoader",
               "from torchvision import datasets, transforms"),
    "torchcodec": ("import torch", "from torch.utils.data import DataLoader",
                   "from torchcodec.decoders import decode_image", "from torchvision import datasets",
                   "from torchvision.transforms import v2 as transforms"),
    "torchvision": ("import torch", "from torch.utils.data import DataLoader", "from torchvision import datasets",
                    "from torchvision.io import ImageReadMode, decode_image",
                    "from torchvision.transforms import v2 as transforms"),
}  # fmt: skip

_DALI = """
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator

@pipeline_def(batch_size={batch}, num_threads={workers}, device_id={device_id}, prefetch_queue_depth={prefetch},
              exec_dynamic=True)
def photos():
    encoded, labels = fn.readers.file({files}, random_shuffle=True, name="reader")
    images = fn.decoders.image_random_crop(encoded, device="{decoder}", output_type=types.RGB,{engine}
                                           random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3])
    images = fn.resize(images, size=({size}, {size}), interp_type=types.INTERP_LINEAR, antialias=True)
    images = fn.crop_mirror_normalize(images, mirror=fn.random.coin_flip(), dtype=types.{dtype},
                                      output_layout="{order}"{scaling})
    return images, labels

loader = DALIGenericIterator(photos(), ["images", "labels"], reader_name="reader", auto_reset=True)
# for (batch,) in loader: images, labels = batch["images"], batch["labels"].view(-1).long()
"""


#: It takes Pillow's place, so the training environment has to have it instead.
_SIMD_REMARK = """# Pillow-SIMD in place of Pillow (Debian: apt-get install libjpeg-dev zlib1g-dev):
#   pip uninstall -y pillow && pip install --no-binary pillow-simd pillow-simd
# on a processor with AVX2 put CC="cc -mavx2" before the second pip
"""


def code_for(
    candidate: Candidate, *, root: str, image_size: int, flat: bool, on_gpu: bool, shards: bool = False
) -> str:
    """Python source that builds ``loader`` as the candidate was measured.

    Args:
        candidate: what to build.
        root: the data set's folder; of the user's own loader the name of the function that makes it.
        image_size: px.
        flat: the images lie in one folder without class folders.
        on_gpu: the accelerator is a CUDA device.
        shards: the images lie in tar files.
    """
    if candidate.backend == "dali":
        return _dali(candidate, root, image_size, flat, on_gpu)
    if candidate.backend == OWN.name:
        return before(candidate) + f"loader = {call_of(root, candidate)}\n"
    if needs_open_loader(candidate) or shards:
        return before(candidate) + _open_loader(candidate, root, image_size)
    simd = candidate.backend == "pillow-simd"
    name = "pillow" if simd else candidate.backend
    as_bytes = candidate.transfer == "uint8"
    load = _LOAD[name].replace("{to_floats}", _TO_FLOATS[name][as_bytes]).replace("{pixels}", _OPENCV_PIXELS[as_bytes])
    load = load.replace("{size}", str(image_size))
    imports = (_SIMD_REMARK if simd else "") + "\n".join(_IMPORTS[name])
    if flat:
        imports = f"from pathlib import Path\n\n{imports}".replace("datasets, transforms", "transforms")
        imports = imports.replace("from torchvision import datasets\n", "")
    definition, dataset = (
        (_FLAT_DATASET, "Photos(ROOT, load)") if flat else ("", "datasets.ImageFolder(ROOT, loader=load)")
    )
    call = f"loader = DataLoader(dataset, shuffle=True, drop_last=True, {', '.join(written_arguments(candidate))})"
    wrapped = "\n".join(textwrap.wrap(call, 110, subsequent_indent=" " * 20, break_on_hyphens=False))
    after = _ON_THE_ACCELERATOR.format(in_bytes=_IN_BYTES) if as_bytes else ""
    body = f"{load}{definition}\ndataset = {dataset}\n{wrapped}\n"
    return f"{before(candidate)}{imports}\n\nROOT = {root!r}\n{body}{_REMARK}{after}"


def needs_open_loader(candidate: Candidate) -> bool:
    """A plain ``DataLoader`` cannot make its batches: :func:`pipetune.open_loader` does."""
    loader = loader_for(candidate)
    if loader.has_decoder:
        return False
    return loader.name != TORCH or candidate.reuse_buffers or candidate.backend not in (*_LOAD, "pillow-simd")


def before(candidate: Candidate) -> str:
    """What to run in the shell before the training command, as comments; nothing where nothing is."""
    return "".join(f"# before the training command: {line}\n" for line in lines_before(candidate.allocator))


def _open_loader(candidate: Candidate, root: str, image_size: int) -> str:
    known = [field.name for field in dataclasses.fields(Candidate)]
    required = {field.name for field in dataclasses.fields(Candidate) if field.default is dataclasses.MISSING}
    plain = Candidate(**{name: getattr(candidate, name) for name in required})
    needed = [
        f"{name}={getattr(candidate, name)!r}"
        for name in known
        if name in required or getattr(candidate, name) != getattr(plain, name)
    ]
    fields = "\n".join(textwrap.wrap(", ".join(needed) + ",", 110, initial_indent="    ", subsequent_indent="    "))
    return _OWN_LOADER.format(root=root, fields=fields, size=image_size)


def settings_for(candidate: Candidate, root: str = "") -> str:
    """The candidate's settings in one line, for people who have a loader already.

    Args:
        root: of the user's own loader the name of the function that makes it: only what that takes was set.
    """
    named = {name for name, setting in SETTINGS.items() if setting.argument is None}
    if candidate.backend == "dali":
        arguments = [f"num_threads={candidate.num_workers}", f"prefetch_queue_depth={candidate.prefetch_depth}"]
    elif candidate.backend == OWN.name:
        arguments = _own_arguments(candidate, root)
    else:
        arguments = written_arguments(candidate)
    for name in SETTINGS:
        value = getattr(candidate, name)
        if name in named and value != SETTINGS[name].default and has_effect(SETTINGS[name], candidate):
            arguments.append(f"{name}={value}")
    return ", ".join(arguments)


def _own_arguments(candidate: Candidate, uri: str) -> list[str]:
    values = dataloader_arguments(candidate)
    return [f"{name}={values[name]!r}" for name in arguments_in(uri)]


def call_of(uri: str, candidate: Candidate) -> str:
    """Code that makes the user's own loader as it was measured."""
    name = uri.removeprefix(SCHEME).partition("(")[0]
    return f"{name}({', '.join(_own_arguments(candidate, uri))})"


def _dali(candidate: Candidate, root: str, image_size: int, flat: bool, on_gpu: bool) -> str:
    if flat:
        prefix = f"from pathlib import Path\n\nROOT = {root!r}\n"
        prefix += f'paths = sorted(str(p) for p in Path(ROOT).rglob("*") if p.suffix.lower() in {_ENDINGS})\n\n'
        files = "files=paths, labels=[0] * len(paths)"
    else:
        prefix, files = f"ROOT = {root!r}\n\n", "file_root=ROOT"
    as_bytes = candidate.transfer == "uint8"
    body = _DALI.strip("\n").format(
        batch=candidate.batch_size, workers=candidate.num_workers, prefetch=candidate.prefetch_depth,
        device_id=0 if on_gpu else None, decoder="mixed" if on_gpu else "cpu", files=files, size=image_size,
        dtype="UINT8" if as_bytes else "FLOAT", order="HWC" if candidate.channels_last else "CHW",
        scaling="" if as_bytes else f",\n{38 * ' '}mean={_IN_BYTES[0]}, std={_IN_BYTES[1]}",
        engine=f"\n{43 * ' '}hw_decoder_load={candidate.hw_decoder_load:g},"
        if on_gpu and candidate.hw_decoder_load is not None else "",
    )  # fmt: skip
    if candidate.channels_last:
        body += '\n# batch["images"].permute(0, 3, 1, 2) is [B, 3, S, S], channels last'
    after = _ON_THE_ACCELERATOR.format(in_bytes=_IN_BYTES) if as_bytes else ""
    return f"{before(candidate)}{prefix}{body}\n{after}"
