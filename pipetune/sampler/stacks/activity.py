"""What a thread is doing, by its Python stack. Pure, apart from one line of source that may be read.

Built-in functions have no frame: of a thread inside ``tensor.to(device)`` the stack shows the Python line that calls
it. So the source line of the innermost frame is read, where its file can be, and searched for such calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

LOADER = "waits for the loader"
LOADER_INLINE = "loads a batch itself"
LOADER_START = "starts loader workers"
DEVICE_WAIT = "waits for the accelerator"
COPY = "copies to the device"
COMMUNICATION = "communicates"
CHECKPOINT = "saves or evaluates"
MODEL = "runs the model's Python"
PYTHON = "Python in the main thread"
IMPORT = "imports modules"
#: Activities of loader workers.
FETCH_NETWORK = "fetches over the network"
FETCH_DISK = "reads files"
WORKER_IDLE = "waits for work"
DECODE = "decodes"


class Frame(NamedTuple):
    """One frame of a stack."""

    name: str
    """Function; with its class from Python 3.11 on."""
    file: str
    """Path as py-spy shortens it: from the folder of packages on, e.g. ``torch/serialization.py``."""
    line: int
    path: str
    """The whole path."""


class StackActivity(NamedTuple):
    """What a thread is doing, and the frame that shows it."""

    activity: str
    where: str
    unseen: str | None = None
    """What it counts as where no accelerator can be seen; ``None``: the same."""


#: Where in the code of loaders a training loop waits: part of the file's path, functions.
_LOADER_WAITS = (
    ("torch/utils/data/dataloader.py", ("_try_get_data", "_get_data", "_try_put_index")),
    ("torchdata/", ("__next__", "next")),
    ("nvidia/dali/", ("share_outputs", "outputs", "_share_outputs", "run", "_get_outputs")),
    ("spdl/", ("__next__", "get_item", "get_iterator", "_get")),
    ("ffcv/loader/", ("__next__", "collate", "wait")),
    ("grain/", ("__next__",)),
    ("litdata/", ("__next__",)),
    ("webdataset/", ("__next__",)),
    ("tensorflow/python/data/", ("__next__", "_next_internal")),
)
#: Where pipetune's own accelerators wait for the device: file -> functions. A test compares it with the files.
OWN_WAITS = {
    "pipetune/accelerator/cpu.py": ("drain",),
    "pipetune/accelerator/torch_accelerator.py": ("drain",),
    "pipetune/accelerator/emulated.py": ("_wait_for_oldest", "drain"),
    "pipetune/accelerator/common_steps.py": ("_end_steps", "drain"),
}
_QUEUE_WAITS = ("queue.py", "multiprocessing/queues.py", "multiprocessing/connection.py")
#: Where it waits for a pool that it made itself, and how it asks a queue that has no Python in it (SimpleQueue).
_POOL_WAITS = ("concurrent/futures/_base.py", "multiprocessing/pool.py")
_QUEUE_CALL = re.compile(r"\b\w*(queue|batches|buffer|prefetch)\w*\.get\(")
_IMPORTS = ("<frozen importlib", "importlib/_bootstrap")
_SYNC_CALL = re.compile(r"\.(item|cpu|tolist|numpy|synchronize)\(")
_COPY_CALL = re.compile(r"\.(to|cuda|copy_|pin_memory)\(|\bdevice_put\(")
_COLLECTIVES = re.compile(
    r"^(all_reduce|all_gather\w*|_?all_gather_base|reduce_scatter\w*|broadcast\w*|barrier|reduce|gather|scatter|"
    r"send|recv|all_to_all\w*|monitored_barrier|_sync_params\w*|_sync_buffers\w*)$"
)
_SAVES = re.compile(r"^(save|save_pretrained|save_checkpoint|_save|async_save|save_file|save_model)$")
_SAVE_CALL = re.compile(r"\b((torch|np|numpy|pickle|safetensors\S*)\.(save|dump|savez\w*|save_file)|os\.fsync)\(")
_SAVE_FILES = ("torch/serialization.py", "safetensors/", "torch/distributed/checkpoint/", "orbax/")
_EVALUATES = re.compile(
    r"^_?(evaluate|validate|validation|run_validation|run_eval|eval|eval_\w+|validate_\w+|test_epoch)$"
)
_MODEL_FILES = (
    "torch/nn/",
    "torch/autograd/",
    "torch/optim/",
    "torch/_tensor.py",
    "torch/amp/",
    "torch/_dynamo/",
    "torch/_ops.py",
    "torch/_functorch/",
    "torch/_inductor/",
    "torch/utils/checkpoint.py",
    "torch/functional.py",
    "torchvision/models/",
    "timm/",
    "transformers/models/",
    "flax/",
    "jax/",
    "optax/",
    "tensorflow/python/eager/",
    "tensorflow/python/client/",
    "tensorflow/python/ops/",
    "keras/",
)
#: Calls in a line of the script that only torch and its like have.
_TORCH_CALL = re.compile(
    r"\b(torch|F|nn|jnp|tf)\.\w|\b(model|net|network|criterion|loss_fn)\(|\.[a-z]\w*_\(|"
    r"\.(backward|permute|float|half|bfloat16|unsqueeze|softmax|log_softmax|sigmoid|relu|matmul|bmm|detach|contiguous)\("
)
_NETWORK_FILES = (
    "socket.py",
    "ssl.py",
    "http/",
    "urllib/",
    "urllib3/",
    "requests/",
    "botocore/",
    "boto3/",
    "s3transfer/",
    "aiohttp/",
    "httpx/",
    "httpcore/",
    "fsspec/",
    "s3fs/",
    "gcsfs/",
    "google/cloud/",
    "azure/",
    "minio/",
    "smart_open/",
    "paramiko/",
)
#: Libraries whose work is never an accelerator's.
_CPU_FILES = ("numpy/", "pandas/", "scipy/", "sklearn/", "nltk/", "spacy/", "tokenizers/", "transformers/tokenization")
_NETWORK_CALL = re.compile(r"\.(recv|recv_into|sendall|connect|urlopen)\(")
_READ_CALL = re.compile(r"\b(open|read|readv|preadv?|fromfile|readinto|memmap|read_file)\(")
#: What decodes and prepares images for the main thread itself: files of libraries, functions of Pillow, calls.
_IMAGE_FILES = ("cv2/", "simplejpeg", "turbojpeg", "albumentations/", "imageio/", "torchvision/io/")
_PILLOW_CALLS = re.compile(
    r"^(load|open|_open|convert|resize|draft|transform|crop|_crop|transpose|thumbnail|reduce|tobytes|frombuffer|"
    r"__array_interface__|load_prepare|load_read|load_end)$"
)
_DECODE_CALL = re.compile(r"\b(imdecode|imread|Image\.open|decode_jpe?g|decode_image|read_image)\(|\.decode_rgb\(")
_DECODE_FILES = ("PIL/", "cv2/", "torchvision/", "simplejpeg", "turbojpeg", "albumentations/", "imageio/", "av/")


def main_activity(
    frames: Sequence[Frame], line_of: Callable[[Frame], str] = lambda frame: "", *, in_python: bool | None = None
) -> StackActivity:
    """What a training process's main thread does.

    Args:
        frames: innermost first.
        line_of: source text of a frame's line; empty where it cannot be had.
        in_python: it holds the interpreter's lock, which whoever waits for a device has released; ``None``: unknown.
    """
    if any(frame.file.startswith(_IMPORTS) for frame in frames):
        return StackActivity(IMPORT, _where(_first_of_user(frames)))
    evaluates = next((frame for frame in frames if _EVALUATES.match(_plain(frame))), None)
    if any(_torch_loader(frame, frames[:depth]) == LOADER_INLINE for depth, frame in enumerate(frames)):
        # Whatever runs inside the loader (``torch.load``, ``.numpy()``) is part of loading the next batch.
        return StackActivity(LOADER_INLINE, _where(frames[0]))
    for depth, frame in enumerate(frames):
        activity = _torch_loader(frame, frames[:depth]) or _by_frame(frame)
        if activity is None and depth == 0:
            activity = _by_line(line_of(frame), in_python=in_python)
        if activity is not None:
            pauses = evaluates is not None and activity in (DEVICE_WAIT, COPY)
            return StackActivity(activity, _where(frame), CHECKPOINT if pauses else None)
    if any(frame.file.endswith(_QUEUE_WAITS) for frame in frames[:3]) or _waits_for_pool(frames):
        # A training loop waits on a queue for nothing but its loader.
        return StackActivity(LOADER, _where(frames[0]))
    if evaluates is not None:
        return StackActivity(CHECKPOINT, _where(evaluates))
    model = next((frame for frame in frames[:4] if frame.file.startswith(_MODEL_FILES)), None)
    if model is not None:
        return StackActivity(MODEL, _where(model))
    if any(_prepares_images(frame) for frame in frames[:4]):
        return StackActivity(LOADER_INLINE, _where(_first_of_user(frames)))
    # Of native code that a line of the script calls without the lock, the line says whether it can be a step.
    steps = bool(frames) and in_python is False and _TORCH_CALL.search(line_of(frames[0]))
    return StackActivity(PYTHON, _where(_first_of_user(frames)), MODEL if steps else None)


def computes_here(frames: Sequence[Frame]) -> bool:
    """Whether the innermost frames are of a library that computes on the CPU and nowhere else."""
    return any(frame.file.startswith(_CPU_FILES) for frame in frames[:2])


def worker_activity(frames: Sequence[Frame], line_of: Callable[[Frame], str] = lambda frame: "") -> StackActivity:
    """What a loader worker is doing."""
    waits = any(frame.file.endswith(_QUEUE_WAITS) for frame in frames[:4])
    if frames and not waits and not frames[0].file.startswith(_NETWORK_FILES):
        # The call itself says more than the library around it, as when torchvision calls the user's loader function.
        text = line_of(frames[0])
        if _NETWORK_CALL.search(text):
            return StackActivity(FETCH_NETWORK, _where(frames[0]))
        if _READ_CALL.search(text):
            return StackActivity(FETCH_DISK, _where(frames[0]))
    for frame in frames:
        if frame.file.startswith(_NETWORK_FILES):
            return StackActivity(FETCH_NETWORK, _where(frame))
        if frame.file.startswith(_DECODE_FILES):
            return StackActivity(DECODE, _where(frame))
    return (
        StackActivity(WORKER_IDLE, _where(frames[0]))
        if waits
        else StackActivity(DECODE, _where(_first_of_user(frames)))
    )


def _torch_loader(frame: Frame, inner: Sequence[Frame]) -> str | None:
    if not frame.file.endswith("torch/utils/data/dataloader.py"):
        return None
    name = _plain(frame)
    if name in ("_next_data", "__next__"):
        # Without workers this frame reads the data set; with workers it waits for them, or hands out new work.
        inline = "_SingleProcess" in frame.name or any("torch/utils/data/_utils/fetch.py" in f.file for f in inner)
        return LOADER_INLINE if inline else LOADER
    if name in ("__iter__", "_get_iterator", "__init__", "_reset"):
        return LOADER_START
    return LOADER if name in ("_try_get_data", "_get_data", "_process_data", "_try_put_index") else None


def _by_frame(frame: Frame) -> str | None:
    name, file = _plain(frame), frame.file
    for part, functions in _LOADER_WAITS:
        if part in file and name in functions:
            return LOADER
    if any(file.endswith(own) and name in functions for own, functions in OWN_WAITS.items()):
        return DEVICE_WAIT
    if name == "synchronize" and ("torch/cuda" in file or "cupy" in file):
        return DEVICE_WAIT
    if name == "block_until_ready":
        return DEVICE_WAIT
    if _COLLECTIVES.match(name) and ("distributed" in file or "horovod" in file or "torch/nn/parallel" in file):
        return COMMUNICATION
    if file.startswith(_SAVE_FILES) or (_SAVES.match(name) and not file.startswith(("multiprocessing", "PIL/"))):
        return CHECKPOINT
    return None


def _waits_for_pool(frames: Sequence[Frame]) -> bool:
    # ``result()`` of a future waits in threading.py; the pool's file alone may also hand out work.
    waits = bool(frames) and _plain(frames[0]) in ("wait", "acquire", "result", "next", "_wait_for_tstate_lock")
    return waits and any(frame.file.endswith(_POOL_WAITS) for frame in frames[:4])


def _prepares_images(frame: Frame) -> bool:
    pillow = frame.file.startswith("PIL/") and _PILLOW_CALLS.match(_plain(frame))
    return bool(pillow) or frame.file.startswith(_IMAGE_FILES)


def _by_line(text: str, *, in_python: bool | None) -> str | None:
    if _SYNC_CALL.search(text) and not in_python:
        return DEVICE_WAIT
    if _DECODE_CALL.search(text):
        return LOADER_INLINE
    if _QUEUE_CALL.search(text) and in_python is False:
        return LOADER
    if _COPY_CALL.search(text):
        return COPY
    if _SAVE_CALL.search(text):
        return CHECKPOINT
    return None


def _first_of_user(frames: Sequence[Frame]) -> Frame:
    """The innermost frame outside all libraries: the user's own code."""
    own = [frame for frame in frames if "site-packages" not in frame.path and "/lib/python" not in frame.path]
    return own[0] if own else frames[0] if frames else Frame("?", "?", 0, "?")


def _plain(frame: Frame) -> str:
    """The function's name without its class."""
    return frame.name.rpartition(".")[2]


def _where(frame: Frame) -> str:
    return f"{frame.name} ({frame.file}:{frame.line})"
