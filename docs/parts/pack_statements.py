"""What stored results of ``pipetune pack`` say, in a few words: one function per benchmark."""

from __future__ import annotations

from statistics import median

from docs.parts.results import Stored, percent
from docs.parts.statements import broken_text


def pack_gain(result: Stored) -> str:
    gains = {name: median(found) for name, found in result["gain"].items()}
    best = max(gains, key=lambda name: gains[name])
    cases = list(result["cases"].values())
    bytes_off = max(abs(case["bytes_error"]) for case in cases)
    time_off = max(abs(case["seconds_error"]) for case in cases)
    return (
        f"images of 256 px load up to {gains[best]:.1f} times as fast ({best}), pixels "
        f"{median(result['raw']):.1f} times as fast as jpeg-roi decodes the sources; plans are off by up to "
        f"{percent(bytes_off)} in bytes and {percent(time_off)} in time"
        + (" (medians of three)" if all(len(case.get("seconds_errors", ())) == 3 for case in cases) else "")
        + _by_pillow(result)
        + broken_text(result)
    )


def _by_pillow(result: Stored) -> str:
    """What the crops at 352 px can be compared with: 10th percentiles."""
    if "psnr_db_by_pillow" not in result:
        return ""
    found = [f"{tenth:.1f} dB {name}" for name, (_, tenth) in result["psnr_db_by_pillow"].items()]
    return f"; Pillow's crops at 352 px: {', '.join(found)}"


def pack_peers(result: Stored) -> str:
    rates = result["rates"]
    ours = next(iter(rates.values()))
    peers = [f"{median(_ratios(ours, found)):.1f} times {name}" for name, found in rates.items()
             if not name.startswith(("pipetune", "cp"))]  # fmt: skip
    copied = median(_ratios(rates["pipetune, as they are"], rates["cp -r"]))
    return f"{', '.join(peers)}; copies at {copied:.2f} of cp's rate" + broken_text(result)


def _ratios(found: list[float], others: list[float]) -> list[float]:
    """Turn by turn."""
    return [one / other for one, other in zip(found, others, strict=True)]


def pack_resume(result: Stored) -> str:
    kills = sum(case["kills"] for case in result["formats"].values())
    same = sum(case["same"] for case in result["formats"].values())
    return f"{kills} kills: {same} of {len(result['formats'])} formats have the same bytes as if left alone"


def pack_many(result: Stored) -> str:
    last = result["runs"][-1]
    missed = "" if result["promise_holds"] else "; missed"
    return f"{last['pack']['bytes'] / 1e6:.0f} MB for {last['images']:,} images{missed}"
