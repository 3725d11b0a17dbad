"""nvimagecodec: NVIDIA's nvImageCodec, which decodes batches on a CUDA device, whole images or only their crops.

DALI decodes with the library as well. Its CPU decoder is that of the tests; on a GPU this is not seen yet.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import torch
from nvidia import nvimgcodec

from pipetune.decoders.contract import DeviceDecode, Encoded
from pipetune.decoders.torchvision import load
from pipetune.errors import PipetuneError
from pipetune.records.sweep import Candidate

__all__ = ["load", "open_device_decoder"]

#: Chroma is interpolated, as libjpeg does by default. With the second option also in crops, where nvJPEG before 13.2
#: may be wrong in the outermost pixels of an image; without it nvImageCodec refuses them there.
_OPTIONS = ":fancy_upsampling=1 :enable_roi_fancy_upsampling=1"


def open_device_decoder(candidate: Candidate, device: torch.device) -> DeviceDecode:
    """See :class:`pipetune.decoders.contract.DeviceDecoder`."""
    on_cuda = device.type == "cuda"
    try:
        decoder = nvimgcodec.Decoder(
            device_id=device.index if on_cuda else nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY,
            # It warns where it is asked for more, and leaves a core to others.
            max_num_cpu_threads=max(1, min(candidate.num_workers, len(os.sched_getaffinity(0)) - 1)),
            backends=_cuda_backends(candidate.hw_decoder_load) if on_cuda else [_backend("CPU_ONLY")],
            options=_OPTIONS,
        )
    except RuntimeError as error:
        raise PipetuneError(
            f"nvImageCodec makes no decoder for {device}: {error}", hint="update driver and library"
        ) from error
    # The index says how an image is turned; colours are those of the file, as in the other decoders.
    params = nvimgcodec.DecodeParams(apply_exif_orientation=False)
    crops = candidate.decode_region == "window"

    def decode(encoded: Sequence[Encoded]) -> list[torch.Tensor | None]:
        sources = [_open_source(image, crops) for image in encoded]
        usable = [source for source in sources if source is not None]
        stream = torch.cuda.current_stream(device).cuda_stream if on_cuda else 0
        decoded = iter(decoder.decode(usable, params=params, cuda_stream=stream) if usable else ())
        return [
            None if source is None else _window(next(decoded), image, crops, device)
            for source, image in zip(sources, encoded, strict=True)
        ]

    return decode


def _cuda_backends(hw_decoder_load: float | None) -> list[nvimgcodec.Backend]:
    """The decoders of a device in the order in which they are asked; the JPEG engine first, with its share."""
    share = {} if hw_decoder_load is None else {"load_hint": hw_decoder_load}
    return [_backend("HW_GPU_ONLY", **share), _backend("GPU_ONLY"), _backend("HYBRID_CPU_GPU")]


def _backend(kind: str, **options: float) -> nvimgcodec.Backend:
    return nvimgcodec.Backend(getattr(nvimgcodec.BackendKind, kind), **options)


def _open_source(image: Encoded, crops: bool) -> nvimgcodec.CodeStream | None:
    """What is to be decoded; ``None``: it cannot be parsed, or is not as its header was."""
    try:
        source = nvimgcodec.CodeStream(image.data)
        if (source.height, source.width) != (image.height, image.width):
            return None
        top, left, height, width = image.window
        region = nvimgcodec.Region(top, left, top + height, left + width)
        return source.get_sub_code_stream(region=region) if crops else source
    except RuntimeError:
        return None


def _window(decoded: nvimgcodec.Image | None, image: Encoded, crops: bool, device: torch.device) -> torch.Tensor | None:
    if decoded is None:
        return None
    pixels = torch.as_tensor(decoded, device=device) if device.type == "cuda" else torch.from_numpy(np.asarray(decoded))
    top, left, height, width = image.window
    if not crops:
        pixels = pixels[top : top + height, left : left + width]
    return pixels.permute(2, 0, 1) if tuple(pixels.shape) == (height, width, 3) else None
