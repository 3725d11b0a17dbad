"""What a measurement has shown of the script besides its rate, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipetune.records.sweep import Candidate

#: Other loaders are spoken of from this share of the time on that a training loop waits for them.
_OTHER_LOADERS_FRAC = 0.02


def remarks(result: Mapping[str, Any], role: str, candidate: Candidate, *, undivided: bool = False) -> list[str]:
    """Sentences about the script.

    Args:
        result: as the script's process has sent it.
        undivided: it is said already that the data set does not divide its samples.
    """
    sentences = []
    if role == "baseline" and result.get("repeats") and not undivided:
        workers = candidate.num_workers
        sentences.append(
            f"your script's own {workers} workers yield the same samples, so an epoch has each sample {workers} times: "
            "divide the iterable data set with torch.utils.data.get_worker_info"
        )
    other_loaders_frac = result.get("other_loaders_frac") or 0.0
    if role == "baseline" and other_loaders_frac > _OTHER_LOADERS_FRAC:
        sentences.append(
            f"the script waits for its other loaders {100 * other_loaders_frac:.0f} % of the time; they keep their "
            "settings, and that counts as its training step"
        )
    psnr_db = result.get("psnr_db")
    if psnr_db is not None and candidate.decoder != "own":
        sentences.append(f"decoded alone, crops are at least {psnr_db:.0f} dB from your script's own, on its own files")
    return sentences
