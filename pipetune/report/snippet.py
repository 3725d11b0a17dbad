"""The recommended configuration as code to paste into a training script."""

from __future__ import annotations

import textwrap

from pipetune.own_loader import call_of
from pipetune.records import Candidate
from pipetune.registry import OWN

_MEAN_STD = "mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]"
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
    transforms.ToTensor(),
    transforms.Normalize({mean_std}),
])

def load(path):
    return transform(ImageOps.exif_transpose(Image.open(path)).convert("RGB"))
""",
    "opencv": """
cv2.setNumThreads(0)  # the loader workers are the parallelism
MEAN = np.array([0.485, 0.456, 0.406], np.float32) * 255
STD = np.array([0.229, 0.224, 0.225], np.float32) * 255

def load(path):
    image = cv2.imread(path, cv2.IMREAD_COLOR)  # BGR
    shape = torch.empty((3, *image.shape[:2]), device="meta")
    top, left, height, width = transforms.RandomResizedCrop.get_params(shape, (0.08, 1.0), (3 / 4, 4 / 3))
    image = cv2.resize(image[top : top + height, left : left + width], ({size}, {size}))
    if torch.rand(()) < 0.5:
        image = cv2.flip(image, 1)
    out = torch.empty((3, {size}, {size}))
    for c, plane in enumerate(reversed(cv2.split(image))):  # to RGB, normalised, in one pass
        cv2.addWeighted(plane, 1 / STD[c], plane, 0, -MEAN[c] / STD[c], dst=out.numpy()[c], dtype=cv2.CV_32F)
    return out
""",
    "torchvision": """
transform = transforms.Compose([
    transforms.RandomResizedCrop({size}, antialias=True),
    transforms.RandomHorizontalFlip(),
    transforms.ToDtype(torch.float32, scale=True),
    transforms.Normalize({mean_std}),
])

def load(path):
    return transform(decode_image(path, mode=ImageReadMode.RGB, apply_exif_orientation=True))
""",
}

_IMPORTS = {
    "pillow": ("import torch", "from PIL import Image, ImageOps", "from torch.utils.data import DataLoader",
               "from torchvision import datasets, transforms"),
    "opencv": ("import cv2", "import numpy as np", "import torch", "from torch.utils.data import DataLoader",
               "from torchvision import datasets, transforms"),
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
    images = fn.decoders.image_random_crop(encoded, device="{decoder}", output_type=types.RGB,
                                           random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3])
    images = fn.resize(images, size=({size}, {size}), interp_type=types.INTERP_LINEAR, antialias=True)
    images = fn.crop_mirror_normalize(images, mirror=fn.random.coin_flip(), dtype=types.FLOAT, output_layout="CHW",
                                      mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])
    return images, labels

loader = DALIGenericIterator(photos(), ["images", "labels"], reader_name="reader", auto_reset=True)
# for (batch,) in loader: images, labels = batch["images"], batch["labels"].view(-1).long()
"""


#: It takes Pillow's place, so the training environment has to have it instead.
_SIMD_REMARK = """# Pillow-SIMD in place of Pillow (Debian: apt-get install libjpeg-dev zlib1g-dev):
#   pip uninstall -y pillow && pip install --no-binary pillow-simd pillow-simd
# on a processor with AVX2 put CC="cc -mavx2" before the second pip
"""


def code_for(candidate: Candidate, *, root: str, image_size: int, flat: bool, on_gpu: bool) -> str:
    """Python source that builds ``loader`` as the candidate was measured.

    Args:
        candidate: what to build.
        root: the data set's folder; of the user's own loader the name of the function that makes it.
        image_size: px.
        flat: the images lie in one folder without class folders.
        on_gpu: the accelerator is a CUDA device.
    """
    if candidate.backend == "dali":
        return _dali(candidate, root, image_size, flat, on_gpu)
    if candidate.backend == OWN.name:
        return f"loader = {call_of(root, candidate)}\n"
    simd = candidate.backend == "pillow-simd"
    name = "pillow" if simd else candidate.backend
    load = _LOAD[name].replace("{size}", str(image_size)).replace("{mean_std}", _MEAN_STD)
    imports = (_SIMD_REMARK if simd else "") + "\n".join(_IMPORTS[name])
    if flat:
        imports = f"from pathlib import Path\n\n{imports}".replace("datasets, transforms", "transforms")
        imports = imports.replace("from torchvision import datasets\n", "")
    definition, dataset = (
        (_FLAT_DATASET, "Photos(ROOT, load)") if flat else ("", "datasets.ImageFolder(ROOT, loader=load)")
    )
    call = f"loader = DataLoader(dataset, shuffle=True, drop_last=True, {settings_for(candidate)})"
    wrapped = "\n".join(textwrap.wrap(call, 110, subsequent_indent=" " * 20, break_on_hyphens=False))
    return f"{imports}\n\nROOT = {root!r}\n{load}{definition}\ndataset = {dataset}\n{wrapped}\n"


def settings_for(candidate: Candidate) -> str:
    """The same in one line, for people who have a loader already."""
    if candidate.backend == "dali":
        return f"num_threads={candidate.num_workers}, prefetch_queue_depth={candidate.prefetch_depth}"
    arguments = [f"batch_size={candidate.batch_size}", f"num_workers={candidate.num_workers}"]
    if candidate.num_workers:
        arguments += [f"prefetch_factor={candidate.prefetch_depth}", "persistent_workers=True"]
    if candidate.pin_memory:
        arguments.append("pin_memory=True")
    return ", ".join(arguments)


def _dali(candidate: Candidate, root: str, image_size: int, flat: bool, on_gpu: bool) -> str:
    if flat:
        prefix = f"from pathlib import Path\n\nROOT = {root!r}\n"
        prefix += f'paths = sorted(str(p) for p in Path(ROOT).rglob("*") if p.suffix.lower() in {_ENDINGS})\n\n'
        files = "files=paths, labels=[0] * len(paths)"
    else:
        prefix, files = f"ROOT = {root!r}\n\n", "file_root=ROOT"
    body = _DALI.strip("\n").format(
        batch=candidate.batch_size, workers=candidate.num_workers, prefetch=candidate.prefetch_depth,
        device_id=0 if on_gpu else None, decoder="mixed" if on_gpu else "cpu", files=files, size=image_size,
    )  # fmt: skip
    return f"{prefix}{body}\n"
