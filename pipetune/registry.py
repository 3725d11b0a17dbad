"""BACKENDS and LOADERS: one line per decode backend, and one per loader. A candidate is a pair of them with settings.

To add a backend, write ``decoders/NAME.py`` and add its line here; to add a loader, write ``loaders/NAME.py`` and add
its line. The command line, the search, the report and the contract tests read these tables: outside of decoders,
loaders and what installs them, no code names a backend. Whether a backend is installed is asked of the package metadata
or files, without importing it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass

from pipetune.errors import UsageError, did_you_mean
from pipetune.install.ffmpeg import INSTALL as INSTALL_SPDL
from pipetune.install.ffmpeg import Spdl, find_spdl
from pipetune.install.find import (
    JPEG_ROI,
    Compiled,
    Pillow,
    find_jpeg_roi,
    find_pillow,
    find_pillow_simd,
    importable_pillow,
    side_directory,
    why_refused,
)
from pipetune.records.sweep import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """How far a backend's pixels are from the reference's (Pillow's) on real photographs, for the same crops.

    Both numbers are of the crop scale at which they are worst: crops that are enlarged, and those reduced by up to 2,
    up to 4 and more. ``tests/contract/test_deviation.py`` measures them and holds them against what is stated.
    """

    psnr_db: float
    """Peak signal-to-noise ratio of a scale's pixels, ``10 log10(255² / mean squared error)``; at least so much."""
    mean_levels: float
    """Mean absolute difference, of 255 grey levels; at most so much."""


#: The command that builds what pip cannot install; its name follows.
BUILD = "pipetune doctor --install "

#: ``--exact`` leaves out what is further from the reference: one grey level everywhere is 48 dB.
EXACT_PSNR_DB = 45.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """How to find, install and drive one decode backend."""

    name: str
    module: str | None
    """Where its ``load`` is (see :mod:`pipetune.decoders.contract`), imported in the child only; ``None``: its loader
    decodes."""
    distributions: tuple[str, ...]
    """Any one of these installed distributions will do."""
    install: str
    """The command that installs it."""
    loader: str | None = None
    """The loader inside of which it decodes; ``None``: any that drives decoders."""
    releases_gil: bool = False
    """It releases the GIL while it decodes and starts no threads of its own, so loader workers may be threads."""
    decodes_on_cuda: bool = False
    """With a CUDA device it decodes there, in time that the model could have had."""
    needs_cuda: bool = False
    """The backend is a candidate beside a CUDA device only: it decodes there, or equals another one without it."""
    on_cpu: str | None = None
    """The backend that is the same library, decoding on the CPU also where there is a CUDA device."""
    steers_jpeg_engine: bool = False
    """The library may use a GPU's JPEG engine; settings say for what share of the images, whole ones or crops."""
    decodes_whole: bool = False
    """It decodes the whole image and then transforms it, so that the two can be measured apart
    (:data:`pipetune.decoders.contract.DecodeFunction`)."""
    reads_in_pieces: bool = False
    """It reads a file piece by piece, as its library does, and not at once."""
    reads_raw: bool = False
    """It takes images that are stored as pixels, too (:data:`pipetune.datasets.index.RAW`)."""
    reduced_only: bool = False
    """All that sets it apart is decoding at a fraction of the size: of use where crops are twice the training size."""
    code: str | None = None
    """Template of code that decodes with it in a plain torch ``DataLoader`` (``report/templates/NAME.py.j2``);
    ``None``: a training script uses :func:`pipetune.open_loader`."""
    usual_cost: float = 1.0
    """CPU time per photograph that it usually needs, as a share of Pillow's: the order in which a search tries it.
    Medians over sets of synthetic photographs with crops of 224 and 160 px, one worker, bytes (2 cores of an AMD EPYC);
    between the sets they differ by 10 to 20 %."""
    per_image: tuple[float, int] = (0.01, 2500)
    """What it does for each image, however small: to decode one, in ms of the cost model of
    :mod:`pipetune.predicting.changed_images`, and to crop and resize one, in pixels of the result. Measured on one core
    with 60 photographs of three sizes and crops of six: decoding takes 213, 12 and 74 us, cropping 42, 5 and 66 us
    (Pillow, OpenCV, torchvision); others are taken to be like OpenCV, or like the one whose library they use.
    jpeg-roi's is chosen: with OpenCV's, smaller images were predicted 12 % too fast (``whatif_error.py``)."""
    deviation: Deviation | None = None
    """``None``: it is the reference, or a loader of the user's own."""
    find: Callable[[], Pillow | Compiled | Spdl | None] | None = None
    """Finds the library where the name of a distribution is not enough (see :mod:`pipetune.install.find`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """What makes batches, with workers: how to open it, and which backends it can drive."""

    name: str
    module: str
    """Opens it (see :mod:`pipetune.loaders.contract`); imported in the child and in training only."""
    worker_kind: str
    """Its workers are a ``process`` or a ``thread`` each."""
    has_decoder: bool = False
    """It decodes itself, for the backend that names it; otherwise it drives decoders."""
    needs_released_gil: bool = False
    """It drives decoders that release the GIL only."""
    only_named: bool = False
    """It drives only decoders that name it (:attr:`Backend.loader`)."""
    min_workers: int = 0
    """Minimum number of workers; 0: the training process can load for itself."""
    native_workers: bool = False
    """Its workers share one queue of batches, which the training process takes as they are; they are threads, mostly
    inside a library, and few settings of other loaders have an effect on them."""
    reads_shards: bool = True
    """It can read images inside tar files."""


#: Names of loaders.
TORCH, THREADS, DALI, DEVICE, USER = "torch", "threads", "dali", "device", "user"

#: The first one that can drive a backend is its default.
LOADERS: dict[str, Loader] = {
    loader.name: loader
    for loader in (
        Loader(name=TORCH, module="pipetune.loaders.torch_processes", worker_kind="process"),
        Loader(name=THREADS, module="pipetune.loaders.threads", worker_kind="thread", needs_released_gil=True,
               min_workers=1),
        Loader(name=DALI, module="pipetune.loaders.dali", worker_kind="thread", has_decoder=True, min_workers=1,
               native_workers=True, reads_shards=False),
        Loader(name=DEVICE, module="pipetune.loaders.device", worker_kind="thread", only_named=True, min_workers=1,
               native_workers=True),
        Loader(name=USER, module="pipetune.loaders.user", worker_kind="process", has_decoder=True),
    )
}  # fmt: skip

#: Each of them is ``cv2``.
OPENCV = (
    "opencv-python-headless", "opencv-python", "opencv-contrib-python-headless", "opencv-contrib-python",
)  # fmt: skip

BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend(name="pillow", module="pipetune.decoders.pillow", code="pillow",
                distributions=(), install="pip install --force-reinstall pillow", find=find_pillow,
                releases_gil=True, decodes_whole=True, reads_in_pieces=True, reads_raw=True, per_image=(0.18, 4000)),
        Backend(name="pillow-simd", usual_cost=0.75, module="pipetune.decoders.pillow_simd", code="pillow_simd",
                distributions=(), install="pipetune doctor --install pillow-simd", find=find_pillow_simd,
                releases_gil=True, deviation=Deviation(psnr_db=66, mean_levels=0.02), decodes_whole=True,
                reads_in_pieces=True, reads_raw=True, per_image=(0.18, 4000)),
        Backend(name="opencv", usual_cost=0.6, module="pipetune.decoders.opencv", code="opencv",
                distributions=OPENCV,
                install="pip install 'pipetune[opencv]'", releases_gil=True,
                deviation=Deviation(psnr_db=25, mean_levels=7.5), decodes_whole=True),
        Backend(name="opencv-reduced", usual_cost=0.65, module="pipetune.decoders.opencv_reduced", distributions=OPENCV,
                install="pip install 'pipetune[opencv]'", releases_gil=True, reduced_only=True,
                deviation=Deviation(psnr_db=28, mean_levels=5)),
        Backend(name="simplejpeg", usual_cost=0.6, module="pipetune.decoders.simplejpeg",
                distributions=("simplejpeg",), install="pip install 'pipetune[simplejpeg]'", releases_gil=True,
                deviation=Deviation(psnr_db=25, mean_levels=7.5), decodes_whole=True),
        Backend(name="simplejpeg-reduced", usual_cost=0.55, module="pipetune.decoders.simplejpeg_reduced",
                distributions=("simplejpeg",), install="pip install 'pipetune[simplejpeg]'", releases_gil=True,
                deviation=Deviation(psnr_db=28, mean_levels=5)),
        Backend(name="jpeg-roi", usual_cost=0.5, module="pipetune.decoders.jpeg_roi", distributions=(),
                install="pipetune doctor --install jpeg-roi", find=find_jpeg_roi, releases_gil=True,
                deviation=Deviation(psnr_db=55, mean_levels=0.3), reads_raw=True, per_image=(0.05, 2500)),
        Backend(name="jpeg-roi-fast", usual_cost=0.47, module="pipetune.decoders.jpeg_roi_fast", distributions=(),
                install="pipetune doctor --install jpeg-roi", find=find_jpeg_roi, releases_gil=True,
                deviation=Deviation(psnr_db=41, mean_levels=1.5), per_image=(0.05, 2500)),
        Backend(name="torchvision", usual_cost=0.87, module="pipetune.decoders.torchvision", code="torchvision",
                distributions=("torchvision",), install="pip install 'pipetune[torch]'",
                deviation=Deviation(psnr_db=60, mean_levels=0.1), decodes_whole=True, per_image=(0.064, 22_000)),
        Backend(name="torchcodec", usual_cost=0.86, module="pipetune.decoders.torchcodec", code="torchcodec",
                distributions=("torchcodec",), install="pip install 'pipetune[torchcodec]'",
                deviation=Deviation(psnr_db=60, mean_levels=0.1), decodes_whole=True, per_image=(0.064, 22_000)),
        Backend(name="spdl", usual_cost=1.2, module="pipetune.decoders.spdl", distributions=(),
                install=INSTALL_SPDL, find=find_spdl, releases_gil=True,
                deviation=Deviation(psnr_db=41, mean_levels=1)),
        Backend(name="dali", usual_cost=0.8, module=None, loader=DALI,
                distributions=("nvidia-dali-cuda130", "nvidia-dali-cuda120"),
                install="pip install 'pipetune[dali-cuda130]'", decodes_on_cuda=True, on_cpu="dali-cpu",
                steers_jpeg_engine=True, deviation=Deviation(psnr_db=52, mean_levels=0.3)),
        # Neither their cost nor their own pixels are known on a GPU yet: the cost is DALI's, and the deviation that of
        # the code around the decoder, with libjpeg-turbo in its place.
        Backend(name="nvjpeg", usual_cost=0.8, module="pipetune.decoders.nvjpeg", loader=DEVICE,
                distributions=("torchvision",), install="pip install 'pipetune[torch]'", decodes_on_cuda=True,
                needs_cuda=True, deviation=Deviation(psnr_db=54, mean_levels=0.2)),
        Backend(name="nvimagecodec", usual_cost=0.8, module="pipetune.decoders.nvimagecodec", loader=DEVICE,
                distributions=("nvidia-nvimgcodec-cu13", "nvidia-nvimgcodec-cu12"),
                install="pip install 'pipetune[nvimagecodec-cuda130]'", decodes_on_cuda=True, needs_cuda=True,
                steers_jpeg_engine=True, deviation=Deviation(psnr_db=54, mean_levels=0.2)),
        Backend(name="dali-cpu", usual_cost=0.8, module=None, loader=DALI,
                distributions=("nvidia-dali-cuda130", "nvidia-dali-cuda120"),
                install="pip install 'pipetune[dali-cuda130]'", needs_cuda=True,
                deviation=Deviation(psnr_db=52, mean_levels=0.3)),
    )
}  # fmt: skip


def without_cuda(backend: Backend) -> str | None:
    """Why a backend is no candidate where there is no CUDA device; ``None``: it is one."""
    if not backend.needs_cuda:
        return None
    if backend.decodes_on_cuda:
        return "it decodes on a CUDA device, and there is none"
    other = next(one.name for one in BACKENDS.values() if one.on_cpu == backend.name)
    return f"without a CUDA device it is the same as {other}"


def is_exact(backend: Backend) -> bool:
    """Whether a backend's pixels are the reference's, or differ from them by no more than can be seen."""
    return backend.deviation is None or backend.deviation.psnr_db >= EXACT_PSNR_DB


#: The loader of the user's own program, which is swept from Python: ``pipetune.sweep(make_loader)``. Not in the table,
#: because it is no way to decode and exists in one run only.
OWN = Backend(name="own", module=None, loader=USER, distributions=("torch",), install="pip install 'pipetune[torch]'")

#: The user's own training script, which is measured in its own loop: ``pipetune sweep -- python train.py``.
SCRIPT = Backend(name="script", module=None, loader=USER, distributions=("torch",), install="pip install torch")

#: What decodes only the crops of a script's images.
CROP_DECODER = JPEG_ROI

#: Backend of an untuned training script: ImageFolder's Pillow loader.
DEFAULT_BACKEND = "pillow"


def default_backend() -> str:
    """The untuned backend of this environment: whatever ``import PIL`` gives."""
    return "pillow-simd" if (found := importable_pillow()) and found.simd else DEFAULT_BACKEND


def side_folder(backend: Backend) -> str | None:
    """What a child that measures this backend has to put first on its path; ``None``: nothing."""
    found = backend.find() if backend.find is not None else None
    return found.folder if found is not None and found.folder and found.folder not in sys.path else None


def installed_version(backend: Backend) -> str | None:
    """``'nvidia-dali-cuda130 2.4.0'``, or ``None`` when the backend is not installed."""
    import importlib.metadata  # here: it takes a fifth of the time that --help takes

    if backend.find is not None:
        found = backend.find()
        return found.name if found is not None else None
    for name in backend.distributions:
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def why_missing(backend: Backend) -> str:
    """What is to be said where :func:`installed_version` is ``None``: ``'is not installed'``, or what is refused."""
    name = backend.install.removeprefix(BUILD)
    refused = why_refused(side_directory(name)) if name != backend.install else None
    return "is not installed" if refused is None else f"is not used ({refused}, and its code would run)"


def loaders_of(backend: Backend) -> tuple[Loader, ...]:
    """The loaders that can drive a backend, its default first."""
    if backend.loader is not None:
        return (LOADERS[backend.loader],)
    return tuple(
        loader
        for loader in LOADERS.values()
        if not loader.has_decoder and not loader.only_named and (backend.releases_gil or not loader.needs_released_gil)
    )


def loader_for(candidate: Candidate) -> Loader:
    """The loader that makes a candidate's batches: its own choice where that is possible, else the backend's default.

    Raises:
        UsageError: there is no such backend.
    """
    return _loader_for(candidate.backend, candidate.loader, candidate.num_workers)


@functools.cache  # the search asks for it some hundred thousand times
def _loader_for(backend: str, loader: str, num_workers: int) -> Loader:
    possible = loaders_of(find_backend(backend))
    chosen = LOADERS.get(loader)
    return chosen if chosen in possible and num_workers >= chosen.min_workers else possible[0]


def min_workers(backend: Backend) -> int:
    """The smallest number of workers with which a backend can be loaded from."""
    return min(loader.min_workers for loader in loaders_of(backend))


def native_workers(backend: Backend) -> bool:
    """Whether a backend's workers are threads inside its library, whatever the loader."""
    return all(loader.native_workers for loader in loaders_of(backend))


def find_backend(name: str) -> Backend:
    """The backend of that name.

    Raises:
        UsageError: there is no such backend; the nearest names are suggested.
    """
    if name in BACKENDS:
        return BACKENDS[name]
    for own in (OWN, SCRIPT):
        if name == own.name:
            return own
    raise UsageError(f"unknown backend {name!r}", hint=did_you_mean(name, BACKENDS))
