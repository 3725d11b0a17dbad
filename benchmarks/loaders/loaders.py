"""Are the loaders that pipetune recommends faster than the peers on the same cores?

Promise: pipetune's best loaders are at least as fast as the best peers, in no more memory than the smallest of them.

On photographs like Caltech-256's and like ImageNet's (the generator's three profiles), as float32 and uint8:

1. pipetune's best exact candidate (antialiased resize, within one grey level of Pillow) delivers at least as much as
   the best peer with an antialiased resize, and the interval excludes less than 0.95; its best approximate candidate
   the same against all peers.
2. At float32 at least 1.8 x the best-tuned ``DataLoader`` with torchvision's decoder and v2 transforms.
3. At least 0.85 of the bound: cores x what one thread decodes and transforms, in the same run.
4. No more memory than the smallest peer: the largest of 30 samples, since that much must be available; the mean of the
   samples is in the results, too. It is the proportional set size (PSS) without files, which lie in the page cache for
   all. Every process has torch, which training needs, and hands over tensors.

Each measurement is a process of its own: batch after batch is taken and dropped, the first seconds are left out. All
loaders take turns in an order that is drawn anew for each round; a ratio is the median over the rounds with its 95 %
bootstrap interval. ``DataLoader``'s workers and prefetch factor are the best of a grid that is measured first; the
others get as many threads or processes as there are cores (more than that is not tried), and keep two batches ready per
worker; pipetune one, which suffices it and takes less memory.
Peers that are not installed are named and left out: see ``requirements.txt``.

``--quick`` takes about 8 minutes: one profile, the strongest peers. The full run takes about 100.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from benchmarks.loaders.formats import convert
from pipetune.datasets.index import ImageSet, write_index
from pipetune.datasets.open_dataset import open_dataset
from pipetune.registry import BACKENDS, installed_version

CHILD = Path(__file__).with_name("child.py")
EXACT, APPROXIMATE, REFERENCE = "pipetune exact", "pipetune approximate", "torch + torchvision v2"
#: Peer -> the module that it needs.
PEERS = {
    REFERENCE: "torchvision", "DALI aa": "nvidia.dali", "DALI": "nvidia.dali", "FFCV": "ffcv", "SPDL aa": "spdl",
    "SPDL": "spdl", "Grain aa": "grain", "Grain": "grain", "torchdata nodes": "torchdata", "LitData": "litdata",
    "WebDataset": "webdataset",
}  # fmt: skip
ANTIALIASED = {REFERENCE, "DALI aa", "FFCV", "SPDL aa", "Grain aa"}
QUICK = {REFERENCE, "DALI aa", "DALI", "SPDL aa", "SPDL", "Grain"}
BOUNDS = {EXACT: "bound jpeg-roi", APPROXIMATE: "bound jpeg-roi-fast"}
PROFILES = ("caltech256", "imagenet", "imagenet-real")
GRID = [(workers, prefetch) for workers in (1, 2, 3, 4) for prefetch in (1, 2, 4)]
MIN_RATIO, MIN_LOW, MIN_REFERENCE, MIN_BOUND = 1.0, 0.95, 1.8, 0.85
TIMEOUT_S = 180
QUICK_ROUNDS, ROUNDS = 2, 4


def main(options: Namespace) -> bench.Result:
    rounds = int(options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS))
    times = {"warm_s": 1.0, "seconds": 2.0 if options.quick else 2.5}
    profiles = options.profiles.split(",") if options.profiles else PROFILES[:1] if options.quick else PROFILES
    wanted = set(options.only.split(",")) if options.only else QUICK if options.quick else set(PEERS)
    if installed_version(BACKENDS["jpeg-roi"]) is None:
        raise bench.Skipped(f"jpeg-roi is not built; run: {BACKENDS['jpeg-roi'].install}")
    missing = sorted({peer for peer in wanted if not _installed(PEERS[peer])})
    peers = [peer for peer in PEERS if peer in wanted and peer not in missing]
    if missing:
        print(f"not installed, left out: {', '.join(missing)}; see benchmarks/loaders/requirements.txt")
    numbers: dict[str, Any] = {"rounds": rounds, "not_installed": missing, "results": []}
    holds = True
    for profile in profiles:
        with tempfile.TemporaryDirectory(prefix="pipetune-loaders-") as folder:
            images = open_dataset(
                f"synthetic:{profile}?n=2000", seed=0, limit_images=10**6, limit_bytes=2**40, workers=2, progress=None
            )
            write_index(f"{folder}/index.json", images)
            convert(images, Path(folder), set(peers))
            read_all([*(Path(image.path) for image in images.images), *Path(folder).rglob("*")])
            for uint8 in (False, True):
                found = compare(images, Path(folder), peers, rounds, times, profile=profile, uint8=uint8)
                print(report(found), flush=True)
                numbers["results"].append(found)
                holds = holds and not found["broken"]
                bench.write(options.json, "loaders", holds, numbers)  # each time: it takes long
    return bench.Result(holds, numbers)


def read_all(files: Iterable[Path]) -> None:
    """Read all files, so that every loader finds them in the page cache."""
    for file in files:
        if file.is_file():
            with file.open("rb") as source:
                while source.read(1 << 24):
                    pass


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package above it
        return False


def compare(
    images: ImageSet,
    folder: Path,
    peers: list[str],
    rounds: int,
    times: Mapping[str, float],
    *,
    profile: str,
    uint8: bool,
) -> dict[str, Any]:
    """Measure all loaders in turns; see :func:`judge`."""
    cores = len(os.sched_getaffinity(0))

    def run(loader: str, **changes: Any) -> dict[str, Any] | None:
        task = {
            "loader": loader, "index": f"{folder}/index.json", "converted": str(folder), "batch": 64, "uint8": uint8,
            "workers": cores, "prefetch": 1 if loader.startswith("pipetune") else 2, **times,
        }  # fmt: skip
        return child(task | changes)

    best: dict[str, Any] = {}
    grid_of = GRID if rounds > QUICK_ROUNDS else GRID[::3]
    if REFERENCE in peers:
        grid = {(w, p): run(REFERENCE, workers=w, prefetch=p) for w, p in grid_of}
        measured = {key: value["samples_per_s"] for key, value in grid.items() if value is not None}
        if measured:
            workers, prefetch = max(measured, key=lambda key: measured[key])
            best = {"workers": workers, "prefetch": prefetch}
    contenders = [EXACT, APPROXIMATE, *peers, *BOUNDS.values()]
    rates: list[dict[str, dict[str, Any]]] = []
    failed: set[str] = set()
    for number in range(rounds):
        order = [name for name in contenders if name not in failed]
        random.Random(f"{profile} {uint8} {number}").shuffle(order)
        round_ = {}
        for name in order:
            result = run(name, **(best if name == REFERENCE else {}))
            if result is None:
                failed.add(name)
            else:
                round_[name] = result
        rates.append(round_)
    complete = [name for name in contenders if all(name in round_ for round_ in rates)]
    return judge(rates, complete, {
        "profile": profile, "output": "uint8" if uint8 else "float32", "cores": cores, "reference": best,
        "failed": sorted(failed),
    })  # fmt: skip


def child(task: Mapping[str, Any]) -> dict[str, Any] | None:
    """The result of the loader's process; ``None``: it failed, and its last line was printed."""
    command = [sys.executable, "-W", "ignore", str(CHILD), json.dumps(task)]
    try:
        result: dict[str, Any] = bench.last_line_of(command, TIMEOUT_S)
    except RuntimeError as error:
        print(f"{task['loader']}: {error}", file=sys.stderr)
        return None
    return result


def judge(rates: list[dict[str, dict[str, Any]]], complete: list[str], about: dict[str, Any]) -> dict[str, Any]:
    """Medians, ratios with intervals, and the parts of the promise that do not hold."""

    def ratio(one: str, other: str, factor: float = 1.0) -> dict[str, Any]:
        values = [factor * r[one]["samples_per_s"] / r[other]["samples_per_s"] for r in rates]
        return {"to": other, "ratio": median(values), "ci95": bench.bootstrap_ci95(values)}

    loaders = [name for name in complete if name not in BOUNDS.values()]
    numbers = {
        name: {key: median(r[name][key] for r in rates) for key in rates[0][name]} for name in complete
    }  # fmt: skip
    peers = [name for name in loaders if name in PEERS]
    broken: list[str] = [f"{name} failed" for name in about["failed"]]
    ratios: dict[str, Any] = {}
    for ours, rivals in ((EXACT, [p for p in peers if p in ANTIALIASED]), (APPROXIMATE, peers)):
        found = {rival: ratio(ours, rival) for rival in rivals}
        ratios[ours] = {"peers": found, "bound": ratio(ours, BOUNDS[ours], 1 / about["cores"])}
        if found:
            nearest = min(found.values(), key=lambda value: value["ratio"])
            ratios[ours]["best_peer"] = nearest
            if nearest["ratio"] < MIN_RATIO or nearest["ci95"][0] < MIN_LOW:
                broken.append(f"{ours} / {nearest['to']} {_interval(nearest)}")
        if ratios[ours]["bound"]["ratio"] < MIN_BOUND:
            broken.append(f"{ours} / bound {_interval(ratios[ours]['bound'])}")
        smallest = min((numbers[peer]["pss_bytes"] for peer in peers), default=None)
        if smallest is not None and numbers[ours]["pss_bytes"] > smallest:
            broken.append(f"{ours} takes {numbers[ours]['pss_bytes'] / 1e6:.0f} MB, a peer {smallest / 1e6:.0f} MB")
    if REFERENCE in peers and about["output"] == "float32":
        to_reference = ratios[EXACT]["peers"][REFERENCE]
        if to_reference["ratio"] < MIN_REFERENCE:
            broken.append(f"{EXACT} / {REFERENCE} {_interval(to_reference)}")
    return {**about, "numbers": numbers, "ratios": ratios, "broken": broken, "measured": rates}


def report(result: Mapping[str, Any]) -> str:
    """The table of one data set and output."""
    numbers, ratios = result["numbers"], result["ratios"]
    rows = []
    for name in sorted(numbers, key=lambda name: -numbers[name]["samples_per_s"]):
        found = numbers[name]
        if name.startswith("bound"):
            rows.append([f"{name}, one thread", f"{found['samples_per_s']:,.0f}", "", "", "", "", ""])
            continue
        shares = [
            _interval(ratios[ours]["peers"][name]) if name in ratios[ours]["peers"] else "" for ours in BOUNDS
        ]  # fmt: skip
        rows.append([
            name, f"{found['samples_per_s']:,.0f}", *shares, f"{found['cpu_s_per_1000']:.2f}",
            f"{found['pss_bytes'] / 1e6:,.0f}", f"{found['first_batch_s']:.2f}",
        ])  # fmt: skip
    headings = ["loader", "samples/s", "exact / it", "approximate / it", "CPU s per 1,000", "PSS, MB", "first batch, s"]
    lines = [f"\n{result['profile']}, {result['output']}; DataLoader with {result['reference']}"]
    lines += [bench.table(headings, rows)]
    lines += [f"{ours} / bound: {_interval(ratios[ours]['bound'])}" for ours in BOUNDS]
    lines += [f"does not hold: {text}" for text in result["broken"]]
    return "\n".join(lines)


def _interval(found: Mapping[str, Any]) -> str:
    low, high = found["ci95"]
    return f"{found['ratio']:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    bench.run(
        main,
        __file__,
        __doc__,
        rounds="number of rounds",
        profiles="comma separated",
        only="peers, comma separated",
    )
